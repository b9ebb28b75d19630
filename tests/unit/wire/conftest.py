"""What tests of the codecs share."""

from __future__ import annotations

import pytest

from flowjoin.wire import Decoder, default_registry


@pytest.fixture
def decoder() -> Decoder:
    return Decoder(default_registry())
