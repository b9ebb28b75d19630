"""The bucket, as blocking calls of boto3; nothing here knows trio.

A client is made when it is first needed and thrown away when it is of no use any more: then region and credentials
are found out again, from wherever they come.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import boto3  # type: ignore[import-untyped]  # boto3 ships no types
from botocore.config import Config  # type: ignore[import-untyped]  # botocore ships no types
from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # botocore ships no types

from flowjoin.api import Secret
from flowjoin_s3._config import S3Config
from flowjoin_s3._errors import field_of, header_of, status_of, without_user

__all__ = ["Bucket", "Stopped"]

_DEFAULT_REGION: Final = "us-west-2"  # Antrea's
_DEFAULT_REGION_ELSEWHERE: Final = "us-east-1"  # what servers that are not Amazon's call the only region they have

Answer = Mapping[str, Any]


class _S3Client(Protocol):
    """What is used of boto3's client."""

    def head_bucket(self, **parameters: object) -> Answer: ...
    def put_object(self, **parameters: object) -> Answer: ...
    def list_multipart_uploads(self, **parameters: object) -> Answer: ...
    def create_multipart_upload(self, **parameters: object) -> Answer: ...
    def upload_part(self, **parameters: object) -> Answer: ...
    def complete_multipart_upload(self, **parameters: object) -> Answer: ...
    def abort_multipart_upload(self, **parameters: object) -> Answer: ...
    def close(self) -> None: ...
    @property
    def meta(self) -> Any: ...  # of botocore, which has no types


class Stopped(Exception):
    """The one who wanted the object has gone: no more octets of it are sent."""


class _Body(io.BytesIO):
    """Octets to send, until ``stop`` is set; ``progressed`` is told when more are wanted."""

    def __init__(self, octets: bytes, stop: threading.Event, progressed: Callable[[], object]) -> None:
        super().__init__(octets)
        self._stop = stop
        self._progressed = progressed

    def read(self, size: int | None = -1, /) -> bytes:
        if self._stop.is_set():
            raise Stopped
        self._progressed()
        return super().read(size)


