"""Keeps a table what the API server says: a list in pages, then the changes after it, for ever.

A list is read whole, then watched from its resource version. Each change, and each bookmark, moves that version on, so
that a watch that ends or breaks goes on from where it was. 410 Gone, as a status or as an event, says that the server
no longer knows the version: list anew, and what is missing in the list was deleted unseen. So it is with a version from
which the server refuses, again and again, to go on, or always goes on with what cannot be read.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import trio

from flowjoin.api import Logger
from flowjoin_kubernetes._client import Api, ApiError
from flowjoin_kubernetes._http import Connection, HttpTrouble, Response, open_connection
from flowjoin_kubernetes._pages import Page

__all__ = ["TIMING", "Lines", "Resource", "Timing", "Watched", "Watcher"]

_PAGE_OCTETS: Final = 512 * 1024 * 1024
_EVENT_OCTETS: Final = 32 * 1024 * 1024  # an object has 1.5 MiB at most in the API server's store
_ITEMS_PER_STEP: Final = 16
# When a list's continue token expires (the list took longer than the server keeps history), larger pages are quicker;
# without a limit there is no token.
_PAGE_SIZES: Final = (500, 5000, 0)
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_PATIENCE: Final = 5  # refusals in a row, or events that cannot be read, after which the version is given up


class _Unreadable(HttpTrouble):
    """What the server tells cannot be read; it may tell the same again."""


class Resource(enum.Enum):
    """What is watched, by its name in the API's paths and rules."""

    PODS = "pods"
    NODES = "nodes"
    SERVICES = "services"


