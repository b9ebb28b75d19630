"""/flowstream on real sockets: flows as they are exported, to whoever watches."""

from __future__ import annotations

import trio
from api_fakes import FakeFigures
from http_serving import MANY, ask, connect, read_to_the_end, serving
from waiting import until

from flowjoin._pipeline.flow_feeds import FlowFeeds


async def events_of(stream: trio.SocketStream, count: int) -> bytes:
    """What has come when there are so many events."""
    text = b""
    while text.count(b"data: ") < count:
        text += await stream.receive_some()
    return text


async def test_exported_flows_that_match_are_events_as_they_come() -> None:
    figures = FakeFigures()
    async with serving(figures) as address, await connect(address) as stream:
        await stream.send_all(b"GET /flowstream?dstip=10.0.1.7 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(figures.feeds) == 1)
        for each in MANY:
            figures.feeds.offer(each)
        text = await events_of(stream, 3)
        assert b"content-type: text/event-stream" in text
        assert text.count(b'"destinationIPv4Address":"10.0.1.7"') == text.count(b"data: ") == 3
        assert (await ask(address, "/livez"))[1] == b"ok\n"


async def test_a_stream_without_flows_says_that_it_lives_and_ends_in_time() -> None:
    figures = FakeFigures()
    async with (
        serving(figures, heartbeat_seconds=0.01, stream_seconds=0.2) as address,
        await connect(address) as stream,
    ):
        await stream.send_all(b"GET /flowstream HTTP/1.0\r\n\r\n")
        text = await read_to_the_end(stream)
        assert b": nothing yet\n\n" in text
        assert b"data: " not in text


async def test_a_slow_reader_is_told_what_it_did_not_get() -> None:
    figures = FakeFigures()
    figures.feeds = FlowFeeds(rows=64)
    async with serving(figures) as address, await connect(address) as stream:
        await stream.send_all(b"GET /flowstream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(figures.feeds) == 1)
        for each in MANY:  # all at once: nobody reads meanwhile
            figures.feeds.offer(each)
        assert b'event: dropped\ndata: {"rows": 128}\n\n' in await events_of(stream, 65)
        assert figures.feeds.dropped == 128


async def test_those_who_watch_are_bounded_and_leaving_gives_the_place_back() -> None:
    figures = FakeFigures()
    async with serving(figures, streams=1, heartbeat_seconds=0.01) as address:
        async with await connect(address) as stream:
            await stream.send_all(b"GET /flowstream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: len(figures.feeds) == 1)
            head, _ = await ask(address, "/flowstream")
            assert head.startswith("HTTP/1.1 503")
            assert (await ask(address, "/flowstream?proto=x"))[0].startswith("HTTP/1.1 404")
            assert (await ask(address, "/flowstream", method="HEAD"))[0].startswith("HTTP/1.1 200")
        await until(lambda: len(figures.feeds) == 0)
