"""Objects of S3, Google's storage and Azure through obstore: one request opens one, each later one is of that version.

    open   GET bytes=-65536                       the size (Content-Range), the version, and mostly all of the footer
    read   GET bytes=a-b, If-Match: the ETag      of these very bytes, or FileChangedError
           GET bytes=a-b, ?generation=            the same on Google's storage, whose versions have numbers
    open   HEAD                                   on Azure, which knows no requests for last bytes; nothing after a
                                                  listing, which has size and ETag
    list   LIST                                   names, sizes, and ETags on S3 and Azure

A store without ETags of the bytes is read without If-Match: each answer's size and time are compared. A process that
was forked from one that had obstore loaded cannot use it: its threads stayed behind, and a request would wait for ever.
There pyarrow's file system of the same settings reads.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from parquet_bloom.errors import FileChangedError
from parquet_bloom.process import ForkSafe, Recent
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.object_settings import InexpressibleError, ObjectSettings
from parquet_bloom.storage.remote import ArrowFile, Handle, Location, Objects, arrow_of, outside, submit
from parquet_bloom.storage.version_token import Kept, StoreToken

R = TypeVar("R")
logger = logging.getLogger("parquet_bloom")

TAIL = 64 << 10  # bytes of an object's end that opening it brings
_STORES = 16  # that are kept when no call has them any more, with their connections
_CHANGED = "was changed by another program meanwhile; ask again"


class RefusedError(OSError):
    """A request that failed; its text is the reason, in one line without secrets."""


class WrongAnswerError(RefusedError):
    """An answer that does not fit the request."""

    def __init__(self, reason: str = "the store answered with other bytes than it was asked for") -> None:
        super().__init__(reason)


# --- an open object -------------------------------------------------------------------------------


class ObjectFile:
    """An object of one version, as a Handle.

    told  the version: size, ETag and time, or generation
    tail  its last bytes, if they are known
    """

    fd: int | None = None
    pinned = stays = True

    def __init__(self, bucket: Bucket, at: Location, told: StoreToken, tail: bytes = b"") -> None:
        self._bucket, self._at, self._told, self._tail = bucket, at, told, tail
        self.size = told.size
        self._other: Handle | None = None

    @property
    def one_version(self) -> bool:
        """Whether reads name the version: not where it has no name, and not in a forked child."""
        return is_named(self._told) and not is_forked()

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of this version. Raises FileChangedError, and OSError for what the store says."""
        start = self.size - len(self._tail)
        if offset >= start and offset + length <= self.size:
            skip = offset - start
            return self._tail if skip == 0 and length == len(self._tail) else self._tail[skip : skip + length]
        if is_forked():
            return self._by_pyarrow().read(offset, length)
        try:
            return self._bucket.read(key_of(self._at), offset, length, self._told)
        except _OtherVersionError:
            raise FileChangedError(self._at, _CHANGED) from None

    def _by_pyarrow(self) -> Handle:
        """The same version as pyarrow reads it, in a child of the process that opened it."""
        if self._other is None:
            opened = ArrowFile(arrow_of(self._at.filesystem), self._at.path, True)
            if opened.version() != self._told:
                opened.close()
                raise FileChangedError(self._at, _CHANGED)
            self._other = opened
        return self._other

    def version(self) -> object:
        """Size, ETag and time; of Google's storage size and generation."""
        return self._told

    def facts(self) -> Kept | None:
        """The same, where the ETag is one of the bytes."""
        return self._told.facts()

    def lasting(self, wait: bool) -> Kept | None:
        """The same: other bytes have another ETag, or generation."""
        return self._told.facts()

    def etag(self) -> str | None:
        """The ETag with its quotes, as the store has it."""
        return None if self._told.generation is not None else self._told.told[0]

    def close(self) -> None:
        """Forget the end; no connection belongs to it."""
        self._tail = b""
        if self._other is not None:
            self._other.close()


# --- a bucket -------------------------------------------------------------------------------------


class Listed(NamedTuple):
    """An object of a listing."""

    key: str
    version: StoreToken


