"""S3: a new version of an object is put together inside the store; only what is new travels.

    old object   [ body .......................................... ][footer]
                   |  UploadPartCopy, 5 MiB to 5 GiB a part, pinned by the ETag
    new object   [ body .......................................... ][filters][footer']
                                                                      UploadPart

Until CompleteMultipartUpload the target is what it was; on any error the upload is aborted.
Needs boto3 (the extra `s3`); its options are those of pyarrow's file system.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
import threading
from bisect import insort
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from parquet_bloom.errors import ConflictError, StorageError
from parquet_bloom.files.draft import Travel
from parquet_bloom.files.parts import Part, Piece, plan_parts
from parquet_bloom.files.remote import Location, side_by_side, storage_error
from parquet_bloom.files.storage import Source

_KEPT = (
    "CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Expires", "Metadata",
    "ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled", "StorageClass", "WebsiteRedirectLocation",
)  # fmt: skip
_NOTHING_TO_COPY = "no run of unchanged bytes has the 5 MiB that S3 copies at least"
_FROM_ELSEWHERE = "the source is on another storage"
_UNKNOWN_CONDITION = {"NotImplemented", "501"}


class StoredFile:
    """A new version of an object while it is being put together; see NewVersion.

    source  the old one, on the same storage or elsewhere: then all its bytes are sent
    force   also if the old object's tags cannot be read, and so not be kept
    """

    def __init__(self, source: Source, target: Location, overwrite: bool, force: bool) -> None:
        self.at = 0
        self.travel = Travel()
        self._source, self._target = source, target
        self._overwrite, self._force = overwrite, force
        old = source.location.filesystem
        self._inside = old is not None and old.equals(target.filesystem) and source.etag is not None
        self._pieces: list[Piece] = []
        self._writing = threading.Lock()
        self._spool = tempfile.TemporaryFile(prefix="parquet-bloom-")  # noqa: SIM115
        self._spooled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.discard()
        if isinstance(error, OSError):
            raise storage_error(self._target, error) from error

    def discard(self) -> None:
        """Give the new version up; nothing has been asked of the store yet."""
        self._spool.close()

    def flush(self) -> None:
        """There is no disk to wait for."""

    def append(self, data: bytes) -> None:
        self.write_at(self.at, data)
        self.at += len(data)

    def write_at(self, at: int, data: bytes) -> None:
        """New bytes, kept in a temporary file."""
        with self._writing:
            origin, self._spooled = self._spooled, self._spooled + len(data)
            insort(self._pieces, Piece(at, at + len(data), origin, False))
        view = memoryview(data)
        while view:
            n = os.pwrite(self._spool.fileno(), view, origin)
            view, origin = view[n:], origin + n

    def copy_from(self, at: int, source: Source, start: int, stop: int) -> None:
        """Bytes of the old object: they are only noted."""
        assert source is self._source
        if start < stop:
            with self._writing:
                insort(self._pieces, Piece(at, at + stop - start, start, True))

    def pieces(self) -> list[Piece]:
        """The new file as it is so far."""
        joined: list[Piece] = []
        for piece in self._pieces:
            last = joined[-1] if joined else None
            if last and (last.stop, last.copied, last.origin + last.stop - last.at) == (
                piece.at, piece.copied, piece.origin,
            ):  # fmt: skip
                joined[-1] = Piece(last.at, piece.stop, last.origin, last.copied)
            else:
                joined.append(piece)
        return joined

    def reopen(self) -> Source:
        return Assembled(self._target, self.pieces(), self._source, self._spool.fileno())

    def commit(self, last_check: Callable[[], None] = lambda: None) -> None:
        """Put the object together and let it take the target's place. Raises StorageError."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._upload(_client(self._target.filesystem), last_check)
        except ClientError as error:
            told = error.response.get("Error", {})
            code = str(told.get("Code", ""))
            if code in ("PreconditionFailed", "412", "ConditionalRequestConflict"):
                reason = "was changed by another program meanwhile; nothing was written"
                raise ConflictError(self._target, reason) from error
            reason = f"{error.operation_name}: {code} {told.get('Message', '')}".strip().splitlines()[0]
            raise StorageError(self._target, reason) from error
        except BotoCoreError as error:
            raise storage_error(self._target, error) from error

    def _upload(self, client: Any, last_check: Callable[[], None]) -> None:
        bucket, _, key = self._target.path.partition("/")
        where = {"Bucket": bucket, "Key": key}
        kept = self._kept(client) if self._inside else {}
        parts = plan_parts(self.pieces() if self._inside else [Piece(0, self.at, 0, False)])
        upload = {**where, "UploadId": client.create_multipart_upload(**where, **kept)["UploadId"]}
        try:
            with self.reopen() as new:

                def send(number: int) -> dict[str, object]:
                    part = parts[number - 1]
                    if part.origin is None:
                        tag = self._send(client, upload, number, new.read(part.at, part.stop - part.at))
                    else:
                        tag = self._copy(client, upload, number, part)
                    return {"ETag": tag, "PartNumber": number}

                done = side_by_side(send, range(1, len(parts) + 1))
            self.travel.copied = sum(part.stop - part.at for part in parts if part.origin is not None)
            if not self.travel.copied:
                self.travel.why = _NOTHING_TO_COPY if self._inside else _FROM_ELSEWHERE
            self.travel.sent = sum(part.stop - part.at for part in parts if part.origin is None)
            last_check()
            self._complete(client, upload, done)
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell
                client.abort_multipart_upload(**upload)
            raise

    def _send(self, client: Any, upload: dict[str, str], number: int, data: bytes) -> str:
        md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        answer = client.upload_part(**upload, PartNumber=number, Body=data, ContentMD5=md5)
        return str(answer["ETag"])

    def _copy(self, client: Any, upload: dict[str, str], number: int, part: Part) -> str:
        assert part.origin is not None
        bucket, _, key = self._source.location.path.partition("/")
        answer = client.upload_part_copy(
            **upload,
            PartNumber=number,
            CopySource={"Bucket": bucket, "Key": key},
            CopySourceIfMatch=self._source.etag,
            CopySourceRange=f"bytes={part.origin}-{part.origin + part.stop - part.at - 1}",
        )
        return str(answer["CopyPartResult"]["ETag"])

    def _complete(self, client: Any, upload: dict[str, str], done: list[dict[str, object]]) -> None:
        from botocore.exceptions import ClientError, ParamValidationError

        condition: dict[str, object] = {}
        if not self._overwrite:
            condition = {"IfNoneMatch": "*"}
        elif self._inside and self._source.location.path == self._target.path:
            condition = {"IfMatch": self._source.etag}
        finished = {**upload, "MultipartUpload": {"Parts": done}}
        try:
            client.complete_multipart_upload(**finished, **condition)
        except (ClientError, ParamValidationError) as error:
            told = error.response["Error"].get("Code") if isinstance(error, ClientError) else "NotImplemented"
            if not condition or told not in _UNKNOWN_CONDITION:
                raise
            # A store, or a boto3, that knows no such condition; last_check has looked a moment ago.
            client.complete_multipart_upload(**finished)

    def _kept(self, client: Any) -> dict[str, Any]:
        """What the old object has beside its bytes, for the new one. Raises StorageError."""
        from botocore.exceptions import ClientError

        bucket, _, key = self._source.location.path.partition("/")
        head = client.head_object(Bucket=bucket, Key=key)
        if head["ETag"] != self._source.etag:
            raise ConflictError(self._source.path, "was changed by another program meanwhile; nothing was written")
        kept = {name: head[name] for name in _KEPT if head.get(name)}
        try:
            tags = client.get_object_tagging(Bucket=bucket, Key=key).get("TagSet", [])
        except ClientError as error:
            code = error.response["Error"].get("Code", "")
            if code not in {"NotImplemented", "MethodNotAllowed", "501", "405"} and not self._force:
                reason = f"its tags cannot be read ({code}), and so not be kept; give --force to lose them"
                raise StorageError(self._source.path, reason) from error
            tags = []
        if tags:
            from urllib.parse import urlencode

            kept["Tagging"] = urlencode([(tag["Key"], tag["Value"]) for tag in tags])
        return kept


