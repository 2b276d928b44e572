"""Objects of S3, Google's storage and Azure through obstore: one request opens one, each later one is of that version.

    open   GET bytes=-65536                       the size (Content-Range), the version, and mostly all of the footer
    read   GET bytes=a-b, If-Match: the ETag      of these very bytes, or FileChangedError
           GET bytes=a-b, ?generation=            the same on Google's storage, whose versions have numbers
    open   HEAD                                   on Azure, which knows no requests for last bytes; nothing after a
                                                  listing, which has size and ETag

pyarrow asks HEAD first, and its GETs name no version. obstore (the extra `stores`) is a choice, not a need. pyarrow
reads as before, and the logger says why, where

* obstore is not installed, or the options cannot be told in its words (storage.object_settings)
* a first request fails that pyarrow's does not: whatever was told apart wrongly is right again. An answer that does
  not fit the request is an error of the store, though: pyarrow would not notice that bytes are missing
* this process was forked from one that had obstore loaded. Its threads stayed behind; a request would wait for ever
* a key has empty, "." or ".." parts, which obstore takes for those of a path
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from parquet_bloom.errors import FileChangedError
from parquet_bloom.process import ForkSafe, Recent
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.object_settings import InexpressibleError, ObjectSettings
from parquet_bloom.storage.remote import ArrowFile, Handle, Location, arrow_options, submit
from parquet_bloom.storage.version_token import Kept, StoreToken

R = TypeVar("R")
logger = logging.getLogger("parquet_bloom")

TAIL = 64 << 10  # bytes of an object's end that opening it brings
_OTHERS = 4  # times as many objects as are wanted, that a listing goes through
_STORES = 16  # that are kept when no file system has them any more, with their connections
_CHANGED = "was changed by another program meanwhile; ask again"


class RefusedError(Exception):
    """A request that failed; its text is the reason, in one line without secrets.

    may_differ  whether pyarrow's request might not
    """

    def __init__(self, reason: str, may_differ: bool = True) -> None:
        super().__init__(reason)
        self.may_differ = may_differ


class WrongAnswerError(RefusedError):
    """An answer that does not fit the request.

    pyarrow does not read instead: where a body is short, it takes what its memory has for bytes.
    """

    def __init__(self, reason: str = "the store answered with other bytes than it was asked for") -> None:
        super().__init__(reason, may_differ=False)


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
        """Whether reads are by If-Match: not in a forked child."""
        return not self._bucket.is_lost

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of this version. Raises FileChangedError, and OSError for what the store says."""
        start = self.size - len(self._tail)
        if offset >= start and offset + length <= self.size:
            skip = offset - start
            return self._tail if skip == 0 and length == len(self._tail) else self._tail[skip : skip + length]
        if self._bucket.is_lost:
            return self._by_pyarrow().read(offset, length)
        try:
            return self._bucket.read(key_of(self._at), offset, length, self._told)
        except _OtherVersionError:
            raise FileChangedError(self._at, _CHANGED) from None
        except RefusedError as error:
            raise OSError(str(error)) from None

    def _by_pyarrow(self) -> Handle:
        """The same version as pyarrow reads it, in a child of the process that opened it."""
        if self._other is None:
            opened = _by_pyarrow(self._at)
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


