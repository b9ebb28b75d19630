"""The keys under ``exporters: [{type: s3, …}]``."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from flowjoin.api import Batching, Bounds, ConfigError, Duration, ElementRegistry, Key, Octets, Secret
from flowjoin.api.lines import refuse_unknown_elements
from flowjoin.api.tls import client_context

__all__ = ["MIN_PART", "S3Config", "TlsConfig", "batching", "check", "patience"]

MIN_PART: Final = 5 * 1024 * 1024  # S3 refuses smaller parts, but for the last one
_MAX_PART: Final = 5 * 1024 * 1024 * 1024
_MAX_PREFIX: Final = 900  # octets; a key has at most 1024, and the layouts need up to 100
# Amazon's own names are stricter; old buckets and other servers have capitals and underscores.
_BUCKET: Final = re.compile(r"(?!.*\.\.)(?!(?:\d+\.){3}\d+\Z)[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_ACCESS_POINT: Final = re.compile(
    r"arn:aws[a-z-]*:s3[a-z-]*:[a-z0-9-]*:\d*:(?:accesspoint|outpost)[/:][A-Za-z0-9/:._-]+"
)
_REGION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_STORAGE_CLASS: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SILENCES: Final = 6  # of requestTimeout: addresses, redirects to the region, the answer
_ENCRYPTIONS: Final = ("", "AES256", "aws:kms", "aws:kms:dsse")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """How an https endpoint is verified, and what we show it."""

    ca: Annotated[Path | None, "certificates of the authorities to trust, PEM; default: the bundle of botocore"] = None
    insecure_skip_verify: Annotated[bool, "do not verify the server: for experiments"] = False
    certificate: Annotated[Path | None, "our certificate, PEM, where the endpoint asks for one"] = None
    key: Annotated[Path | None, "its key, PEM; default: in the same file"] = None

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ConfigError("is given without tls.certificate; name the certificate's PEM file too", path="key")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Config:
    """Which bucket, what the objects are called, and what is in them.

    The first keys have the names and meanings of Antrea's ``s3Uploader`` section.
    """

    bucket_name: Annotated[str, "the bucket; it must exist"]
    bucket_prefix: Annotated[str, "before each object's key, with a slash between"] = ""
    region: Annotated[str, "a hint; the bucket's own region is found out"] = ""
    compress: Annotated[bool, "csv and jsonLines: gzip; parquet: zstd"] = True
    max_records_per_file: Annotated[int, Bounds(1, 2**31 - 1), "records of an object"] = 1_000_000
    upload_interval: Annotated[Duration, Bounds(1), "how long records gather"] = Duration(60.0)
    max_batch_size: Annotated[Octets, Bounds(64 * 1024), "memory in which the records of an object gather"] = Octets(
        32 * 1024 * 1024
    )

    format: Annotated[Literal["csv", "jsonLines", "parquet"], "parquet needs pip install 'flowjoin-s3[parquet]'"] = (
        "csv"
    )
    layout: Annotated[
        Literal["partitioned", "antrea"], "year=/month=/day=/hour= of the flows' ends, or all in one place"
    ] = "partitioned"
    header: Annotated[bool, "csv: begin each object with a line of column names"] = False
    csv_quoting: Annotated[
        Literal["rfc4180", "antrea"], "csv: quote what needs it, or only labels in single quotes as Antrea does"
    ] = "rfc4180"
    time_format: Annotated[Literal["epoch", "iso8601"], "csv and jsonLines: how times are written"] = "epoch"
    omit_defaults: Annotated[bool, "jsonLines: leave out elements that have their default value"] = False
    elements: Annotated[tuple[str, ...], "Information Elements to add after the usual columns"] = ()

    endpoint_url: Annotated[str, Key("endpointURL"), "of a server that is not Amazon's: https://host:port"] = ""
    path_style: Annotated[bool | None, "bucket in the path, not in the host name; default: with endpointURL"] = None
    checksum_mode: Annotated[
        Literal["auto", "when_supported", "when_required"],
        "checksums after the body, which lesser servers do not understand; auto: not with endpointURL",
    ] = "auto"
    tls: Annotated[TlsConfig, "towards an https endpoint"] = TlsConfig()

    access_key_id: Annotated[
        Secret | None, Key("accessKeyID"), "default: AWS_ACCESS_KEY_ID and whatever else the AWS SDK looks at"
    ] = None
    secret_access_key: Annotated[Secret | None, "comes with accessKeyID"] = None
    session_token: Annotated[Secret | None, "of temporary credentials"] = None

    multipart_threshold: Annotated[Octets, Bounds(MIN_PART, _MAX_PART), "larger objects go in parts"] = Octets(
        32 * 1024 * 1024
    )
    part_size: Annotated[Octets, Bounds(MIN_PART, _MAX_PART), "of each part but the last"] = Octets(16 * 1024 * 1024)
    request_timeout: Annotated[Duration, Bounds(1, 3600), "connecting, and each silence of the server"] = Duration(30.0)
    storage_class: Annotated[str, "such as STANDARD_IA; default: the bucket's"] = ""
    server_side_encryption: Annotated[str, "AES256 or aws:kms; default: the bucket's"] = ""
    kms_key_id: Annotated[str, Key("kmsKeyID"), "for aws:kms"] = ""

    def __post_init__(self) -> None:
        _check_bucket(self.bucket_name)
        _check_prefix(self.bucket_prefix)
        if self.region and not _REGION.fullmatch(self.region):
            problem = f"{self.region[:80]!r} is no name of a region; write one such as eu-central-1"
            raise ConfigError(problem, path="region")
        if self.endpoint_url:
            _check_endpoint(self.endpoint_url)
        if self.storage_class and not _STORAGE_CLASS.fullmatch(self.storage_class):
            problem = f"{self.storage_class[:80]!r} is not of the form STANDARD_IA"
            raise ConfigError(problem, path="storageClass")
        if self.server_side_encryption not in _ENCRYPTIONS:
            given = self.server_side_encryption[:80]
            problem = f"must be AES256, aws:kms or aws:kms:dsse, not {given!r}"
            raise ConfigError(problem, path="serverSideEncryption")
        if (self.access_key_id is None) != (self.secret_access_key is None):
            missing = "accessKeyID" if self.access_key_id is None else "secretAccessKey"
            raise ConfigError("accessKeyID and secretAccessKey are given together or not at all", path=missing)
        if self.session_token is not None and self.access_key_id is None:
            raise ConfigError("comes with accessKeyID and secretAccessKey", path="sessionToken")
        if self.kms_key_id and not self.server_side_encryption.startswith("aws:kms"):
            raise ConfigError("comes with serverSideEncryption: aws:kms", path="kmsKeyID")


def batching(config: S3Config) -> Batching:
    """A lane's batch is one object, or one for each hour of flows' ends in it."""
    return Batching(records=config.max_records_per_file, octets=config.max_batch_size, interval=config.upload_interval)


def patience(config: S3Config) -> float:
    """Longer than a request: to the addresses of a name, one after another, and back to an answer."""
    return _SILENCES * config.request_timeout


def check(config: S3Config, registry: ElementRegistry) -> None:
    """What can be known before the bucket is looked for.

    Raises:
        ConfigError: an element is unknown, pyarrow is missing, or a file of ``tls`` is not what it should be.
    """
    refuse_unknown_elements(config.elements, registry)
    if config.format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ConfigError("parquet needs pyarrow: pip install 'flowjoin-s3[parquet]'", path="format")
    client_context(ca=config.tls.ca, certificate=config.tls.certificate, key=config.tls.key)


def _check_bucket(name: str) -> None:
    if _BUCKET.fullmatch(name) or _ACCESS_POINT.fullmatch(name):
        return
    remedy = "3 to 255 letters, digits, dots and hyphens, or the ARN of an access point"
    plain = name.removeprefix("s3://").rpartition(":::")[2].partition("/")[0]
    if plain != name and _BUCKET.fullmatch(plain):
        remedy = f"write {plain}"
    raise ConfigError(f"{name[:80]!r} is no name of a bucket: {remedy}", path="bucketName")


def _check_prefix(prefix: str) -> None:
    if len(prefix.encode()) > _MAX_PREFIX:
        raise ConfigError(f"is longer than {_MAX_PREFIX} octets; an object's key has at most 1024", path="bucketPrefix")
    if _CONTROL.search(prefix):
        raise ConfigError(f"{prefix[:80]!r} has control characters, which no listing can show", path="bucketPrefix")
    if {".", ".."} & set(prefix.split("/")):
        raise ConfigError(
            f"{prefix[:80]!r} has a part . or .., which some servers take for a directory", path="bucketPrefix"
        )


def _check_endpoint(url: str) -> None:
    try:
        parts = urlsplit(url)
        has_valid_port = parts.port is None or parts.port > 0
    except ValueError:
        raise ConfigError(f"{_shown(url)} is not of the form https://host:port", path="endpointURL") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "holds a user or a password; write accessKeyID and secretAccessKey instead", path="endpointURL"
        )
    is_plain = not (parts.query or parts.fragment or _CONTROL.search(url) or " " in url)
    if not (parts.scheme in ("http", "https") and parts.hostname and has_valid_port and is_plain):
        raise ConfigError(f"{_shown(url)} is not of the form https://host:port", path="endpointURL")


def _shown(url: str) -> str:
    """What stands before an @ may be a secret."""
    return repr(url.rpartition("@")[2][:200])
