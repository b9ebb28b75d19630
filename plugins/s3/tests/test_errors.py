"""What S3 answers says whether a batch waits or is refused, and what to mend."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)

from flowjoin.api import ConfigError, PermanentExportError, RetryableExportError
from flowjoin_s3._errors import Failure, NoS3Error, failure_of

NOW = datetime(2026, 11, 30, 15, 0, 0, tzinfo=UTC)


def answer(
    status: int, code: str, message: str = "", headers: dict[str, str] | None = None, **more: str
) -> ClientError:
    response: dict[str, Any] = {
        "Error": {"Code": code, "Message": message, **more},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers or {}},
    }
    return ClientError(response, "PutObject")


def failure(exc: Exception) -> Failure:
    return failure_of(exc, bucket="flows", endpoint="https://s3.example", now=NOW)


@pytest.mark.parametrize(
    ("status", "code", "words", "connect_again"),
    [
        (404, "NoSuchBucket", "unable to determine region for bucket 'flows'", True),
        (404, "404", "make sure that it exists at https://s3.example", True),
        (403, "AccessDenied", "may not put objects into bucket 'flows': allow s3:PutObject", True),
        (403, "403", "may not put objects", True),
        (401, "Unauthorized", "may not put objects", True),
        (403, "InvalidAccessKeyId", "the credentials for bucket 'flows' are wrong", True),
        (403, "SignatureDoesNotMatch", "the credentials for bucket 'flows' are wrong", True),
        (400, "ExpiredToken", "have expired and are read again", True),
        (403, "ExpiredToken", "have expired and are read again", True),
        (400, "InvalidToken", "have expired and are read again", True),
        (301, "PermanentRedirect", "is in another region", True),
        (307, "TemporaryRedirect", "is in another region", True),
        (400, "AuthorizationHeaderMalformed", "is in another region", True),
        (503, "SlowDown", "https://s3.example is busy", False),
        (500, "InternalError", "is busy", False),
        (502, "502", "is busy", False),
        (429, "TooManyRequests", "is busy", False),
        (400, "RequestTimeout", "is busy", False),
        (404, "NoSuchUpload", "refuses the object", False),
        (400, "InvalidStorageClass", "refuses the object", False),
        (507, "InsufficientStorage", "is busy", False),
    ],
)
def test_what_can_be_mended_waits(status: int, code: str, words: str, connect_again: bool) -> None:
    found = failure(answer(status, code, "server's words"))
    assert isinstance(found.error, RetryableExportError)
    assert found.error.retry_after is None
    assert words in str(found.error)
    assert f"({code}: server's words)" in str(found.error)
    assert found.connect_again == connect_again


@pytest.mark.parametrize(("status", "code"), [(400, "EntityTooLarge"), (413, "413")])
def test_an_object_too_large_for_the_server_is_refused_for_good(status: int, code: str) -> None:
    found = failure(answer(status, code))
    assert isinstance(found.error, PermanentExportError)
    assert "lower maxRecordsPerFile" in str(found.error)


@pytest.mark.parametrize(
    ("date", "words"),
    [
        ("Mon, 30 Nov 2026 14:30:00 GMT", "this machine's clock is 1800 s ahead of the server's"),
        ("Mon, 30 Nov 2026 15:20:00 GMT", "this machine's clock is 1200 s behind the server's"),
        ("yesterday", "this machine's clock differs too much from the server's"),
        ("", "this machine's clock differs too much from the server's"),
    ],
)
def test_a_wrong_clock_is_measured(date: str, words: str) -> None:
    found = failure(answer(403, "RequestTimeTooSkewed", headers={"date": date}))
    assert isinstance(found.error, RetryableExportError)
    assert words in str(found.error)


def test_the_region_of_a_redirect_is_named() -> None:
    by_header = failure(answer(301, "PermanentRedirect", headers={"x-amz-bucket-region": "eu-north-1"}))
    by_body = failure(answer(400, "AuthorizationHeaderMalformed", Region="eu-south-2"))
    assert "is in eu-north-1, not where" in str(by_header.error)
    assert "is in eu-south-2, not where" in str(by_body.error)


@pytest.mark.parametrize(("given", "seconds"), [("7", 7.0), ("", None), ("soon", None), ("-1", None), ("²", None)])
def test_the_server_may_say_when_to_come_again(given: str, seconds: float | None) -> None:
    error = failure(answer(503, "SlowDown", headers={"retry-after": given})).error
    assert isinstance(error, RetryableExportError)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    ("exc", "words", "connect_again"),
    [
        (EndpointConnectionError(endpoint_url="https://s3.example"), "cannot reach https://s3.example", False),
        (ConnectTimeoutError(endpoint_url="https://s3.example"), "cannot reach https://s3.example", False),
        (ReadTimeoutError(endpoint_url="https://s3.example"), "cannot reach https://s3.example", False),
        (FileNotFoundError(2, "No such file", "ca.pem"), "cannot reach https://s3.example", False),
        (SSLError(endpoint_url="x", error="self-signed"), "tls.ca names the authority", True),
        (NoS3Error("no ETag"), "answers as no S3 does (no ETag): look for a proxy or a portal", True),
        (NoCredentialsError(), "no credentials for bucket 'flows'", True),
        (ConfigError("the file K of a secret cannot be read"), "the file K of a secret cannot be read", True),
    ],
)
def test_what_never_got_an_answer_waits(exc: Exception, words: str, connect_again: bool) -> None:
    found = failure(exc)
    assert isinstance(found.error, RetryableExportError)
    assert words in str(found.error)
    assert found.connect_again == connect_again


def test_long_words_of_a_server_are_cut() -> None:
    assert len(str(failure(answer(400, "X", "y" * 10_000)).error)) < 500