class Bucket:
    """A bucket as obstore reads it.

    works  whether an answer came that was right; before that, what fails may be obstore's or our doing
    """

    def __init__(self, settings: ObjectSettings) -> None:
        """Raises InexpressibleError, ImportError."""
        try:
            self._store = settings.make()
        except ImportError:
            raise
        except BaseException as error:
            raise InexpressibleError(_one_line(error)) from error
        self.works = False
        self._given_up = False
        self._knows_suffixes = settings.has_suffixes
        self._has_folders, self.by_generation = settings.has_folders, settings.by_generation

    @property
    def is_lost(self) -> bool:
        """Whether pyarrow reads its objects."""
        return self._given_up or _process.own.forked

    def give_up(self, reason: str) -> None:
        """Let pyarrow read its objects from now on."""
        self._given_up = True
        logger.info("objects are opened by pyarrow, with two requests each: %s", reason)

    def open(self, at: Location, tail: int = TAIL) -> ObjectFile:
        """Open an object by so many bytes of its end. Raises FileNotFoundError, RefusedError."""
        try:
            told, data = self._end(key_of(at), tail) if self._knows_suffixes else self._head(key_of(at))
        except WrongAnswerError:
            if not self._knows_suffixes:
                raise
            told, data = self._head(key_of(at))
            if told.size and not self.works:
                self._knows_suffixes = False
                logger.info("the store does not know requests for last bytes; objects cost two requests each")
        if told.told[0] is None or told.told[0].startswith("W/"):
            raise RefusedError("the store gives no ETag of the bytes")
        if self._has_folders and not told.size:
            raise RefusedError("an empty object, which may be a folder")
        self.works = True
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

    def listed(self, prefix: str) -> Iterator[tuple[str, StoreToken]]:
        """Key and version of each object below a folder; "" is the whole bucket. Raises RefusedError.

        None where versions are generations: obstore takes none from listings.
        """
        import obstore

        if self.by_generation:
            return
        with _errors():
            pages = iter(obstore.list(self._store, prefix or None, chunk_size=50))
            while (page := _interruptible(lambda: next(pages, None))) is not None:
                yield from map(self._entry, page)

    def level(self, prefix: str) -> tuple[list[tuple[str, StoreToken]], list[str]]:
        """Key and version of each object in a folder, and the folders in it. Raises RefusedError."""
        import obstore

        with _errors():
            found = _interruptible(lambda: obstore.list_with_delimiter(self._store, prefix or None))
        return [self._entry(meta) for meta in found["objects"]], list(found["common_prefixes"])

    def _entry(self, meta: Mapping[str, Any]) -> tuple[str, StoreToken]:
        etag = meta["e_tag"]
        quoted = f'"{etag}"' if etag and not etag.endswith('"') else etag  # Azure's listings have no quotes
        return meta["path"], self._version_in({**meta, "e_tag": quoted})

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
    """The object's key: the path without the bucket."""
    return at.path.partition("/")[2]


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
    is_busy = re.search(r"status code: (429|5\d\d)", text) is not None
    return RefusedError(_one_line(error), may_differ=not is_busy)


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


# --- which objects obstore reads ------------------------------------------------------------------


class _Process:
    """The buckets of this process.

    forked  from one that had obstore loaded
    known   id of pyarrow's file system -> a reference to it, and its buckets; None: pyarrow reads them
    making  (id of a file system, bucket) -> the lock of whoever finds that one out
    kept    buckets by their settings, those used last at the end
    """

    def __init__(self, forked: bool) -> None:
        self.forked = forked
        self.lock = threading.Lock()
        self.known: dict[int, tuple[weakref.ref[Any], dict[str, Bucket | None]]] = {}
        self.making: dict[tuple[int, str], threading.Lock] = {}
        self.kept: Recent[tuple[object, ...], Bucket] = Recent(_STORES)


# A process that is forked has its parent's obstore. One that was loaded before this module may be so too.
_process = ForkSafe(lambda: _Process("obstore" in sys.modules))
_started_by = sys.modules.get("multiprocessing")
_process.own.forked &= _started_by is not None and _started_by.parent_process() is not None


def bucket_of(at: Location) -> Bucket | None:
    """The bucket that an object lies in; None: pyarrow reads it."""
    name, _, key = at.path.partition("/")
    if not key or any(part in ("", ".", "..") for part in key.split("/")):
        return None
    return _bucket(at, name)


def _bucket(at: Location, name: str) -> Bucket | None:
    if _process.own.forked or not name:
        return None
    filesystem = at.filesystem
    reference, buckets = _process.own.known.get(id(filesystem), (None, {}))
    if reference is None or reference() is not filesystem or name not in buckets:
        return _find(filesystem, name)
    found = buckets[name]
    return None if found is None or found.is_lost else found


def _find(filesystem: Any, name: str) -> Bucket | None:
    process, at = _process.own, (id(filesystem), name)
    with process.lock:
        reference, buckets = process.known.get(id(filesystem), (None, {}))
        if reference is None or reference() is not filesystem:
            gone = {number for number, (one, _) in process.known.items() if one() is None}
            process.known = {number: one for number, one in process.known.items() if number not in gone}
            process.making = {key: lock for key, lock in process.making.items() if key[0] not in gone}
            buckets = {}
            process.known[id(filesystem)] = weakref.ref(filesystem), buckets
        making = process.making.setdefault(at, threading.Lock())
    # Credentials may take their time to come. Only those who want this bucket wait for them.
    with making:
        if name not in buckets:
            buckets[name] = _made(filesystem, name)
        return buckets[name]


def _made(filesystem: Any, name: str) -> Bucket | None:
    try:
        settings = _settings(filesystem, name)
        with _process.own.lock:
            had = _process.own.kept.find(settings.key)
        found = Bucket(settings) if had is None or had.is_lost else had
    except ImportError:
        logger.debug("objects are opened by pyarrow: obstore is not installed")
        return None
    except InexpressibleError as error:
        logger.info("objects of %s are opened by pyarrow, with two requests each: %s", name, error)
        return None
    with _process.own.lock:
        _process.own.kept.keep(settings.key, found)
    return found


