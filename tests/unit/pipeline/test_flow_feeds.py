from __future__ import annotations

import trio
from api_fakes import batch, flow

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.flow_feeds import FlowFeeds


def rows(count: int, port: int = 1) -> FlowBatch:
    return batch([flow("10.0.0.1", "10.0.0.2", port, row) for row in range(count)])


async def test_each_watcher_gets_what_is_exported_while_it_watches() -> None:
    feeds = FlowFeeds()
    feeds.offer(rows(1))
    with feeds.watch() as one:
        first, second = rows(2), rows(3)
        feeds.offer(first)
        with feeds.watch() as other:
            feeds.offer(second)
            assert [await one.next(1), await one.next(1)] == [(first, 0), (second, 0)]
            assert await other.next(1) == (second, 0)
            assert len(feeds) == 2
    assert len(feeds) == 0
    feeds.offer(rows(1))
    assert feeds.dropped == 0


async def test_a_slow_watcher_loses_the_oldest_batches_and_is_told_how_many_rows() -> None:
    feeds = FlowFeeds(rows=10)
    with feeds.watch() as slow, feeds.watch() as quick:
        for port in range(5):
            feeds.offer(rows(4, port))
            got, dropped = await quick.next(1)
            assert got is not None
            assert (len(got), dropped) == (4, 0)
        kept, dropped = await slow.next(1)
        assert kept is not None
        assert (kept.column("sourceTransportPort")[0], dropped) == (3, 12)
        assert (await slow.next(1))[1] == 0
    assert feeds.dropped == 12


async def test_a_batch_larger_than_the_bound_is_cut() -> None:
    feeds = FlowFeeds(rows=10)
    with feeds.watch() as feed:
        feeds.offer(rows(25))
        kept, dropped = await feed.next(1)
        assert kept is not None
        assert (len(kept), dropped) == (10, 15)
        feeds.offer(rows(3))
        kept, dropped = await feed.next(1)
        assert kept is not None
        assert (len(kept), dropped) == (3, 0)


async def test_a_watcher_waits_no_longer_than_it_says_and_is_woken_by_a_batch(autojump_clock: object) -> None:
    feeds = FlowFeeds()
    with feeds.watch() as feed:
        assert await feed.next(15) == (None, 0)
        assert trio.current_time() == 15
        async with trio.open_nursery() as nursery:

            async def offer_later() -> None:
                await trio.sleep(2)
                feeds.offer(rows(1))

            nursery.start_soon(offer_later)
            got, _ = await feed.next(15)
            assert got is not None
        assert trio.current_time() == 17
