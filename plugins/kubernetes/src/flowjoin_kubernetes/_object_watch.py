"""Waits until one object may have changed, whoever changed it: a watch of it alone, else a look now and then.

A watch without a version begins with the object as it is and tells every change from then on, so nothing is listed, and
no version is asked for that the server has forgotten. What is told is a hint alone: the server may tell it from a copy
that is behind. So the object itself is read at each hint; and once when the watch has begun, for of an object that was
deleted before, it says nothing.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from flowjoin_kubernetes._client import Api, ApiError
from flowjoin_kubernetes._http import HttpTrouble, open_connection
from flowjoin_kubernetes._watch import Lines

__all__ = ["wait_object_change"]

FIRST_LOOK_SECONDS: Final = 1.0
LAST_LOOK_SECONDS: Final = 10.0
_WATCH_SECONDS: Final = 300.0  # after which the server is asked to end a watch, so that none is forgotten
_SILENCE_SECONDS: Final = 60.0
_EVENT_OCTETS: Final = 4 * 1024 * 1024  # an object has 1.5 MiB at most in the API server's store


async def wait_object_change(
    api: Api,
    collection: str,
    name: str,
    has_changed: Callable[[], Awaitable[bool]],
    *,
    tell_trouble: Callable[[str], None],
) -> None:
    """Return when ``has_changed`` says so.

    It is asked at each hint. While there is no watch, it is asked after one second, then less and less often, at least
    every ten.

    Args:
        api: where.
        collection: path of the objects of its kind in its namespace.
        name: of the object, which need not be there.
        has_changed: reads it; may fail as requests do.
        tell_trouble: gets a sentence when the watch does not work, an empty one when it does again.
    """
    wait = FIRST_LOOK_SECONDS
    while True:
        began = trio.current_time()
        try:
            if await _watch(api, collection, name, has_changed, tell_trouble):
                return
        except (ApiError, HttpTrouble) as exc:
            tell_trouble(str(exc))
        if trio.current_time() - began > LAST_LOOK_SECONDS:
            wait = FIRST_LOOK_SECONDS
        await trio.sleep(wait)  # a server that ends watches at once is not asked without end
        wait = min(2 * wait, LAST_LOOK_SECONDS)
        try:
            if await has_changed():
                return
        except (ApiError, HttpTrouble) as exc:
            tell_trouble(str(exc))


async def _watch(
    api: Api,
    collection: str,
    name: str,
    has_changed: Callable[[], Awaitable[bool]],
    tell_trouble: Callable[[str], None],
) -> bool:
    """Whether it has changed, as far as one watch tells.

    Raises:
        ApiError: the server refuses.
        HttpTrouble: the watch broke off.
    """
    seconds = int(_WATCH_SECONDS * (1 + random.random()))  # noqa: S311 - not all watches of all programs at one time
    query = {"watch": "1", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": str(seconds)}
    with trio.move_on_after(seconds + _SILENCE_SECONDS):
        async with open_connection(api.endpoint) as connection:
            response = await api.get(connection, collection, query)
            tell_trouble("")
            if await has_changed():
                return True
            lines = Lines(_EVENT_OCTETS)
            while piece := await response.next_piece():
                for _hint in lines.receive(piece):
                    if await has_changed():
                        return True
        return False
    raise HttpTrouble("the server did not end a watch in time")
