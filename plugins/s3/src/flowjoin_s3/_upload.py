"""One object on its way: whole if it is small, in parts while it is still being made if it is not.

Invariant: until ``finish`` returns nothing of the object can be seen in the bucket, and memory holds no more of it
than the threshold and a part.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import trio
from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # botocore ships no types

from flowjoin.api import Logger
from flowjoin_s3._client import Bucket
from flowjoin_s3._errors import S3_ERRORS
from flowjoin_s3._threads import STOP_SECONDS, run_blocking

__all__ = ["Upload", "open_upload"]

T = TypeVar("T")

_ABORT_SECONDS: Final = 2 * STOP_SECONDS


class Upload:
    """Takes an object's octets in order."""

    def __init__(
        self,
        bucket: Bucket,
        key: str,
        content_type: str,
        *,
        threshold: int,
        part_size: int,
        limiter: trio.CapacityLimiter,
        log: Logger,
    ) -> None:
        self._bucket = bucket
        self._key = key
        self._content_type = content_type
        self._threshold = threshold
        self._part_size = part_size
        self._limiter = limiter
        self._log = log
        self._waiting = bytearray()
        self._upload_id = ""
        self._tags: list[str] = []
        self.octets = 0

    @property
    def parts(self) -> int:
        """Parts sent; 0 for an object that went whole."""
        return len(self._tags)

    async def write(self, octets: bytes) -> None:
        """Take more; sends what makes whole parts."""
        self._waiting += octets
        self.octets += len(octets)
        if not self._upload_id and len(self._waiting) > self._threshold:
            await self._begin()
        while self._upload_id and len(self._waiting) > self._part_size:
            await self._put_part(self._part_size)
        await trio.lowlevel.checkpoint()

    async def finish(self) -> None:
        """The object is in the bucket, whole, when this returns."""
        if self._upload_id:
            await self._put_part(len(self._waiting))
            await self._run(lambda _stop: self._bucket.complete(self._key, self._upload_id, self._tags))
            self._upload_id = ""
        else:
            whole = bytes(self._waiting)
            await self._run(lambda stop: self._bucket.put(self._key, whole, self._content_type, stop))

    async def abort(self) -> None:
        """Throw the parts away, if there are any and the server is there."""
        if not self._upload_id:
            return
        with trio.move_on_after(_ABORT_SECONDS, shield=True) as scope:
            try:
                await self._run(lambda _stop: self._bucket.abort(self._key, self._upload_id))
            except S3_ERRORS as exc:
                self._say_not_aborted(str(exc))
        if scope.cancelled_caught:
            self._say_not_aborted("no answer")

    async def _begin(self) -> None:
        # The key is this batch's alone, so whatever is unfinished under it was left by a try that was killed.
        try:
            removed = await self._run(lambda _stop: self._bucket.abort_unfinished(self._key))
        except ClientError as exc:
            self._log.debug("unfinished_uploads_not_listed", key=self._key, cause=str(exc))
        else:
            if removed:
                self._log.info("unfinished_uploads_removed", key=self._key, uploads=removed)
        self._upload_id = await self._run(lambda _stop: self._bucket.begin(self._key, self._content_type))

    async def _put_part(self, octets: int) -> None:
        part = bytes(memoryview(self._waiting)[:octets])
        del self._waiting[:octets]
        number = len(self._tags) + 1
        upload_id = self._upload_id
        tag = await self._run(lambda stop: self._bucket.put_part(self._key, upload_id, number, part, stop))
        self._tags.append(tag)

    def _say_not_aborted(self, cause: str) -> None:
        self._log.warning("upload_not_aborted", key=self._key, upload=self._upload_id, cause=cause)

    async def _run(self, call: Callable[[threading.Event], T]) -> T:
        return await run_blocking(call, self._limiter)


@asynccontextmanager
async def open_upload(upload: Upload) -> AsyncIterator[Upload]:
    """Around an upload: an exception, cancellation too, throws its parts away."""
    try:
        yield upload
    except BaseException:
        await upload.abort()
        raise
