"""S3: a new version of an object is put together inside the store; only what is new travels.

    old object   [ body .......................................... ][footer]
                   |  UploadPartCopy, 5 MiB to 5 GiB a part, pinned by the ETag
    new object   [ body .......................................... ][filters][footer']
                                                                      UploadPart

Until CompleteMultipartUpload the target is what it was; on any error the upload is aborted. A small object of which
nothing can be copied is put with one request, PutObject, on the same condition.
Needs boto3 (the extra `s3`); its options are those of pyarrow's file system.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
import threading
from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import IO, Any

from parquet_bloom.errors import CHANGED, ConflictError, StorageError, parameter
from parquet_bloom.options import limits
from parquet_bloom.output.draft import Assembled, Extent, NewVersion
from parquet_bloom.process import ForkSafe
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location, arrow_options, proxy_of, s3_endpoint, side_by_side, storage_error
from parquet_bloom.storage.stores import store_of

# Of the old object, by the names that HeadObject's answer and CreateMultipartUpload's request share.
_KEPT = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Expires",
    "Metadata",
    "ServerSideEncryption",
    "SSEKMSKeyId",
    "BucketKeyEnabled",
    "StorageClass",
    "WebsiteRedirectLocation",
)
_NOTHING_TO_COPY = "no run of unchanged bytes has the 5 MiB that S3 copies at least"
_FROM_ELSEWHERE = "the source is on another storage"
# Error codes of S3 and of stores like it, as a name or as the HTTP status.
_CONDITION_FAILED = {"PreconditionFailed", "412", "ConditionalRequestConflict"}
_UNKNOWN_CONDITION = {"NotImplemented", "501"}
_PUT_BYTES = 64 << 20  # of an object that is put with one request
_IN_MEMORY = 8 << 20  # of it; the rest waits in a temporary file


class StoredFile(NewVersion):
    """A new version of an object while it is being put together in the store.

    source  the old one, on the same storage or elsewhere: then all its bytes are sent
    force   also if the old object's tags cannot be read, and so not be kept
    """

    def __init__(self, source: OpenFile, target: Location, overwrite: bool, force: bool) -> None:
        super().__init__(target)
        self._source, self._target = source, target
        self._overwrite, self._force = overwrite, force
        same = store_of(source.location).same(store_of(target))
        self._in_same_store = source.is_remote and same and source.etag is not None
        self._pieces: list[Extent] = []
        self._writing = threading.Lock()
        self._spool = tempfile.TemporaryFile(prefix="parquet-bloom-")  # noqa: SIM115
        self._spooled = 0

    def discard(self) -> None:
        """Discard the new version; no request was sent yet."""
        self._spool.close()

    def flush(self) -> None:
        """There is no disk to wait for."""

    def write_at(self, at: int, data: bytes) -> None:
        """New bytes, kept in a temporary file."""
        with self._writing:
            origin, self._spooled = self._spooled, self._spooled + len(data)
            insort(self._pieces, Extent(at, at + len(data), origin, False))
        view = memoryview(data)
        while view:
            n = os.pwrite(self._spool.fileno(), view, origin)
            view, origin = view[n:], origin + n

    def copy_from(self, at: int, source: OpenFile, start: int, stop: int) -> None:
        """Bytes of the old object: they are only noted."""
        assert source is self._source
        if start < stop:
            with self._writing:
                insort(self._pieces, Extent(at, at + stop - start, start, True))

    def pieces(self) -> list[Extent]:
        """The new file as it is so far."""
        joined: list[Extent] = []
        for piece in self._pieces:
            last = joined[-1] if joined else None
            if last and (last.stop, last.copied, last.origin + last.stop - last.at) == (
                piece.at,
                piece.copied,
                piece.origin,
            ):
                joined[-1] = Extent(last.at, piece.stop, last.origin, last.copied)
            else:
                joined.append(piece)
        return joined

    def reopen(self) -> OpenFile:
        """The new object before it exists, as a file that an OpenFile reads like any other of the storage."""
        assembled = Assembled(self.pieces(), self._source, self._spool.fileno())
        return OpenFile(Location(self._target.path, self._target.filesystem, str(self._target), [assembled]))

    def commit(self, last_check: Callable[[], None] = lambda: None) -> None:
        """Put the object together and let it take the target's place. Raises StorageError."""
        try:
            self._upload(client_of(self._target.filesystem), last_check)
        except Exception as error:  # also botocore's parsers, which raise what is no BotoCoreError
            raise self._error_of(error) from error

    def _error_of(self, error: Exception, more: str = "") -> StorageError:
        """The store's error in one line; `more` comes after it."""
        from botocore.exceptions import ClientError

        if isinstance(error, ClientError):
            answer = error.response.get("Error", {})
            code = str(answer.get("Code", ""))
            if code in _CONDITION_FAILED:
                return ConflictError(self._target, CHANGED + more)
            reason = f"{error.operation_name}: {code} {answer.get('Message', '')}".strip().splitlines()[0]
            return StorageError(self._target, reason + more)
        if isinstance(error, StorageError):
            return error if not more else type(error)(error.path, error.reason + more)
        return StorageError(self._target, storage_error(self._target, error).reason + more)

    def _upload(self, client: Any, last_check: Callable[[], None]) -> None:
        bucket, _, key = self._target.path.partition("/")
        where = {"Bucket": bucket, "Key": key}
        # From another storage all bytes are sent, as one piece. `at` is the size by now.
        parts = plan_parts(self.pieces() if self._in_same_store else [Extent(0, self.at, 0, False)])
        if self.at <= _PUT_BYTES and all(part.origin is None for part in parts):
            self._put(client, where, last_check)
            return
        # Metadata and tags first: if they cannot be read, no upload begins.
        kept = self._kept(client) if self._in_same_store else {}
        upload = {**where, "UploadId": self._begin(client, where, kept)}
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
            self.transfer.copied = sum(part.stop - part.at for part in parts if part.origin is not None)
            if not self.transfer.copied:
                self.transfer.why = self._why_sent
            self.transfer.sent = sum(part.stop - part.at for part in parts if part.origin is None)
            last_check()
            self._complete(client, upload, done)
        except BaseException as error:
            left = abort(client, upload)
            if left and isinstance(error, Exception):
                raise self._error_of(error, left) from error
            raise

    @property
    def _why_sent(self) -> str:
        return _NOTHING_TO_COPY if self._in_same_store else _FROM_ELSEWHERE

    @property
    def _condition(self) -> dict[str, object]:
        """The condition on the target under which it changes: the store compares and replaces in one step."""
        # No object of that name, or the one that was read.
        if not self._overwrite:
            return {"IfNoneMatch": "*"}
        if self._in_same_store and self._source.location.path == self._target.path:
            return {"IfMatch": self._source.etag}
        return {}

    def _put(self, client: Any, where: dict[str, str], last_check: Callable[[], None]) -> None:
        """Send all of the new object with one request."""
        md5 = hashlib.md5(usedforsecurity=False)
        with self.reopen() as new, tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="parquet-bloom-") as body:
            for at in range(0, self.at, _IN_MEMORY):
                data = new.read(at, min(_IN_MEMORY, self.at - at))
                md5.update(data)
                body.write(data)
            kept: dict[str, Any] = {}
            if self._in_same_store:
                kept = self._kept(client, last_check)
            else:
                last_check()
            self.transfer.why, self.transfer.sent = self._why_sent, self.at
            sum_of_it = base64.b64encode(md5.digest()).decode()

            def send(**condition: object) -> dict[str, Any]:
                body.seek(0)
                answer: dict[str, Any] = client.put_object(
                    **where, **kept, **condition, Body=body, ContentMD5=sum_of_it
                )
                return answer

            try:
                field_of_answer(_on_condition(send, self._condition), "ETag", self._target)
            except Exception as error:
                # The answer may have got lost, and what was asked for again is refused then: it is done already.
                body.seek(0)
                if not self._is_there(client, where, md5.hexdigest(), error, body):
                    raise

    def _begin(self, client: Any, where: dict[str, str], kept: dict[str, Any]) -> str:
        """Begin an upload. One whose answer got lost has begun too, and goes."""
        try:
            answer = client.create_multipart_upload(**where, **kept)
        except Exception as error:
            if may_have_begun(error):
                raise self._error_of(error, abort_lost(client, where, None)) from error
            raise
        found = field_of_answer(answer, "UploadId", self._target)
        if answer["ResponseMetadata"].get("RetryAttempts"):
            abort_lost(client, where, found)
        return found

    def _send(self, client: Any, upload: dict[str, str], number: int, data: bytes) -> str:
        md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        answer = client.upload_part(**upload, PartNumber=number, Body=data, ContentMD5=md5)
        return field_of_answer(answer, "ETag", self._target)

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
        return field_of_answer(answer.get("CopyPartResult") or {}, "ETag", self._target)

    def _complete(self, client: Any, upload: dict[str, str], done: list[dict[str, object]]) -> None:
        finished = {**upload, "MultipartUpload": {"Parts": done}}
        try:
            answer = _on_condition(partial(client.complete_multipart_upload, **finished), self._condition)
            field_of_answer(answer, "ETag", self._target)  # S3 begins its answer before it knows how it ends
        except Exception as error:
            # The answer may have got lost, and what was asked for again is refused then: it is done already.
            if not self._is_there(client, upload, etag_of([str(part["ETag"]) for part in done]), error):
                raise

    def _is_there(
        self, client: Any, at: dict[str, str], etag: str | None, error: Exception, body: IO[bytes] | None = None
    ) -> bool:
        """Whether the target is the new object, by its ETag. Raises StorageError where that is unknown.

        body  its bytes, which decide where the store gives an ETag that is no sum of them
        """
        from botocore.exceptions import ClientError

        where = {"Bucket": at["Bucket"], "Key": at["Key"]}
        try:
            there = client.head_object(**where)
            found = there.get("ETag", "").strip('"')
            if etag is not None and found == etag:
                return True
            if body is None or there.get("ContentLength") != self.at or there.get("ETag") == self._source.etag:
                return False
            return bool(client.get_object(**where)["Body"].read() == body.read())
        except ClientError as missing:
            if missing.response.get("Error", {}).get("Code") in ("404", "NoSuchKey", "NotFound"):
                return False
        except Exception:  # it is not to be reached any more
            pass
        more = "; it may be the old one or the new one, whole: the store does not answer"
        raise self._error_of(error, more) from error

    def _kept(self, client: Any, last_check: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """The old object's metadata and tags, for the new one. Raises StorageError.

        last_check  is done meanwhile
        The tags are always asked for. HEAD tells how many there are only to those who may read them: a role without
        that right would lose them, and nobody would hear of it.
        """
        from botocore.exceptions import ClientError

        bucket, _, key = self._source.location.path.partition("/")

        def tags_of() -> list[dict[str, str]] | ClientError:
            try:
                return list(client.get_object_tagging(Bucket=bucket, Key=key).get("TagSet", []))
            except ClientError as error:
                return error

        questions: list[Callable[[], Any]] = [partial(client.head_object, Bucket=bucket, Key=key), tags_of, last_check]
        head, tags, _ = side_by_side(lambda ask: ask(), questions)
        if head.get("ETag") != self._source.etag:
            raise ConflictError(self._source.path, CHANGED)
        kept = {name: head[name] for name in _KEPT if head.get(name)}
        if isinstance(tags, ClientError):
            code = tags.response.get("Error", {}).get("Code", "")
            if code not in {"NotImplemented", "MethodNotAllowed", "501", "405"} and not self._force:
                forced = parameter("force", True) + " to lose them"
                reason = f"its tags cannot be read ({code}), and so not be kept; give " + forced
                raise StorageError(self._source.path, reason) from tags
            tags = []
        if tags:
            from urllib.parse import urlencode

            kept["Tagging"] = urlencode([(tag["Key"], tag["Value"]) for tag in tags])
        return kept


def _on_condition(send: Callable[..., dict[str, Any]], condition: dict[str, object]) -> dict[str, Any]:
    """Send a request on a condition; without it to a store, or by a boto3, that knows no such condition."""
    from botocore.exceptions import ClientError, ParamValidationError

    try:
        return send(**condition)
    except (ClientError, ParamValidationError) as error:
        code = error.response["Error"].get("Code") if isinstance(error, ClientError) else "NotImplemented"
        if not condition or code not in _UNKNOWN_CONDITION:
            raise
        return send()  # the last check has looked a moment ago


# --- parts ----------------------------------------------------------------------------------------
#
# How a new object is cut into parts, of which the store copies as many as its limits allow.
#
# pieces   [copied: 12 MiB        ][new: 40 KiB]
# parts    [UploadPartCopy        ][UploadPart ]
#
# pieces   [copied: 2 MiB][new][copied: 12 MiB              ]
# parts    [UploadPart: 5 MiB     ][UploadPartCopy          ]

# S3's limits ("Amazon S3 multipart upload limits"): bytes of a part that is not the last, and parts of an upload.
LEAST, MOST, MOST_PARTS = 5 << 20, 5 << 30, 10_000
_COPY_PART, _SENT_PART = 128 << 20, 16 << 20  # bytes of ours, so that several requests share the work


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes [at, stop) of the new file, as one part of the upload; copied from `origin`, or sent (None)."""

    at: int
    stop: int
    origin: int | None


def plan_parts(pieces: Sequence[Extent], least: int = LEAST) -> list[Part]:
    """Parts for a new file: as much copied as the store's limits allow, the rest sent.

    pieces  in order, without gaps, neighbours that continue each other joined
    A part that is not the last has `least` bytes at least, so what is sent before a copied part may
    have to take some of its bytes along.
    """
    parts: list[Part] = []
    pending = 0  # where begins what is not in a part yet
    for piece in pieces:
        if not piece.copied:
            continue
        # Bytes that wait to be sent need a part of `least` bytes, and take the beginning of this piece along if they
        # are fewer. What then remains of the piece is copied if it is long enough, and else waits too.
        begin = piece.at if piece.at == pending else max(piece.at, pending + least)
        if piece.stop - begin >= least:
            parts += [Part(a, b, None) for a, b in _split(pending, begin, max(least, _SENT_PART))]
            shift = piece.origin - piece.at
            parts += [Part(a, b, a + shift) for a, b in _split(begin, piece.stop, max(least, _COPY_PART))]
            pending = piece.stop
    end = pieces[-1].stop if pieces else 0
    parts += [Part(a, b, None) for a, b in _split(pending, end, max(least, _SENT_PART))]
    return parts if len(parts) <= MOST_PARTS else plan_parts(pieces, 2 * least)


def _split(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    """Parts of about the same size, `size` at most, so that none is too small."""
    n = -(-(stop - start) // size)
    edges = [start + (stop - start) * i // n for i in range(n + 1)] if n else []
    return list(pairwise(edges))


# --- client ---------------------------------------------------------------------------------------
#
# boto3 for S3: a client with the options of pyarrow's file system, and what stores answer, or do not.


def can_speak_for(filesystem: Any) -> bool:
    """Whether boto3 can use this file system's credentials; those of a role that pyarrow assumes cannot be read."""
    return not arrow_options(filesystem).get("role_arn")


class _Clients:
    """The clients of calls that run now, by the id of their file system, which stays beside its client."""

    def __init__(self) -> None:
        self.lock, self.calls = threading.Lock(), 0
        self.made: dict[int, tuple[Any, Any]] = {}


# In a forked child the parent goes on using the connections.
_clients = ForkSafe(_Clients)
_loaders: dict[str | None, Any] = {}  # botocore's, by AWS_DATA_PATH; only client_of uses them, under its lock


@contextmanager
def one_client() -> Iterator[None]:
    """While this is open a file system has one client, as for all files of a call: making one takes 0.2 s of work."""
    clients = _clients.own
    with clients.lock:
        clients.calls += 1
    try:
        yield
    finally:
        with clients.lock:
            clients.calls -= 1
            if not clients.calls:
                clients.made.clear()


def client_of(filesystem: Any) -> Any:
    """boto3's client for Objects of S3 or an S3FileSystem: the same endpoint, region and credentials."""
    clients = _clients.own
    with clients.lock:  # boto3's sessions are not made for several threads
        if (had := clients.made.get(id(filesystem))) is not None:
            return had[1]
        client = _new_client(filesystem)
        if clients.calls:
            clients.made[id(filesystem)] = filesystem, client
        return client


def _session() -> Any:
    """A session of boto3's whose descriptions of services are decoded once in a process: half of a client's work."""
    import boto3
    from botocore.loaders import create_loader
    from botocore.session import get_session

    session = get_session()
    folders = session.get_config_variable("data_path")  # of the user's own descriptions: AWS_DATA_PATH
    loader = _loaders.setdefault(folders, create_loader(folders))
    session.register_component("data_loader", loader)
    made = boto3.session.Session(botocore_session=session)
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)  # to which each session adds boto3's folder
    return made


