"""What S3's answers mean for a batch; pure.

Nearly everything is about the destination, the network or the credentials: an operator or time will mend it, so the
batch waits and comes again. Only an object that is too large for the server will never be taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from botocore.exceptions import (  # type: ignore[import-untyped]  # botocore ships no types
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]  # botocore ships no types

from flowjoin.api import ConfigError, PermanentExportError, RetryableExportError

__all__ = ["S3_ERRORS", "Failure", "NoS3Error", "failure_of", "field_of", "header_of", "status_of", "without_user"]


class NoS3Error(Exception):
    """An answer lacks what each answer of S3 has: somebody else gave it."""


# Whatever a call of the client may raise that is not a bug. ConfigError: a Secret that cannot be read now.
S3_ERRORS: Final = (BotoCoreError, ClientError, ResponseParserError, OSError, ConfigError, NoS3Error)

_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"})
_WRONG_KEYS: Final = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidClientTokenId"})
_SKEWED: Final = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_ELSEWHERE: Final = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_BUSY: Final = frozenset({"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "OperationAborted"})
_TOO_LARGE: Final = frozenset({"EntityTooLarge", "MaxMessageLengthExceeded"})
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "AllAccessDisabled"})
_LONGEST_TEXT: Final = 300  # characters of the server's own words
_USER: Final = re.compile(r"//[^/\s@]*@")


@dataclass(frozen=True, slots=True)
class Failure:
    """What to do about an error.

    Attributes:
        error: what ``export`` raises.
        connect_again: the client is of no use any more: region and credentials are to be found out again.
    """

    error: RetryableExportError | PermanentExportError
    connect_again: bool


def failure_of(exc: Exception, *, bucket: str, endpoint: str, now: datetime) -> Failure:
    """What an exception of ``S3_ERRORS`` means.

    Args:
        endpoint: what was talked to, for people.
        now: this machine's time, with zone.
    """
    if isinstance(exc, ClientError):
        return _failure_of_answer(exc, bucket=bucket, endpoint=endpoint, now=now)
    if isinstance(exc, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        return Failure(RetryableExportError(f"no credentials for bucket {bucket!r}: {_short(exc)}"), True)
    if isinstance(exc, ConfigError):
        return Failure(RetryableExportError(str(exc)), True)
    if isinstance(exc, NoS3Error):
        problem = f"{endpoint} answers as no S3 does ({exc}): look for a proxy or a portal in between"
        return Failure(RetryableExportError(problem), True)
    if isinstance(exc, SSLError):
        problem = f"cannot trust {endpoint}: {_short(exc)}; tls.ca names the authority of a server of your own"
        return Failure(RetryableExportError(problem), True)
    return Failure(RetryableExportError(f"cannot reach {endpoint}: {_short(exc)}"), False)


def status_of(exc: ClientError) -> int:
    """The HTTP status; 0 where the client made the error itself."""
    return int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def field_of(answer: Mapping[str, Any], name: str) -> str:
    """What S3 always says in an answer that is no error.

    Raises:
        NoS3Error: it does not.
    """
    value = answer.get(name)
    if not value:
        raise NoS3Error(f"no {name}")
    return str(value)


def header_of(response: Mapping[str, Any], name: str) -> str:
    """A header of an answer, whether it was an error or not; empty without it."""
    return str(response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get(name, ""))


def _failure_of_answer(exc: ClientError, *, bucket: str, endpoint: str, now: datetime) -> Failure:
    error = exc.response.get("Error", {})
    code, status = str(error.get("Code", "")), status_of(exc)
    words = f"{code}: {str(error.get('Message', ''))[:_LONGEST_TEXT]}".removesuffix(": ")
    if code in _TOO_LARGE or status == 413:
        problem = f"{endpoint} takes no object so large ({words}); lower maxRecordsPerFile or multipartThreshold"
        return Failure(PermanentExportError(problem), False)
    connect_again = True
    if code in _NO_BUCKET or (status == 404 and code == "404"):
        problem = (
            f"unable to determine region for bucket {bucket!r}, or it is gone: make sure that it exists at {endpoint} "
            f"and set region appropriately ({words})"
        )
    elif code in _EXPIRED:
        problem = f"the credentials for bucket {bucket!r} have expired and are read again ({words})"
    elif code in _WRONG_KEYS:
        problem = f"the credentials for bucket {bucket!r} are wrong ({words})"
    elif code in _SKEWED:
        problem, connect_again = _clock_problem(exc, now), False
    elif code in _ELSEWHERE or status in (301, 302, 307):
        region = header_of(exc.response, "x-amz-bucket-region") or error.get("Region") or "another region"
        problem = f"bucket {bucket!r} is in {region}, not where {endpoint} looks ({words})"
    elif status in (401, 403):
        problem = f"these credentials may not put objects into bucket {bucket!r}: allow s3:PutObject ({words})"
    else:
        connect_again = False
        is_busy = code in _BUSY or status >= 500 or status == 429
        problem = f"{endpoint} is busy ({words})" if is_busy else f"{endpoint} refuses the object ({words})"
    return Failure(RetryableExportError(problem, retry_after=_retry_after(exc)), connect_again)


def _clock_problem(exc: ClientError, now: datetime) -> str:
    try:
        seconds = (now - parsedate_to_datetime(header_of(exc.response, "date"))).total_seconds()
    except (TypeError, ValueError):  # no date, or none that can be read
        return "this machine's clock differs too much from the server's: set it, for example with chrony"
    side = "ahead of" if seconds > 0 else "behind"
    return f"this machine's clock is {abs(seconds):.0f} s {side} the server's: set it, for example with chrony"


def _retry_after(exc: ClientError) -> float | None:
    text = header_of(exc.response, "retry-after")
    return float(text) if text.isascii() and text.isdecimal() else None


def _short(exc: Exception) -> str:
    return without_user(str(exc))[:_LONGEST_TEXT]


def without_user(text: str) -> str:
    """Without user and password of any URL in it: those of the environment's endpoints and proxies may have some."""
    return _USER.sub("//***@", text)
