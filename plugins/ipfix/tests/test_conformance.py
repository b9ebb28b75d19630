"""flowjoin-ipfix keeps the exporter contract, over each transport and in both formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from flowjoin.api import ExporterType
from flowjoin.testing import ExporterConformance
from flowjoin_ipfix import IpfixConfig, TlsConfig, flowjoin_exporter_types


class TestTcp(ExporterConformance):
    settings: ClassVar[dict[str, Any]] = {}
    collector_settings: ClassVar[dict[str, Any]] = {}

    @pytest.fixture
    def exporter_type(self) -> ExporterType:
        return flowjoin_exporter_types()[0]

    @pytest.fixture
    def collector(self, shared_collector: Any) -> Any:
        return shared_collector(1, **self.collector_settings)

    @pytest.fixture
    def other(self, shared_collector: Any) -> Any:
        return shared_collector(2, **self.collector_settings)

    @pytest.fixture
    def config(self, collector: Any) -> IpfixConfig:
        return IpfixConfig(address=collector.address, **self.settings)

    @pytest.fixture
    def delivered(self, collector: Any) -> Callable[[], Any]:
        return collector.delivered

    @pytest.fixture
    def other_config(self, other: Any) -> IpfixConfig:
        return IpfixConfig(address=other.address, **self.settings)

    @pytest.fixture
    def other_delivered(self, other: Any) -> Callable[[], Any]:
        return other.delivered

    @pytest.fixture
    def destination_down(self, collector: Any) -> Callable[[], Any]:
        return collector.down


class TestUdp(TestTcp):
    settings: ClassVar[dict[str, Any]] = {"protocol": "udp"}
    collector_settings: ClassVar[dict[str, Any]] = {"protocol": "udp"}


class TestExtraElements(TestTcp):
    settings: ClassVar[dict[str, Any]] = {"include_extra_elements": True, "include_k8s_uids": True}


class TestJsonOverTcp(TestTcp):
    settings: ClassVar[dict[str, Any]] = {"record_format": "JSON"}
    collector_settings: ClassVar[dict[str, Any]] = {"is_json": True}


class TestJsonOverUdp(TestTcp):
    settings: ClassVar[dict[str, Any]] = {"record_format": "JSON", "protocol": "udp"}
    collector_settings: ClassVar[dict[str, Any]] = {"is_json": True, "protocol": "udp"}


class TestMutualTls(TestTcp):
    @pytest.fixture
    def collector(self, shared_collector: Any, certificates: Any) -> Any:
        return shared_collector(1, certificate=str(certificates.server), client_ca=str(certificates.ca))

    @pytest.fixture
    def other(self, shared_collector: Any, certificates: Any) -> Any:
        return shared_collector(2, certificate=str(certificates.server), client_ca=str(certificates.ca))

    @pytest.fixture
    def tls(self, certificates: Any) -> TlsConfig:
        return TlsConfig(ca=certificates.ca, certificate=certificates.client, key=certificates.client)

    @pytest.fixture
    def config(self, collector: Any, tls: TlsConfig) -> IpfixConfig:
        return IpfixConfig(address=collector.address, protocol="tls", tls=tls)

    @pytest.fixture
    def other_config(self, other: Any, tls: TlsConfig) -> IpfixConfig:
        return IpfixConfig(address=other.address, protocol="tls", tls=tls)
