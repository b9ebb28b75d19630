"""What a configuration may say, and that Antrea's section says what it always said."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from flowjoin._config import bind_settings, load_config
from flowjoin.api import Batching, ConfigError, Octets, Secret
from flowjoin.wire import default_registry
from flowjoin_s3 import S3Config, TlsConfig, flowjoin_exporter_types
from flowjoin_s3._config import check

SECRET = Secret("env", "A_SECRET")


def config_in(text: str) -> S3Config:
    (entry,) = load_config(text).config.exporters
    assert entry.type == "s3"
    return bind_settings(entry.settings, S3Config)


def test_antreas_section_makes_antreas_objects() -> None:
    assert config_in("s3Uploader: {enable: true, bucketName: flows}") == S3Config(
        bucket_name="flows", layout="antrea", csv_quoting="antrea"
    )


def test_every_key_of_antreas_section_is_understood() -> None:
    text = """
        csvQuoting: rfc4180
        s3Uploader:
          enable: true
          bucketName: flows
          bucketPrefix: west
          region: us-west-2
          recordFormat: CSV
          compress: false
          maxRecordsPerFile: 0
          uploadInterval: 5s
    """
    config = config_in(text)
    assert config == S3Config(
        bucket_name="flows",
        bucket_prefix="west",
        region="us-west-2",
        compress=False,
        max_records_per_file=1_000_000,
        upload_interval=5.0,  # type: ignore[arg-type]  # a Duration is a float
        layout="antrea",
        csv_quoting="rfc4180",
    )


def test_every_key_can_be_written() -> None:
    text = """
        exporters:
          - type: s3
            bucketName: flows
            format: parquet
            layout: partitioned
            elements: [sourcePodName]
            endpointURL: https://minio.example:9000
            pathStyle: false
            checksumMode: when_supported
            tls: {ca: /ca.pem, certificate: /c.pem, key: /k.pem, insecureSkipVerify: true}
            accessKeyID: {env: A}
            secretAccessKey: {file: /secret}
            sessionToken: {file: /token}
            multipartThreshold: 64MiB
            partSize: 8MiB
            maxBatchSize: 16MiB
            requestTimeout: 10s
            storageClass: STANDARD_IA
            serverSideEncryption: "aws:kms"
            kmsKeyID: a-key
    """
    config = config_in(text)
    assert config.endpoint_url == "https://minio.example:9000"
    assert config.path_style is False
    assert config.tls.ca == Path("/ca.pem")
    assert config.part_size == Octets(8 * 1024 * 1024)
    assert config.kms_key_id == "a-key"
    assert config.access_key_id == Secret("env", "A")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"bucket_name": ""}, "bucketName: '' is no name of a bucket"),
        ({"bucket_name": "a/b"}, "bucketName: 'a/b' is no name of a bucket"),
        ({"bucket_name": "a..b"}, "bucketName: 'a..b' is no name of a bucket: 3 to 255 letters"),
        ({"bucket_name": "-flows"}, "bucketName: '-flows' is no name of a bucket"),
        ({"bucket_name": "192.168.1.1"}, "bucketName: '192.168.1.1' is no name of a bucket"),
        ({"bucket_name": "s3://flows/prod"}, "bucketName: 's3://flows/prod' is no name of a bucket: write flows"),
        ({"bucket_name": "arn:aws:s3:::flows"}, "is no name of a bucket: write flows"),
        ({"bucket_name": "flows", "bucket_prefix": "a\nb"}, "has control characters"),
        ({"bucket_name": "flows", "bucket_prefix": "a/../b"}, r"has a part \. or \.\."),
        ({"bucket_name": "flows", "region": "eu west"}, "region: 'eu west' is no name of a region"),
        ({"bucket_name": "flows", "region": "https://x"}, "is no name of a region; write one such as eu-central-1"),
        ({"bucket_name": "flows", "storage_class": "gold"}, "storageClass: 'gold' is not of the form STANDARD_IA"),
        ({"bucket_name": "flows", "server_side_encryption": "rot13"}, "must be AES256, aws:kms or aws:kms:dsse, not"),
        ({"bucket_name": "flows", "endpoint_url": "https://a b"}, "is not of the form https://host:port"),
        ({"bucket_name": "flows", "endpoint_url": "https://a\nb"}, "is not of the form https://host:port"),
        ({"bucket_name": "flows", "bucket_prefix": "ä" * 451}, "bucketPrefix: is longer than 900 octets"),
        ({"bucket_name": "flows", "endpoint_url": "minio:9000"}, "is not of the form https://host:port"),
        ({"bucket_name": "flows", "endpoint_url": "http://user:pw@minio"}, "endpointURL: holds a user or a password"),
        ({"bucket_name": "flows", "endpoint_url": "https://minio:port"}, "is not of the form https://host:port"),
        ({"bucket_name": "flows", "endpoint_url": "https://[::1"}, "is not of the form https://host:port"),
        ({"bucket_name": "flows", "access_key_id": SECRET}, "given together or not at all"),
        ({"bucket_name": "flows", "secret_access_key": SECRET}, "given together or not at all"),
        ({"bucket_name": "flows", "session_token": SECRET}, "sessionToken: comes with accessKeyID"),
        ({"bucket_name": "flows", "kms_key_id": "k"}, "kmsKeyID: comes with serverSideEncryption: aws:kms"),
    ],
)
def test_what_cannot_work_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        S3Config(**keys)


@pytest.mark.parametrize(
    "url", ["http://user:hunter2@minio", "ftp://user:hunter2@minio", "http://user:hunter2@minio:x"]
)
def test_a_password_in_the_endpoint_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="endpointURL") as refused:
        S3Config(bucket_name="flows", endpoint_url=url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    ["flows", "my.flows-1", "Old_Bucket", "a" * 255, "arn:aws:s3:eu-west-1:123456789012:accesspoint/flows"],
)
def test_names_that_buckets_have_are_taken(name: str) -> None:
    assert S3Config(bucket_name=name, bucket_prefix="größe/日本", region="eu-west-1").bucket_name == name


def test_what_can_be_known_before_the_bucket_is_looked_for_is_said(
    tmp_path: Path, certificates: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.pem").touch()
    certificate, key, ca = certificates
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    good = S3Config(bucket_name="flows", tls=TlsConfig(ca=ca, certificate=certificate, key=key))
    registry = default_registry()
    check(good, registry)
    for tls, path, words in (
        (TlsConfig(ca=tmp_path / "none.pem"), "tls.ca", "none.pem cannot be used: No such file or directory"),
        (
            TlsConfig(ca=tmp_path / "empty.pem"),
            "tls.ca",
            "empty.pem cannot be used: it holds no certificate; give a PEM",
        ),
        (TlsConfig(certificate=tmp_path / "none.pem"), "tls.certificate", "No such file or directory"),
        (TlsConfig(certificate=ca), "tls.certificate", "there is no certificate with its key"),
        (TlsConfig(certificate=certificate, key=encrypted), "tls.key", "its key is encrypted and must not be"),
    ):
        with pytest.raises(ConfigError, match=words) as refused:
            check(replace(good, tls=tls), registry)
        assert refused.value.path == path
    with pytest.raises(ConfigError, match=r"elements\[0\]: there is no Information Element 'no'"):
        check(replace(good, elements=("no",)), registry)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"^format: parquet needs pyarrow"):
        check(replace(good, format="parquet"), registry)


def test_a_key_without_a_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^key: is given without tls\.certificate"):
        TlsConfig(key=Path("k.pem"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bucketName: a/b", r"exporters\[0\].*is no name of a bucket"),
        ("{bucketName: flows, partSize: 1MiB}", r"exporters\[0\].partSize"),
        ("{bucketName: flows, uploadInterval: 100ms}", r"exporters\[0\].uploadInterval"),
        ("{bucketName: flows, maxRecordsPerFile: 0}", r"exporters\[0\].maxRecordsPerFile"),
        ("{bucketName: flows, secretAccessKey: plain}", r"a secret is not written into the configuration"),
    ],
)
def test_a_refusal_names_the_key(line: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_in(f"exporters: [{{type: s3, {line.strip('{}')}}}]")


def test_a_lanes_batch_is_an_object() -> None:
    config = S3Config(bucket_name="flows", max_records_per_file=7, max_batch_size=Octets(65536))
    (exporter_type,) = flowjoin_exporter_types()
    assert exporter_type.batching(config) == Batching(records=7, octets=65536, interval=60.0)
