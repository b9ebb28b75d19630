"""Capture files and IPFIX Files to whole Messages with their Transport Sessions."""

from flowjoin._collector.capture.reader import (
    CapturedMessage,
    CaptureItem,
    CaptureReader,
    CaptureStatistics,
    SessionEnded,
    open_capture,
)

__all__ = ["CaptureItem", "CaptureReader", "CaptureStatistics", "CapturedMessage", "SessionEnded", "open_capture"]
