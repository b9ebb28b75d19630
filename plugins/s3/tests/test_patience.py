from __future__ import annotations

import threading

from flowjoin.api import Duration
from flowjoin_s3 import S3Config, flowjoin_exporter_types
from flowjoin_s3._client import _Body


def test_its_patience_is_longer_than_a_request() -> None:
    config = S3Config(bucket_name="flows", request_timeout=Duration(600))
    assert flowjoin_exporter_types()[0].patience(config) >= 2 * 600


def test_each_piece_of_an_object_that_is_sent_is_progress() -> None:
    steps: list[None] = []
    body = _Body(bytes(100), threading.Event(), lambda: steps.append(None))
    while body.read(10):
        pass
    assert len(steps) == 11