def _new_client(filesystem: Any) -> Any:
    from botocore import UNSIGNED
    from botocore.config import Config

    o = arrow_options(filesystem)
    endpoint = s3_endpoint(o)
    settings: dict[str, Any] = {"max_pool_connections": limits().concurrency}
    if endpoint is not None and not o.get("force_virtual_addressing"):
        settings["s3"] = {"addressing_style": "path"}
    for ours, theirs in (("connect_timeout", "connect_timeout"), ("read_timeout", "request_timeout")):
        if (o.get(theirs) or -1) > 0:
            settings[ours] = o[theirs]
    if o.get("anonymous"):
        settings["signature_version"] = UNSIGNED
    if (proxy := proxy_of(o)) is not None:
        settings["proxies"] = {"http": proxy, "https": proxy}
    try:
        # Checksums that not every store knows; each part sent has its MD5.
        config = Config(
            request_checksum_calculation="when_required", response_checksum_validation="when_required", **settings
        )
    except TypeError:  # botocore before 1.36, which sends none
        config = Config(**settings)
    return _session().client(
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


# --- answers --------------------------------------------------------------------------------------


def field_of_answer(answer: Mapping[str, Any], name: str, target: Location) -> str:
    """A part of a store's answer. Raises StorageError where there is none."""
    if not answer.get(name):
        raise StorageError(target, f"the store answered without {name}; nothing was changed")
    return str(answer[name])


def etag_of(parts: Sequence[str]) -> str | None:
    """The ETag that S3 gives an object of these parts; None where the parts' ETags are no MD5 sums."""
    bare = [part.strip('"') for part in parts]
    if not all(re.fullmatch("[0-9a-f]{32}", part) for part in bare):
        return None
    return f"{hashlib.md5(bytes.fromhex(''.join(bare)), usedforsecurity=False).hexdigest()}-{len(bare)}"


def abort(client: Any, upload: dict[str, str]) -> str:
    """Abort an upload; returns the text of a failure."""
    from botocore.exceptions import ClientError

    for _ in range(2):
        try:
            answer = client.abort_multipart_upload(**upload)
            if answer["ResponseMetadata"]["HTTPStatusCode"] == 204:  # as S3 says that it is done, and nothing else
                return ""
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ("NoSuchUpload", "404"):
                return ""
        except Exception:  # the first error is the one to tell
            continue
    return f"; its unfinished upload {upload['UploadId']} stays in the store, abort it"


def may_have_begun(error: Exception) -> bool:
    """Whether a request that failed may have been carried out."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return True
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)) >= 500


def abort_lost(client: Any, where: dict[str, str], ours: str | None) -> str:
    """Give up uploads of this object that have no parts: one whose beginning was never answered stays like that.

    Returns what is to be told where that failed.
    """
    try:
        begun = client.list_multipart_uploads(Bucket=where["Bucket"], Prefix=where["Key"]).get("Uploads", [])
        left = [{**where, "UploadId": u["UploadId"]} for u in begun if u["Key"] == where["Key"]]
        lost = [one for one in left if one["UploadId"] != ours and not client.list_parts(**one).get("Parts")]
    except Exception:
        return "; an unfinished upload of it may stay in the store"
    return "".join(abort(client, one) for one in lost)
