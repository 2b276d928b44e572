"""Files on other storages: opened with one request, read in ranges, several side by side.

Here two kinds: what pyarrow opens itself (S3, GCS, Azure, HDFS), and what fsspec does. An fsspec file
is never opened: its buffering would fetch megabytes for the fifty bytes of a filter's block.
storage.object_reader has the third: objects through obstore. stores.store_of chooses.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from parquet_bloom.errors import RequestError, StorageError
from parquet_bloom.options import limits
from parquet_bloom.process import ForkSafe
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.version_token import Kept, StoreToken

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Location:
    """A path on a file system.

    filesystem  Objects, or pyarrow's object; None: the local one
    shown       what people are told, such as s3://bucket/key; the path itself unless given
    opened      at most one file, open already: finding out that it is one opened it
    """

    path: str
    filesystem: Any = field(default=None, compare=False)
    shown: str = ""
    opened: list[Handle] = field(default_factory=list, compare=False, repr=False)

    def __str__(self) -> str:
        return self.shown or self.path

    def __fspath__(self) -> str:
        return self.path

    @property
    def is_local(self) -> bool:
        """Whether it is a path of this machine."""
        return self.filesystem is None


class Handle(Protocol):
    """A file that is open for reading, which is safe from several threads.

    fd           the descriptor of a local file, else None
    pinned       whether `version` tells one version of the file from the next
    stays        whether many may be open: no connection or descriptor belongs to it
    one_version  whether each read is of the version that `version` tells, or an error
    """

    size: int
    fd: int | None
    pinned: bool
    stays: bool

    @property
    def one_version(self) -> bool:
        """As above; it may end, in a forked child."""

    def read(self, offset: int, length: int) -> bytes:
        """Fewer bytes only where the file ends."""

    def version(self) -> object:
        """The version token: it changes when the file is replaced or written to."""

    def facts(self) -> Kept | None:
        """The version token to compare a kept one with; None where it does not depend on the bytes."""

    def lasting(self, wait: bool) -> Kept | None:
        """The version token to keep: one equal to it proves equal bytes (storage.version_token); None without any.

        wait  a tenth of a second at most, where the file is too young for one
        """

    def etag(self) -> str | None:
        """The store's name of these very bytes, from its answer when the file was opened; None where it has none."""

    def close(self) -> None:
        """Let go of the file."""


class Beginning:
    """The first bytes of an open file, as a Handle; its opener closes the file itself.

    read  of that file, which may count
    """

    def __init__(self, file: Handle, read: Callable[[int, int], bytes], size: int) -> None:
        self._file, self.read, self.size = file, read, size
        self.fd, self.pinned, self.stays, self.one_version = file.fd, file.pinned, False, file.one_version

    def version(self) -> object:
        """That of the whole file."""
        return self._file.version()

    def facts(self) -> Kept | None:
        """Those of the whole file."""
        return self._file.facts()

    def lasting(self, wait: bool) -> Kept | None:
        """That of the whole file."""
        return self._file.lasting(wait)

    def etag(self) -> str | None:
        """That of the whole file."""
        return self._file.etag()

    def close(self) -> None:
        """Do nothing."""


def storage_error(path: object, error: BaseException) -> StorageError:
    """Say what the operating system or the store said, in one line that names the file."""
    reason = error.strerror if isinstance(error, OSError) else None
    if isinstance(error, FileNotFoundError) and (reason is None or "Path does not exist" in reason):
        reason = "no such file"
    lines = without_secret(reason or str(error)).strip().splitlines()
    return StorageError(path, lines[0] if lines else type(error).__name__)


def fsspec_of(filesystem: Any) -> Any:
    """The fsspec file system that pyarrow's object wraps; None where it is one of pyarrow's own."""
    return getattr(getattr(filesystem, "handler", None), "fs", None)


OBJECTS = ("s3", "gcs", "abfs")  # file systems whose answers name versions of bytes


def outside(folder: str, names: Iterable[str]) -> str | None:
    """The fault of a listing that names something outside its folder; None where all lie in it."""
    wrong = next((name for name in names if not name.startswith(f"{folder}/")), None)
    return None if wrong is None else f"its listing names {wrong!r}, which is not in it"


