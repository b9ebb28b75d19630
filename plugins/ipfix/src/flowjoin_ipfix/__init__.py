"""Exporter plugin: an Exporting Process (RFC 7011) that sends flows to a collector, as IPFIX or JSON."""

from flowjoin.api import ExporterType, hookimpl
from flowjoin_ipfix._check import check
from flowjoin_ipfix._config import IpfixConfig, TlsConfig, patience
from flowjoin_ipfix._exporter import open_ipfix

__all__ = ["IpfixConfig", "TlsConfig", "flowjoin_exporter_types"]


@hookimpl
def flowjoin_exporter_types() -> list[ExporterType]:
    """Hand over the type that ``type: ipfix`` stands for."""
    return [ExporterType("ipfix", IpfixConfig, open_ipfix, api_version=1, check=check, patience=patience)]