class Bucket:
    """A bucket as obstore reads it.

    lists_versions  whether the versions of its listings are those of its answers; None: not known yet
    """

    def __init__(self, settings: ObjectSettings) -> None:
        """Raises InexpressibleError."""
        try:
            self._store = settings.make()
        except ImportError:
            raise
        except BaseException as error:
            raise InexpressibleError(_one_line(error)) from error
        self._knows_suffixes = self.has_suffixes = settings.has_suffixes
        self._has_folders, self.by_generation = settings.has_folders, settings.by_generation
        self.lists_versions: bool | None = None

    def open(self, at: Location, tail: int = TAIL) -> ObjectFile:
        """Open an object by so many bytes of its end. Raises FileNotFoundError, RefusedError."""
        key = key_of(at)
        try:
            told, data = self._end(key, tail) if self._knows_suffixes else self._head(key)
        except WrongAnswerError:
            if not self._knows_suffixes:
                raise
            told, data = self._head(key)
            if told.size:
                self._knows_suffixes = False
                logger.info("the store does not know requests for last bytes; objects cost two requests each")
        if not told.size and self._has_folders and self.is_folder(key):
            raise FileNotFoundError("is a folder")
        return ObjectFile(self, at, told, data)

    def _end(self, key: str, tail: int) -> tuple[StoreToken, bytes]:
        """The version and the last bytes."""
        told, data, start = self._get(key, {"range": {"suffix": tail}}, tail)
        if start != max(0, told.size - tail) or start + len(data) != told.size:
            raise WrongAnswerError
        return told, data

    def _head(self, key: str) -> tuple[StoreToken, bytes]:
        """The version, and all bytes of a small object: an empty one has no last bytes to request."""
        told = self.version(key)
        if not 0 < told.size <= TAIL:
            return told, b""
        now, data, _ = self._get(key, {}, TAIL)
        if now != told or len(data) != told.size:
            raise WrongAnswerError
        return told, data

    def version(self, key: str) -> StoreToken:
        """The version of an object by now; no bytes come. Raises FileNotFoundError, RefusedError."""
        import obstore

        with _errors():
            meta = _interruptible(lambda: obstore.head(self._store, key))
        return self._version_in(meta)

    def read(self, key: str, offset: int, length: int, told: StoreToken) -> bytes:
        """Read a range of one version. Raises RefusedError, _OtherVersionError for an answer made of another one."""
        if not is_named(told):
            name = {}
        else:
            name = {"version": told.generation} if self.by_generation else {"if_match": told.told[0]}
        try:
            now, data, start = self._get(key, {"range": (offset, offset + length), **name}, length)
        except FileNotFoundError:
            if self.by_generation:  # it has another one by now, or is gone
                raise _OtherVersionError from None
            raise RefusedError("no such file") from None
        if now != told:
            raise _OtherVersionError
        if start != offset or len(data) != length:
            raise WrongAnswerError
        return data

    def modified(self, key: str) -> int:
        """When an object was written, in milliseconds since 1970. Raises FileNotFoundError, RefusedError."""
        import obstore

        with _errors():
            meta = _interruptible(lambda: obstore.head(self._store, key))
        return int(meta["last_modified"].timestamp() * 1000)

    def start(self, key: str, most: int) -> bytes:
        """The first bytes of an object. Raises FileNotFoundError, RefusedError."""
        try:
            return self._get(key, {"range": (0, most)}, most)[1]
        except WrongAnswerError:  # as of an empty one, which has no first bytes
            if self.version(key).size:
                raise
            return b""

    def listed(self, prefix: str) -> Iterator[Listed]:
        """Each object below a folder; "" is the whole bucket. Raises FileNotFoundError, RefusedError."""
        import obstore

        with _errors():
            pages = iter(obstore.list(self._store, prefix or None, chunk_size=50))
            while (page := _interruptible(lambda: next(pages, None))) is not None:
                yield from self._of_answer(prefix, page)

    def level(self, prefix: str) -> tuple[list[Listed], list[str]]:
        """Each object in a folder, and the folders in it. Raises FileNotFoundError, RefusedError."""
        import obstore

        with _errors():
            found = _interruptible(lambda: obstore.list_with_delimiter(self._store, prefix or None))
            folders = list(found["common_prefixes"])
            self._check_below(prefix, folders)
            return list(self._of_answer(prefix, found["objects"])), folders

    def is_folder(self, key: str) -> bool:
        """Whether objects lie below a key. Raises RefusedError."""
        import obstore

        with _errors():
            return bool(_interruptible(lambda: next(iter(obstore.list(self._store, key, chunk_size=1)), None)))

    def _of_answer(self, prefix: str, metas: Iterable[Mapping[str, Any]]) -> Iterator[Listed]:
        for meta in metas:
            if meta["path"] == prefix:  # the folder's own object, whose key has a slash behind that
                continue
            self._check_below(prefix, [meta["path"]])
            etag = meta["e_tag"]
            quoted = f'"{etag}"' if etag and not etag.endswith('"') else etag  # Azure's listings have no quotes
            yield Listed(meta["path"], StoreToken.of_headers(meta["size"], quoted, meta["last_modified"]))

    def _check_below(self, prefix: str, keys: Sequence[str]) -> None:
        wrong = outside(prefix, keys) if prefix else None  # "" is the bucket
        if wrong is not None:
            raise WrongAnswerError(wrong)

    def _get(self, key: str, options: dict[str, Any], most: int) -> tuple[StoreToken, bytes, int]:
        """Request an object: its version by the answer, its bytes, `most` of them, and their place."""
        import obstore

        def ask() -> tuple[Any, bytes, tuple[int, int]]:
            # Of a body that never ends no more is read than one piece, which is of this length at least.
            answer = obstore.get(self._store, key, options=options)
            return answer.meta, next(iter(answer.stream(min_chunk_size=most + 1)), b""), answer.range

        with _errors():
            meta, data, (start, stop) = _interruptible(ask)
        if meta["path"] != key or stop - start != len(data):
            raise WrongAnswerError
        return self._version_in(meta), data, start

    def _version_in(self, meta: Mapping[str, Any]) -> StoreToken:
        """The version by an answer, which has one or is refused."""
        if not self.by_generation:
            return StoreToken.of_headers(meta["size"], meta["e_tag"], meta["last_modified"])
        if not re.fullmatch("[0-9]{1,20}", meta["version"] or ""):
            raise RefusedError("the store gives no generation of the object")
        return StoreToken.of_generation(meta["size"], meta["version"])