class Watched(Protocol):
    """What a Watcher keeps up to date."""

    def begin_list(self) -> None: ...
    def put(self, manifest: dict[str, Any]) -> None: ...
    def delete(self, manifest: dict[str, Any]) -> None: ...
    def end_list(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long things may take, in seconds.

    Attributes:
        watch: after which the server is asked to end a watch, so that none is forgotten.
        silence: for how long a server may say nothing while it answers a list.
        first_wait: after the first failure; it doubles up to ``longest_wait``.
    """

    watch: float = 300.0
    silence: float = 60.0
    first_wait: float = 0.5
    longest_wait: float = 30.0


TIMING: Final = Timing()


class Watcher:
    """One resource's task."""

    def __init__(
        self,
        resource: Resource,
        api: Api,
        table: Watched,
        *,
        log: Logger,
        random: Callable[[], float],
        tell_trouble: Callable[[str], None],
        timing: Timing | None = None,
        field_selector: str = "",
    ) -> None:
        """Nothing is asked before ``run``.

        Args:
            resource: what to list and watch.
            api: where.
            table: gets every object.
            log: of the plugin.
            random: numbers from 0 up to 1, for jitter.
            tell_trouble: gets a sentence when it does not work, an empty one when it does again.
            timing: how long things may take; default: ``TIMING``.
            field_selector: which of them; what no longer fits counts as deleted, as the server tells it. Empty: all.
        """
        self._resource = resource
        self._api = api
        self._table = table
        self._log = log
        self._random = random
        self._tell_trouble = tell_trouble
        self._timing = TIMING if timing is None else timing
        self._path = f"/api/v1/{resource.value}"
        self._selection = {"fieldSelector": field_selector} if field_selector else {}
        self._version = ""  # where the watch goes on; empty: list first
        self._failures = 0
        self._page_size = 0  # position in _PAGE_SIZES
        self.synced = trio.Event()
        self.refused = trio.Event()
        self.heard = trio.Event()

    async def run(self) -> None:
        """List and watch, until cancelled.

        Sets ``synced`` when the table is whole, ``refused`` when the server will not give it, and ``heard`` when it has
        answered at all.
        """
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                continue
            except ApiError as exc:
                wait = await self._after(exc)
            except HttpTrouble as exc:
                self._report(f"{self._resource.value} cannot be watched: {exc}")
                if not self._version:  # pages may have become too large
                    self._page_size = 0
                if isinstance(exc, _Unreadable) and self._failures >= _PATIENCE:
                    self._version = ""
                wait = self._next_wait()
            await trio.sleep(wait)

    async def wait_settled(self) -> None:
        """Wait until the table is whole, or the server has refused to give it."""
        async with trio.open_nursery() as nursery:
            for event in (self.synced, self.refused):
                nursery.start_soon(self._cancel_after, event, nursery.cancel_scope)

    @staticmethod
    async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
        await event.wait()
        scope.cancel()

    async def _after(self, exc: ApiError) -> float:
        """What a refusal means; gives how long to wait."""
        self.heard.set()
        if exc.is_gone:
            if not self._version:  # a page's token: it was handed out by the list that goes on
                self._page_size = min(self._page_size + 1, len(_PAGE_SIZES) - 1)
            self._version = ""
            self._log.info("list_again", resource=self._resource.value, reason=str(exc))
            self._failures += 1
            return 0.0 if self._failures == 1 else self._next_wait()
        self._report(self._sentence(exc))
        if exc.code in (_UNAUTHORIZED, _FORBIDDEN):
            self.refused.set()
        if self._failures >= _PATIENCE:
            self._version = ""
        return max(self._next_wait(), exc.retry_after)

    def _sentence(self, exc: ApiError) -> str:
        name = self._resource.value
        if exc.code == _FORBIDDEN:
            rule = f'{{apiGroups: [""], resources: ["{name}"], verbs: ["list", "watch"]}}'
            return f"{name} may not be read ({exc}): give the service account a ClusterRole with the rule {rule}"
        if exc.code == _UNAUTHORIZED:
            return f"{name} cannot be read: the API server does not accept the credentials ({exc})"
        return f"{name} cannot be watched: the API server answers {exc.code}: {exc}"

    def _report(self, problem: str) -> None:
        self._tell_trouble(problem)
        self._log.warning("watch_failed", resource=self._resource.value, problem=problem)

    def _next_wait(self) -> float:
        """From half to the whole of a wait that doubles with each failure in a row."""
        timing = self._timing
        longest = min(timing.first_wait * float(1 << min(self._failures, 16)), timing.longest_wait)
        self._failures += 1
        return longest * (1 + self._random()) / 2

    async def _list(self) -> None:
        """Everything that there is, page by page.

        Raises:
            ApiError: the server refuses, or has forgotten the list meanwhile.
            HttpTrouble: it cannot be read.
        """
        self._table.begin_list()
        objects, size = 0, _PAGE_SIZES[self._page_size]
        query = {**({"limit": str(size)} if size else {}), **self._selection}
        is_whole = False
        while not is_whole:
            async with open_connection(self._api.endpoint) as connection:
                while True:
                    page = await self._page(connection, query)
                    self.heard.set()
                    objects += await self._take(page)
                    is_whole = not page.continue_token
                    query["continue"] = page.continue_token
                    if is_whole or not connection.is_reusable:
                        break
        missed = self._table.end_list()
        self._version = page.resource_version
        self._page_size = 0
        self._tell_trouble("")
        self.synced.set()
        self._log.info("listed", resource=self._resource.value, objects=objects, deleted_unseen=missed)

    async def _page(self, connection: Connection, query: dict[str, str]) -> Page:
        try:
            with trio.fail_after(self._timing.silence * 10):
                response = await self._api.get(connection, self._path, query)
                return Page(await response.read(_PAGE_OCTETS))
        except trio.TooSlowError:
            raise HttpTrouble("the server did not finish its answer") from None
        except ValueError as exc:
            raise HttpTrouble(f"the server's answer is no JSON: {exc}") from exc

    async def _take(self, page: Page) -> int:
        count = 0
        try:
            for count, manifest in enumerate(page, 1):
                self._table.put(manifest)
                if count % _ITEMS_PER_STEP == 0:
                    await trio.lowlevel.checkpoint()
        except (ValueError, RecursionError) as exc:
            raise HttpTrouble(f"the server's answer is no list: {exc}") from exc
        return count

    async def _watch(self) -> None:
        """The changes from the version on, until the server ends the watch.

        Raises:
            ApiError: the server refuses, at once or in an event.
            HttpTrouble: it broke off.
        """
        seconds = self._timing.watch * (1 + self._random())  # not all watches of all programs at one time
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(int(seconds)),
            **self._selection,
        }
        before, started = self._version, trio.current_time()
        with trio.move_on_after(seconds + self._timing.silence) as patience:
            async with open_connection(self._api.endpoint) as connection:
                response = await self._api.get(connection, self._path, query)
                self._tell_trouble("")
                await self._take_events(response)
        if patience.cancelled_caught:
            raise HttpTrouble("the server did not end a watch in time")
        if self._version != before or trio.current_time() - started > self._timing.longest_wait:
            self._failures = 0
        else:  # a server that ends watches at once is not asked without end
            await trio.sleep(self._next_wait())

    async def _take_events(self, response: Response) -> None:
        lines = Lines(_EVENT_OCTETS)
        count = 0
        while piece := await response.next_piece():
            for line in lines.receive(piece):
                self._take_event(line)
                count += 1
                if count % _ITEMS_PER_STEP == 0:
                    await trio.lowlevel.checkpoint()

    def _take_event(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            kind, manifest = event["type"], event["object"]
            if kind == "ERROR":
                raise ApiError(int(manifest.get("code") or 0), str(manifest.get("message") or "no reason given"))
            version = str(manifest["metadata"]["resourceVersion"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as exc:
            raise _Unreadable(f"an event of the watch cannot be read: {type(exc).__name__}: {exc}") from exc
        if kind in ("ADDED", "MODIFIED"):
            self._table.put(manifest)
        elif kind == "DELETED":
            self._table.delete(manifest)
        if self._failures and kind != "BOOKMARK":
            self._failures = 0
        self._version = version


class Lines:
    """Cuts a stream into lines, wherever it is split."""

    def __init__(self, most_octets: int) -> None:
        """Nothing received."""
        self._most_octets = most_octets
        self._pieces: list[bytes] = []
        self._octets = 0

    def receive(self, piece: bytes) -> Iterator[bytes]:
        """The lines that the piece completes, without empty ones.

        Raises:
            HttpTrouble: a line is longer than ``most_octets``.
        """
        *whole, rest = piece.split(b"\n")
        for end in whole:
            line = b"".join((*self._pieces, end))
            self._pieces, self._octets = [], 0
            if line.strip():
                yield line
        if rest:
            self._pieces.append(rest)
            self._octets += len(rest)
        if self._octets > self._most_octets:
            raise _Unreadable(f"an event of the watch is longer than {self._most_octets} octets")