class Assembled(Source):
    """The new object before it exists: old bytes from the old object, new ones from the temporary file."""

    def __init__(self, target: Location, pieces: Sequence[Piece], source: Source, spool: int) -> None:
        self.location, self.path = target, str(target)
        self.requests = self.bytes_read = 0
        self.fd = None
        self.size = pieces[-1].stop if pieces else 0
        self._remote = self._footer = self._outline = self._footer_data = None
        self._counting = threading.Lock()
        self._held, self._tail = [], []
        self._pieces, self._source, self._spool = list(pieces), source, spool

    def _fetch(self, offset: int, length: int) -> bytes:
        parts = []
        for piece in self._pieces:
            start, stop = max(offset, piece.at), min(offset + length, piece.stop)
            if start < stop:
                at = piece.origin + start - piece.at
                parts.append(
                    self._source.read(at, stop - start) if piece.copied else os.pread(self._spool, stop - start, at)
                )
        return parts[0] if len(parts) == 1 else b"".join(parts)


# --- boto3 with the options of pyarrow's file system ----------------------------------------------


def _options(filesystem: Any) -> dict[str, Any]:
    options: dict[str, Any] = filesystem.__reduce__()[1][0]
    return options


def can_speak_for(filesystem: Any) -> bool:
    """Whether boto3 can be given this file system's credentials; a role that pyarrow assumes cannot."""
    return not _options(filesystem).get("role_arn")


def _client(filesystem: Any) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    o = _options(filesystem)
    endpoint = o.get("endpoint_override") or None
    if endpoint is not None and "://" not in endpoint:
        endpoint = f"{o.get('scheme') or 'https'}://{endpoint}"
    settings: dict[str, Any] = {"max_pool_connections": 16}
    if endpoint is not None and not o.get("force_virtual_addressing"):
        settings["s3"] = {"addressing_style": "path"}
    for ours, theirs in (("connect_timeout", "connect_timeout"), ("read_timeout", "request_timeout")):
        if (o.get(theirs) or -1) > 0:
            settings[ours] = o[theirs]
    if o.get("anonymous"):
        settings["signature_version"] = UNSIGNED
    proxy = o.get("proxy_options") or {}
    if proxy.get("host"):
        user = f"{proxy['username']}:{proxy['password']}@" if proxy.get("username") else ""
        url = f"{proxy.get('scheme') or 'http'}://{user}{proxy['host']}:{proxy['port']}"
        settings["proxies"] = {"http": url, "https": url}
    try:
        # Checksums that not every store knows; each part sent has its MD5.
        config = Config(
            request_checksum_calculation="when_required", response_checksum_validation="when_required", **settings
        )
    except TypeError:  # botocore before 1.36, which sends none
        config = Config(**settings)
    return boto3.session.Session().client(
        "s3",
        region_name=o.get("region") or None,
        endpoint_url=endpoint,
        use_ssl=o.get("scheme") != "http",
        verify=o.get("tls_ca_file_path") or None,
        aws_access_key_id=o.get("access_key") or None,
        aws_secret_access_key=o.get("secret_key") or None,
        aws_session_token=o.get("session_token") or None,
        config=config,
    )