class Bucket:
    """One bucket; one call at a time, but for ``close``."""

    def __init__(
        self,
        config: S3Config,
        connected: Callable[[str], object],
        progressed: Callable[[], object] = lambda: None,
    ) -> None:
        """Remember the settings; nothing is asked yet.

        Args:
            connected: told the region of the bucket whenever a client was made, in the thread of the call.
            progressed: told of each step of a call, in its thread.
        """
        self._config = config
        self._connected = connected
        self._progressed = progressed
        self._client: _S3Client | None = None
        self._revealed: Sequence[str] = ()
        self._is_ended = False

    @property
    def endpoint(self) -> str:
        """What is talked to, for people."""
        of_environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        return without_user(self._config.endpoint_url or of_environment or "Amazon S3")

    def put(self, key: str, octets: bytes, content_type: str, stop: threading.Event) -> None:
        """Store an object whole: it is there when this returns, and never in part."""
        properties = self._properties(content_type)
        with self._opened() as client:
            answer = client.put_object(**self._object(key), **properties, Body=_Body(octets, stop, self._progressed))
        field_of(answer, "ETag")  # 200 alone says nothing: portals answer so

    def begin(self, key: str, content_type: str) -> str:
        """Begin an upload in parts; gives its id."""
        with self._opened() as client:
            answer = client.create_multipart_upload(**self._object(key), **self._properties(content_type))
        return field_of(answer, "UploadId")

    def put_part(self, key: str, upload_id: str, number: int, octets: bytes, stop: threading.Event) -> str:
        """Send the n-th part, from 1; gives its tag."""
        part = {"UploadId": upload_id, "PartNumber": number, "Body": _Body(octets, stop, self._progressed)}
        with self._opened() as client:
            answer = client.upload_part(**self._object(key), **part)
        return field_of(answer, "ETag")

    def complete(self, key: str, upload_id: str, tags: Sequence[str]) -> None:
        """Make an object of the parts: it is there when this returns."""
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, start=1)]
        with self._opened() as client:
            answer = client.complete_multipart_upload(
                **self._object(key), UploadId=upload_id, MultipartUpload={"Parts": parts}
            )
        field_of(answer, "ETag")

    def abort(self, key: str, upload_id: str) -> None:
        """Throw the parts away."""
        with self._opened() as client:
            client.abort_multipart_upload(**self._object(key), UploadId=upload_id)

    def abort_unfinished(self, key: str) -> int:
        """Throw away what an earlier try of the same object left, of this process or one before; gives how many."""
        with self._opened() as client:
            answer = client.list_multipart_uploads(Bucket=self._config.bucket_name, Prefix=key)
        uploads = [upload["UploadId"] for upload in answer.get("Uploads", ()) if upload.get("Key") == key]
        for upload_id in uploads:
            self.abort(key, upload_id)
        return len(uploads)

    def connect(self) -> None:
        """Find the bucket's region, if that was not done."""
        with self._opened():
            pass

    def close(self) -> None:
        """Close connections; the next call makes a new client."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def end(self) -> None:
        """Close connections for good, also those that a call which was left alone is about to make."""
        self._is_ended = True
        self.close()

    def _object(self, key: str) -> dict[str, object]:
        return {"Bucket": self._config.bucket_name, "Key": key}

    def _properties(self, content_type: str) -> dict[str, object]:
        config = self._config
        properties = {
            "ContentType": content_type,
            "StorageClass": config.storage_class,
            "ServerSideEncryption": config.server_side_encryption,
            "SSEKMSKeyId": config.kms_key_id,
        }
        return {name: value for name, value in properties.items() if value}

    @contextmanager
    def _opened(self) -> Iterator[_S3Client]:
        try:
            yield self._open()
            self._progressed()
        finally:
            if self._is_ended:  # a call for which nobody waited any more, or that throws parts away at the very end
                self.close()

    def _open(self) -> _S3Client:
        secrets = self._secrets()
        if secrets != self._revealed:
            self.close()  # they were rotated
        if self._client is None:
            self._revealed = secrets
            self._client = self._connect(secrets)
        return self._client

    def _secrets(self) -> Sequence[str]:
        config = self._config
        given: tuple[Secret | None, ...] = (config.access_key_id, config.secret_access_key, config.session_token)
        return [secret.reveal() for secret in given if secret is not None]

    def _connect(self, secrets: Sequence[str]) -> _S3Client:
        session = boto3.session.Session(
            **dict(zip(("aws_access_key_id", "aws_secret_access_key", "aws_session_token"), secrets, strict=False))
        )
        default = _DEFAULT_REGION_ELSEWHERE if self._config.endpoint_url else _DEFAULT_REGION
        hint = self._config.region or os.environ.get("AWS_REGION") or session.region_name or default
        client = self._client_in(session, hint)
        try:
            region = self._region_of_bucket(client) or hint
        except BaseException:
            client.close()
            raise
        if region != hint:
            client.close()
            client = self._client_in(session, region)
        self._connected(region)
        return client

    def _region_of_bucket(self, client: _S3Client) -> str:
        """Empty where the server does not say."""
        try:
            answer = client.head_bucket(Bucket=self._config.bucket_name)
        except ClientError as exc:
            region = header_of(exc.response, "x-amz-bucket-region")
            # 403: who may not look into the bucket may still be allowed to put objects there. 400: credentials that
            # have expired, perhaps. An answer to a look has no body: the one to an object says what is wrong.
            if region or status_of(exc) in (400, 403):
                return region
            raise
        return header_of(answer, "x-amz-bucket-region")

    def _client_in(self, session: Any, region: str) -> _S3Client:
        config = self._config
        is_path_style = bool(config.endpoint_url) if config.path_style is None else config.path_style
        checksums = config.checksum_mode
        if checksums == "auto":
            checksums = "when_required" if config.endpoint_url else "when_supported"
        certificate, key = config.tls.certificate, config.tls.key
        client: _S3Client = session.client(
            "s3",
            region_name=region,
            endpoint_url=config.endpoint_url or None,
            verify=False if config.tls.insecure_skip_verify else str(config.tls.ca) if config.tls.ca else None,
            config=Config(
                s3={"addressing_style": "path" if is_path_style else "virtual" if config.endpoint_url else "auto"},
                # the lane tries again, with back-off, and says so; a second try in here would only delay that
                retries={"total_max_attempts": 1, "mode": "standard"},
                connect_timeout=config.request_timeout,
                read_timeout=config.request_timeout,
                request_checksum_calculation=checksums,
                response_checksum_validation=checksums,
                client_cert=(str(certificate), str(key)) if certificate and key else str(certificate or "") or None,
                user_agent_extra="flowjoin-s3",
            ),
        )
        client.meta.events.register_last("before-parameter-build.s3", _look_without_redirect)
        return client


def _look_without_redirect(model: Any, context: dict[str, Any], **_: object) -> None:
    """Make botocore take a look into the bucket for a request that was redirected already.

    It answers each redirect by looking into the bucket once more to learn the region. Where that look is redirected
    too, without a region, it never ends; what answers so is no S3 but the portal of somebody's network.
    """
    if model.name == "HeadBucket":
        context.setdefault("s3_redirect", {})["redirected"] = True
