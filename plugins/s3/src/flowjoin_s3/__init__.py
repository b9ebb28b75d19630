"""Exporter plugin: each batch of flows is an object in a bucket of S3, or of whatever speaks its protocol."""

from flowjoin.api import ExporterType, hookimpl
from flowjoin_s3._config import S3Config, TlsConfig, batching, check, patience
from flowjoin_s3._exporter import open_s3

__all__ = ["S3Config", "TlsConfig", "flowjoin_exporter_types"]


@hookimpl
def flowjoin_exporter_types() -> list[ExporterType]:
    """Hand over the type that ``type: s3`` stands for."""
    return [ExporterType("s3", S3Config, open_s3, api_version=1, batching=batching, check=check, patience=patience)]
