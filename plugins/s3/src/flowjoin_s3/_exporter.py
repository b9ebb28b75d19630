"""The exporter's life: a batch becomes one object, or one for each hour in which its flows ended."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

import trio

from flowjoin.api import Exporter, FlowBatch, PermanentExportError, PluginContext, RetryableExportError
from flowjoin_s3._client import Bucket
from flowjoin_s3._config import S3Config
from flowjoin_s3._encode import Encoding, encoding_of
from flowjoin_s3._errors import S3_ERRORS, Failure, failure_of
from flowjoin_s3._keys import HourSplit, antrea_key, partitioned_key
from flowjoin_s3._threads import STOP_SECONDS, run_blocking
from flowjoin_s3._upload import Upload, open_upload

__all__ = ["open_s3"]

_SPLIT_ROWS: Final = 4096  # sorted by hour at a time: about 2 ms


class _S3Exporter:
    def __init__(
        self,
        config: S3Config,
        encoding: Encoding,
        bucket: Bucket,
        context: PluginContext,
        limiter: trio.CapacityLimiter,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._encoding = encoding
        self._bucket = bucket
        self._limiter = limiter
        self._clock = clock
        self._log = context.log
        self._rows = context.counter("rows_delivered", "Rows of objects that are in the bucket")
        self._objects = context.counter("objects", "Objects put into the bucket")
        self._octets = context.counter("octets", "Octets of those objects")
        self._parts = context.counter("parts", "Parts of those objects that went in parts")
        self._stamped: tuple[str, int] = ("", 0)

    async def export(self, batch: FlowBatch) -> None:
        if not len(batch):
            await trio.lowlevel.checkpoint()
            return
        batch_id = batch.id or uuid.uuid4().hex  # outside a lane rows have no name, so each call is another batch
        inserted_at = self._inserted_at(batch_id)
        refused: list[int] = []
        refusal: PermanentExportError | None = None
        for key, rows in (await self._objects_of(batch, batch_id)).items():
            try:
                await self._put(key, batch, rows, inserted_at)
            except S3_ERRORS as exc:
                failure = await self._failure(exc)
                if isinstance(failure.error, RetryableExportError):
                    raise failure.error from exc
                refusal = failure.error
                refused += range(len(batch)) if rows is None else rows
        self._rows.inc(len(batch) - len(refused))
        if refusal is not None:
            raise PermanentExportError(str(refusal), rows=sorted(refused)) from refusal

    async def connect(self) -> None:
        """Try to find the bucket, so that what is wrong is said at start; ``export`` tries again."""
        try:
            await run_blocking(lambda _stop: self._bucket.connect(), self._limiter)
        except S3_ERRORS as exc:
            failure = await self._failure(exc)
            self._log.warning("bucket_not_reached", bucket=self._config.bucket_name, problem=str(failure.error))

    def _inserted_at(self, batch_id: str) -> int:
        """The second of the first try: a batch that comes again is the same object, octet for octet."""
        if self._stamped[0] != batch_id:
            self._stamped = (batch_id, int(self._clock()))
        return self._stamped[1]

    async def _objects_of(self, batch: FlowBatch, batch_id: str) -> dict[str, Sequence[int] | None]:
        """The rows of each object by its key; None: all."""
        prefix, suffix = self._config.bucket_prefix, self._encoding.suffix
        if self._config.layout == "antrea":
            return {antrea_key(prefix, batch_id, suffix): None}
        split = HourSplit()
        for start in range(0, len(batch), _SPLIT_ROWS):
            split.add(batch.slice(start, start + _SPLIT_ROWS))
            await trio.lowlevel.checkpoint()
        hours = split.hours()
        return {
            partitioned_key(prefix, hour, batch_id, suffix): rows if len(hours) > 1 else None
            for hour, rows in hours.items()
        }

    async def _put(self, key: str, batch: FlowBatch, rows: Sequence[int] | None, inserted_at: int) -> None:
        upload = Upload(
            self._bucket,
            key,
            self._encoding.content_type,
            threshold=self._config.multipart_threshold,
            part_size=self._config.part_size,
            limiter=self._limiter,
            log=self._log,
        )
        encoder = self._encoding.start(inserted_at, upload.write)
        async with open_upload(upload):
            for piece in _pieces(range(len(batch)) if rows is None else rows, self._encoding.rows):
                await encoder.add(batch, piece)
            await encoder.finish()
            await upload.finish()
        self._objects.inc()
        self._octets.inc(upload.octets)
        self._parts.inc(upload.parts)

    async def _failure(self, exc: Exception) -> Failure:
        failure = failure_of(
            exc,
            bucket=self._config.bucket_name,
            endpoint=self._bucket.endpoint,
            now=datetime.fromtimestamp(self._clock(), UTC),
        )
        if failure.connect_again:
            await run_blocking(lambda _stop: self._bucket.close(), self._limiter)
        return failure


def _pieces(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


@asynccontextmanager
async def open_s3(
    config: S3Config, context: PluginContext, *, clock: Callable[[], float] = time.time
) -> AsyncIterator[Exporter]:
    """Open the exporter. A bucket that cannot be reached now is no reason to refuse: each export tries again.

    Raises:
        ConfigError: an element is unknown, or pyarrow is missing.
    """
    limiter = trio.CapacityLimiter(2)  # one call, and one that may still be ending after it was cancelled
    encoding = encoding_of(config, context, trio.CapacityLimiter(1))
    bucket = Bucket(
        config,
        lambda region: context.log.info("bucket_opened", bucket=config.bucket_name, region=region),
        context.progressed,
    )
    if config.tls.insecure_skip_verify:
        context.log.warning("server_not_verified", endpoint=bucket.endpoint)
    exporter = _S3Exporter(config, encoding, bucket, context, limiter, clock)
    try:
        await exporter.connect()
        yield exporter
    finally:
        with trio.move_on_after(STOP_SECONDS, shield=True):  # closing says goodbye to a server that may be gone
            await trio.to_thread.run_sync(bucket.end, abandon_on_cancel=True, limiter=limiter)