class ArrowFile:
    """A file that pyarrow opens: HEAD, and a GET for each range.

    pin  so that `version` tells later whether the file has changed since
    """

    fd: int | None = None
    one_version = False

    def __init__(self, filesystem: Any, path: str, pin: bool) -> None:
        kind = getattr(filesystem, "type_name", "")
        self._has_version, self._is_google = kind in OBJECTS, kind == "gcs"
        self.stays = kind in ("s3", "abfs")
        self._info = filesystem.get_file_info(path) if pin and not self._has_version else None
        self.pinned = self._has_version or self._info is not None
        self._file = filesystem.open_input_file(path)
        self.size = self._file.size()

    def read(self, offset: int, length: int) -> bytes:
        """One request."""
        data: bytes = self._file.read_at(length, offset)
        return data

    def version(self) -> object:
        """ETag and time of S3 and Azure, generation of Google's storage, else size and time."""
        if self._info is not None:
            return self._info.size, self._info.mtime_ns
        return self._headers()

    def facts(self) -> Kept | None:
        """Those of objects."""
        return self._headers().facts() if self._has_version else None

    def lasting(self, wait: bool) -> Kept | None:
        """Those of objects."""
        return self.facts()

    def _headers(self) -> StoreToken:
        metadata = self._file.metadata() or {}
        if self._is_google:
            return StoreToken.of_generation(self.size, _header(metadata, "generation"))
        return StoreToken.of_headers(self.size, _header(metadata, "ETag"), _header(metadata, "Last-Modified"))

    def etag(self) -> str | None:
        """That of S3 and Azure, as the store has it."""
        return _header(self._file.metadata() or {}, "ETag") if self._has_version and not self._is_google else None

    def close(self) -> None:
        """Let go of pyarrow's file."""
        self._file.close()


class FsspecFile:
    """A file of fsspec's, read in ranges."""

    fd: int | None = None
    pinned = stays = True
    one_version = False

    def __init__(self, filesystem: Any, path: str) -> None:
        info = filesystem.info(path)
        if info["type"] != "file":
            raise IsADirectoryError(f"is a {info['type']}, not a file")
        if info.get("size") is None:
            raise OSError("the storage does not say its size")
        self._filesystem, self._path = filesystem, path
        self.size = int(info["size"])
        self._version = StoreToken.of_info(getattr(filesystem, "protocol", ""), info)

    def read(self, offset: int, length: int) -> bytes:
        """One request."""
        data: bytes = self._filesystem.cat_file(self._path, start=offset, end=offset + length)
        return data

    def version(self) -> object:
        """The version by the file system's facts."""
        return self._version

    def facts(self) -> Kept | None:
        """The facts of an ETag or a generation, if it has one."""
        return self._version.facts()

    def lasting(self, wait: bool) -> Kept | None:
        """The facts of an ETag or a generation, if it has one."""
        return self._version.facts()

    def etag(self) -> None:
        """None that is known to be one."""
        return

    def close(self) -> None:
        """Do nothing."""


def arrow_filesystem(filesystem: Any) -> Any:
    """The file system of Locations for one of pyarrow or fsspec; None stays None. Raises RequestError."""
    if filesystem is None or isinstance(filesystem, Objects):
        return filesystem
    from pyarrow import fs

    if isinstance(filesystem, fs.FileSystem):
        return filesystem
    if hasattr(filesystem, "cat_file") and hasattr(filesystem, "info"):
        return fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    raise RequestError(f"filesystem is a {type(filesystem).__name__}, not a file system of pyarrow or fsspec")


# --- storages of objects --------------------------------------------------------------------------


