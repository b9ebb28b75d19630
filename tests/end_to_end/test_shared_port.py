"""Several collectors at one address: ``reusePort``."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from collections import Counter

import pytest
import trio

from flowjoin._collector.process import open_collector
from flowjoin._model.errors import BindError

SENDERS = 64  # that all of them reach one of two happens once in 2**63 times
DATAGRAMS = 3
PATIENCE = 30.0

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="this system cannot share a port")


def sender():
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind(("127.0.0.1", 0))
    return opened


async def test_each_sender_is_heard_by_one_collector_alone(intake, configure, make_message, nursery):
    other = type(intake)()
    config = dataclasses.replace(configure("udp"), reuse_port=True)
    async with open_collector(config, **intake.arguments) as group:
        (address,) = await nursery.start(group.run)
        async with open_collector(dataclasses.replace(config, address=address), **other.arguments) as second:
            await nursery.start(second.run)
            with contextlib.ExitStack() as opened:
                senders = [opened.enter_context(sender()) for _ in range(SENDERS)]
                for number in range(DATAGRAMS):
                    for each in senders:
                        each.sendto(make_message(number), (address.host, address.port))
                with trio.fail_after(PATIENCE):
                    while len(intake.messages) + len(other.messages) < SENDERS * DATAGRAMS:
                        await trio.lowlevel.checkpoint()
                heard = [Counter(session.peer_port for session in each.sessions) for each in (intake, other)]
                assert all(heard)
                assert not heard[0].keys() & heard[1].keys()
                assert heard[0] + heard[1] == Counter({each.getsockname()[1]: DATAGRAMS for each in senders})
            nursery.cancel_scope.cancel()


async def test_connections_are_spread_too(intake, configure, make_message, nursery):
    other = type(intake)()
    config = dataclasses.replace(configure("tcp"), reuse_port=True)
    async with open_collector(config, **intake.arguments) as group:
        (address,) = await nursery.start(group.run)
        async with open_collector(dataclasses.replace(config, address=address), **other.arguments) as second:
            await nursery.start(second.run)
            with contextlib.ExitStack() as opened:
                for number in range(SENDERS):
                    connection = socket.create_connection((address.host, address.port))
                    opened.enter_context(connection).sendall(make_message(number))
                with trio.fail_after(PATIENCE):
                    while len(intake.messages) + len(other.messages) < SENDERS:
                        await trio.lowlevel.checkpoint()
                assert intake.messages
                assert other.messages
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
async def test_a_port_is_not_shared_with_who_did_not_ask_for_it(intake, configure, protocol):
    async with open_collector(configure(protocol), **intake.arguments) as group:
        (address,) = group.addresses
        config = dataclasses.replace(configure(protocol, port=address.port), reuse_port=True)
        with pytest.raises(BindError, match="another process listens there, without reusePort"):
            async with open_collector(config, **intake.arguments):
                raise AssertionError