class _OtherVersionError(Exception):
    pass


def key_of(at: Location) -> str:
    """The object's key: the path without the bucket. Raises InexpressibleError for what obstore takes for a path."""
    key = at.path.partition("/")[2]
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise InexpressibleError("its key has an empty part, or one of dots, which cannot be read here; rename it")
    return key


def is_named(version: StoreToken) -> bool:
    """Whether a request can name this version: by a generation, or an ETag of the bytes."""
    return version.generation is not None or not (version.told[0] or "W/").startswith("W/")


_GENERIC = re.compile(r"Generic \w+ error: ")


def _interruptible(ask: Callable[[], R]) -> R:
    """Send a request so that Control-C ends the waiting: obstore itself handles no signals while it waits."""
    if threading.current_thread() is threading.main_thread():
        return submit(ask).result()
    return ask()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except RefusedError:
        raise
    except Exception as error:
        raise _refusal_of(error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a fault of Rust's code
            raise
        raise RefusedError(_one_line(error)) from error


def _refusal_of(error: Exception) -> Exception:
    """obstore's error as one of ours."""
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError("no such file")
    if type(error).__name__ == "PreconditionError":
        return _OtherVersionError()
    text = str(error)
    asked = "Error performing" in text or "HTTP error" in text  # else the answer is what is wrong
    if "Header missing" in text.splitlines()[0]:
        return RefusedError(_one_line(error))
    if "status code: 416" in text or (_GENERIC.match(text) and not asked):
        return WrongAnswerError(_one_line(error))
    return RefusedError(_one_line(error))


def _one_line(error: BaseException) -> str:
    """The reason of a store or the network, without the address and without secrets of the answer's body."""
    text = str(error)
    status = re.search(r"status code: (\d{3}[ A-Za-z]*)", text)
    code = re.search(r"<Code>([^<]{1,100})</Code>", text)
    message = re.search(r"<Message>([^<]{1,300})</Message>", text)
    if status is not None:
        parts = [one[1].strip() for one in (status, code, message) if one is not None]
        return without_secret(": ".join(parts))
    system = re.findall(r'message: "([^"]{1,100})"', text)
    first = re.sub(r"Error performing \w+ \S+ in \S+( - |, )?", "", text.splitlines()[0] if text else "")
    if "TimedOut" in text or "timed out" in text:
        first = "no answer in time"
    elif system:
        first = system[-1]
    return without_secret(_GENERIC.sub("", first)[:300]) or type(error).__name__


# --- the buckets of a process ---------------------------------------------------------------------


class _Process:
    """The buckets of this process.

    forked  from one that had obstore loaded
    kept    buckets by their settings, those used last at the end
    """

    def __init__(self, forked: bool) -> None:
        self.forked = forked
        self.kept: Recent[tuple[object, ...], Bucket] = Recent(_STORES)
        self.lock = self.kept.lock


# A process that is forked has its parent's obstore. One that was loaded before this module may be so too.
_process = ForkSafe(lambda: _Process("obstore" in sys.modules))
_started_by = sys.modules.get("multiprocessing")
_process.own.forked &= _started_by is not None and _started_by.parent_process() is not None


def is_forked() -> bool:
    """Whether this process cannot use obstore, as another one that it was forked from had it loaded."""
    return _process.own.forked


def bucket_of(objects: Objects, name: str) -> Bucket:
    """A bucket by its name. Raises InexpressibleError for settings that obstore does not have."""
    own = objects.buckets.own
    found = own.get(name)
    if isinstance(found, Bucket):
        return found
    # Credentials may take their time to come. Only those who want this bucket wait for them.
    with own.setdefault(name, threading.Lock()) if found is None else found:
        if not isinstance(found := own[name], Bucket):
            found = own[name] = _made(objects, name)
        bucket: Bucket = found
        return bucket


def _made(objects: Objects, name: str) -> Bucket:
    settings = _settings(objects, name)
    process = _process.own
    with process.lock:
        had = process.kept.find(settings.key)
    made = had or Bucket(settings)
    with process.lock:
        process.kept.keep(settings.key, made)
    return made


def _settings(objects: Objects, bucket: str) -> ObjectSettings:
    """For those alone who read this kind of storage. Raises InexpressibleError."""
    if objects.type_name == "gcs":
        from parquet_bloom.storage import object_google

        return object_google.settings_of(objects.settings, bucket)
    if objects.type_name == "abfs":
        from parquet_bloom.storage import object_azure

        return object_azure.settings_of(objects.settings, bucket)
    from parquet_bloom.storage import object_s3

    return object_s3.settings_of(objects.settings, bucket)