class Objects:
    """S3, Google's storage or Azure as a URI or a session names them: what Locations have for a file system.

    storage.object_store reads from it by obstore. `arrow` is pyarrow's file system of the same settings: it writes, a
    data set of pyarrow's reads by it, and so does a process that was forked from one that had obstore loaded.

    type_name  "s3", "gcs" or "abfs", as pyarrow has it
    settings   those that are set, by the names of pyarrow's parameters; credential_kind of Azure is beside them
    buckets    what storage.object_reader keeps of buckets, by name
    """

    def __init__(self, type_name: str, settings: Mapping[str, Any]) -> None:
        self.type_name = type_name
        self.settings = {name: settings[name] for name in sorted(settings) if settings[name] not in (None, "")}
        self.buckets: ForkSafe[dict[str, Any]] = ForkSafe(dict)
        self._arrow: ForkSafe[list[Any]] = ForkSafe(list)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal settings."""
        return self.type_name, *((name, str(value)) for name, value in self.settings.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Objects) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[type[Objects], tuple[str, dict[str, Any]]]:
        return Objects, (self.type_name, self.settings)

    def equals(self, other: object) -> bool:
        """Whether the settings are equal."""
        return self == other

    @property
    def arrow(self) -> Any:
        """pyarrow's file system of these settings, made once. Raises what pyarrow raises."""
        made = self._arrow.own
        if not made:
            with _connections():
                made.append(_arrow_of(self.type_name, self.settings))
        return made[0]


def _arrow_of(type_name: str, settings: Mapping[str, Any]) -> Any:
    from pyarrow import fs

    given = dict(settings)
    if type_name == "s3":
        return fs.S3FileSystem(**given)
    if type_name == "gcs":
        from datetime import timedelta

        return fs.GcsFileSystem(**{"retry_time_limit": timedelta(seconds=_GOOGLE_SECONDS), **given})
    kind = given.pop("credential_kind", None)
    if kind is None:
        return fs.AzureFileSystem(**given)
    from urllib.parse import urlencode

    query = {name: given[name] for name in given if name.endswith("_authority")}
    query |= {"enable_tls": "false" if given.get("blob_storage_scheme") == "http" else "true", "credential_kind": kind}
    return fs.FileSystem.from_uri(f"abfs://{given['account_name']}@data/?{urlencode(query)}")[0]


_GOOGLE_SECONDS = 20  # Google's client tries a request again for a quarter of an hour where no other is asked for


@contextmanager
def _connections() -> Iterator[None]:
    """Let pyarrow make a file system with as many connections as requests that run at a time.

    S3FileSystem takes their number, 25 at least, from the number of threads that pyarrow has for reading when it is
    made (S3FileSystem::Impl::Init of Arrow 26). The threads themselves are not started for that.
    """
    import pyarrow as pa

    threads = pa.io_thread_count()
    if threads >= limits().concurrency:
        yield
        return
    pa.set_io_thread_count(limits().concurrency)
    try:
        yield
    finally:
        pa.set_io_thread_count(threads)


def arrow_of(filesystem: Any) -> Any:
    """pyarrow's file system for that of a Location; None stays None."""
    return filesystem.arrow if isinstance(filesystem, Objects) else filesystem


def arrow_options(filesystem: Any) -> dict[str, Any]:
    """The arguments of a pyarrow file system of objects, by the names of its parameters: those that are set."""
    if isinstance(filesystem, Objects):
        return dict(filesystem.settings)
    options: dict[str, Any] = filesystem.__reduce__()[1][0]
    return options


def s3_endpoint(options: Mapping[str, Any]) -> str | None:
    """The endpoint that is not Amazon's, as a URL; None: Amazon's."""
    endpoint = options.get("endpoint_override") or None
    if endpoint is None or "://" in endpoint:
        return endpoint
    return f"{options.get('scheme') or 'https'}://{endpoint}"


def proxy_of(options: Mapping[str, Any]) -> str | None:
    """The URL of the proxy among the options of S3; None without one."""
    proxy = options.get("proxy_options") or {}
    if isinstance(proxy, str):
        return proxy
    if not proxy.get("host"):
        return None
    from urllib.parse import quote

    user = f"{quote(proxy['username'], '')}:{quote(proxy['password'], '')}@" if proxy.get("username") else ""
    return f"{proxy.get('scheme') or 'http'}://{user}{proxy['host']}:{proxy['port']}"


def _header(metadata: dict[Any, Any], name: str) -> str | None:
    value = metadata.get(name, metadata.get(name.encode()))
    return value.decode() if isinstance(value, bytes) else value


# --- requests side by side ------------------------------------------------------------------------
#
# Two pools of the process: one works on files, the other sends requests for one file.
#
#    in_order      a file each      \  limits().concurrency threads each. A file's thread may wait for requests;
#    side_by_side  a request each   /  a request's thread waits for nothing, so neither can wait for itself
#
# concurrent.futures is for those alone who ask other storages.

