"""The source that the guide shows passes the kit. docs/how-to/write-a-source.md shows this too."""

import json
import socket
from pathlib import Path

import pytest
import trio
from datagram_source import NAMES, Config, flowjoin_source_types

from flowjoin.api import SourceType
from flowjoin.testing import SourceConformance, SourceExample


class TestDatagrams(SourceConformance):
    @pytest.fixture
    def source_type(self) -> SourceType:
        return flowjoin_source_types()[0]

    @pytest.fixture
    def config(self, tmp_path: Path) -> Config:
        return Config(path=f"{tmp_path}/flows")

    @pytest.fixture
    def example(self, config: Config) -> SourceExample:
        flow = dict(zip(NAMES, (1700000000, "192.0.2.1", "192.0.2.2", 6, 1500), strict=True))

        async def send() -> None:
            with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                for text in ("no flow", json.dumps(flow)):
                    await sender.sendto(text.encode(), config.path)

        return SourceExample(rows=[flow], happen=send)

    @pytest.fixture
    def unusable_config(self) -> Config:
        return Config(path="/no/such/directory/flows")

    @pytest.mark.xfail(strict=True, reason="it is shown in a guide, and in no distribution")
    async def test_entry_point(self, subject):
        await super().test_entry_point(subject)