def _settings(filesystem: Any, bucket: str) -> ObjectSettings:
    """For those alone who read this kind of storage. Raises InexpressibleError."""
    options = arrow_options(filesystem)
    if filesystem.type_name == "gcs":
        from parquet_bloom.storage import object_google

        return object_google.settings_of(options, bucket)
    if filesystem.type_name == "abfs":
        from parquet_bloom.storage import object_azure

        return object_azure.settings_of(options, bucket, object_azure.credential_kind(filesystem, options))
    from parquet_bloom.storage import object_s3

    return object_s3.settings_of(options, bucket)


def open_object(at: Location) -> Handle:
    """Open an object. Raises what pyarrow raises, FileNotFoundError, OSError."""
    bucket = bucket_of(at)
    if bucket is None:
        return _by_pyarrow(at)
    worked = bucket.works
    try:
        return bucket.open(at)
    except RefusedError as error:
        if isinstance(error, WrongAnswerError) or (worked and not error.may_differ):
            raise OSError(str(error)) from None
        opened = _by_pyarrow(at)  # whose error is the one to tell
        if not worked and not bucket.works and opened.size:
            bucket.give_up(str(error))
        return opened


def object_version(at: Location) -> StoreToken | None:
    """The version of an object by now, by one request; None: obstore does not read it. Raises FileNotFoundError."""
    bucket = bucket_of(at)
    if bucket is None or not bucket.works:
        return None
    try:
        return bucket.version(key_of(at))
    except RefusedError:
        return None  # pyarrow's error is the one to tell


def object_at(at: Location, version: StoreToken) -> Location:
    """The same location, with the object open already where obstore reads it: no request says what is known."""
    bucket = bucket_of(at) if version.told and version.told[0] and not at.opened else None
    if bucket is None or not bucket.works:
        return at
    return replace(at, opened=[ObjectFile(bucket, at, version)])


def object_by_end(at: Location, tail: int) -> Location:
    """The same location, with the object open already by more of its end than usual, where obstore reads it."""
    bucket = None if at.opened else bucket_of(at)
    if bucket is not None and bucket.works:
        with suppress(RefusedError, FileNotFoundError):  # opening it in the usual way says what is wrong
            return replace(at, opened=[bucket.open(at, tail)])
    return at


def listed_versions(files: Sequence[Location]) -> dict[str, StoreToken]:
    """The versions of objects of one bucket by one listing of the folder that all lie in, by path.

    Nothing where obstore does not read them, the store refuses, or the folder has many times as many objects.
    """
    bucket = bucket_of(files[0]) if files else None
    if bucket is None:
        return {}
    name = files[0].path.partition("/")[0]
    wanted = {key_of(file) for file in files if file.path.startswith(name + "/")}
    folder = posixpath.commonpath([posixpath.dirname(key) for key in wanted])
    found: dict[str, StoreToken] = {}
    with suppress(RefusedError, FileNotFoundError):
        for number, (key, version) in enumerate(bucket.listed(folder)):
            if number > _OTHERS * len(wanted) + 1000:
                return {}
            if key in wanted:
                path = f"{name}/{key}"
                if path in found:  # a listing that shows a key twice says nothing, and may have no end
                    return {}
                found[path] = version
    return found


def versions_below(folder: Location, recursive: bool) -> tuple[dict[str, StoreToken], list[str]]:
    """The versions of all objects below a folder by one listing, by path, and of a level its folders.

    Nothing where obstore cannot list them, or where a bucket that was not read yet has another version of one in its
    answer than in its listing.
    """
    name, _, prefix = folder.path.rstrip("/").partition("/")
    bucket = _bucket(folder, name)
    if bucket is None:
        return {}, []
    found: dict[str, StoreToken] = {}
    with suppress(RefusedError, FileNotFoundError):
        entries, folders = (bucket.listed(prefix), []) if recursive else bucket.level(prefix)
        for key, version in entries:
            # A listing that shows a key twice says nothing, and may have no end; nor does one of keys elsewhere.
            if key in found or (prefix and not key.startswith(f"{prefix}/")):
                return {}, []
            found[key] = version
        if any(prefix and not one.startswith(f"{prefix}/") for one in folders):
            return {}, []
        if found and not bucket.works:
            bucket.works = bucket.version(key := min(found)) == found[key]
        if bucket.works:
            return {f"{name}/{key}": version for key, version in found.items()}, [f"{name}/{one}" for one in folders]
    return {}, []


def _by_pyarrow(at: Location) -> ArrowFile:
    return ArrowFile(at.filesystem, at.path, True)