_Pools = dict[str, tuple[int, "ThreadPoolExecutor"]]  # kind -> threads, pool
_pools: ForkSafe[_Pools] = ForkSafe(dict)
_own = threading.local()  # the kind of the pool that a thread is of


def _mark(kind: str) -> None:
    _own.kind = kind


def _submit(kind: str, work: Callable[..., R], *arguments: Any) -> Future[R]:
    threads = limits().concurrency
    had = _pools.own.get(kind)
    if had is None or had[0] != threads:
        from concurrent.futures import ThreadPoolExecutor

        had = _pools.own[kind] = threads, ThreadPoolExecutor(threads, f"parquet-bloom-{kind}", _mark, (kind,))
    return had[1].submit(work, *arguments)


def _done_here(work: Callable[..., R], *arguments: Any) -> Future[R]:
    from concurrent.futures import Future

    future: Future[R] = Future()
    try:
        future.set_result(work(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future


def submit(work: Callable[..., R], *arguments: Any) -> Future[R]:
    """Start one request on the pool.

    A call from one of the pool's own threads runs inline: waiting there for the same pool could deadlock.
    """
    if getattr(_own, "kind", None) == "remote":
        return _done_here(work, *arguments)
    return _submit("remote", work, *arguments)


def side_by_side(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Do one request an item; the first error, by the items' order, after the others have ended."""
    if len(items) < 2:
        return [work(item) for item in items]
    from concurrent.futures import wait

    futures = [submit(work, item) for item in items]
    try:
        return [future.result() for future in futures]
    finally:
        wait([future for future in futures if not future.cancel()])


def in_order(
    work: Callable[[T], R], items: Iterable[T], most: int | None = None, settle: bool = False
) -> Generator[Callable[[], R], None, None]:
    """For each item, in order, a function that gives its result or raises its error; work on the next items goes on.

    work    on one file; may itself send requests side by side
    most    items that are worked on, or whose results wait; limits().concurrency unless given. So many results are in
            memory, however many items there are. 0: each is worked on in this thread, when its result is asked for
    settle  whoever closes this early waits for what has begun, as for new versions of files; what only reads is left
            alone, so that Control-C need not wait for a store
    """
    # In a thread of a pool too: waiting for one here could deadlock.
    if most == 0 or getattr(_own, "kind", None) is not None:
        yield from (partial(work, item) for item in items)
        return
    from concurrent.futures import wait

    ahead = limits().concurrency if most is None else min(most, limits().concurrency)
    begun: deque[Future[R]] = deque()
    rest = iter(items)
    try:
        while True:
            begun.extend(_submit("files", work, item) for item in islice(rest, ahead - len(begun)))
            if not begun:
                return
            yield begun[0].result  # it stays among those that have begun while its result is waited for
            begun.popleft()
    finally:
        running = [future for future in begun if not future.cancel()]
        if settle:
            wait(running)


_PATIENCE_S = 0.05  # that the first result of a run waits for others


def in_runs(work: Callable[[T], R], items: Iterable[T], most: int) -> Generator[list[Callable[[], R]], None, None]:
    """The same functions in order, several at a time: those whose results are there, `most` at most.

    For one pass over many results, while work on the next items goes on. A run ends early where the next result is not
    there a moment after the first one. In memory are a run, and at most limits().concurrency + most / 2 results and
    items that are worked on.
    """
    rest = iter(items)
    if getattr(_own, "kind", None) is not None:
        while some := list(islice(rest, most)):
            yield [partial(work, item) for item in some]
        return
    from concurrent.futures import wait

    ahead = limits().concurrency + most // 2  # threads have work while a run is looked at
    begun: deque[Future[R]] = deque()
    try:
        while True:
            run: list[Callable[[], R]] = []
            until: float | None = None
            while len(run) < most:
                begun.extend(_submit("files", work, item) for item in islice(rest, ahead - len(begun)))
                if not begun:
                    break
                patience = None if until is None else max(0.0, until - time.monotonic())
                if not begun[0].done() and not wait([begun[0]], patience).done:
                    break
                until = until or time.monotonic() + _PATIENCE_S
                run.append(begun.popleft().result)
            if not run:
                return
            yield run
    finally:
        for future in begun:
            future.cancel()
