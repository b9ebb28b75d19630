"""What tests of the S3 exporter have in common."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from s3_stand_in import Answer, Request

from flowjoin.api import FlowBatch, PermanentExportError, RetryableExportError
from flowjoin.testing import RecordingContext
from flowjoin_s3 import S3Config
from flowjoin_s3._exporter import open_s3

__all__ = ["MakeConfig", "answering", "error_of"]

MakeConfig = Callable[..., S3Config]


def answering(*answers: Answer | None, to: str = "put") -> Callable[[Request], Answer | None]:
    """The requests of that action get these answers, one after the other, then the usual one."""
    rest = list(answers)
    return lambda request: rest.pop(0) if rest and request.action == to else None


async def error_of(config: S3Config, batch: FlowBatch, context: RecordingContext | None = None) -> Exception:
    async with open_s3(config, context or RecordingContext()) as exporter:
        with pytest.raises((RetryableExportError, PermanentExportError)) as caught:
            await exporter.export(batch)
    return caught.value
