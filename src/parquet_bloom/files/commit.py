"""A new file beside its target, and the one moment in which it takes the target's place.

Until `commit`, and if anything at all goes wrong, the target is what it was:

    .NAME.HOST-PID-RANDOM.parquet-bloom   written, read back, fsync, rename, fsync of the folder

The temporary file is locked while its process lives; a later run in the same folder removes
those that a killed one left.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Protocol, Self

from parquet_bloom.errors import ConflictError, StorageError
from parquet_bloom.files.remote import storage_error
from parquet_bloom.files.storage import Source
from parquet_bloom.files.system import copy_range, sync_folder, umask

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".parquet-bloom"
_READ_STEP = 32 << 20  # of a remote file
_WRITE_STEP = 32 << 20
_PASSING_STEP = 8 << 20  # of a file that is not to stay in memory


@dataclass(slots=True)
class Travel:
    """What a new version cost the network: bytes sent, bytes copied inside the store, and why not more of them."""

    sent: int = 0
    copied: int = 0
    why: str = ""


class NewVersion(Protocol):
    """A new file while it is being written: locally, or for another storage. Leaving it gives it up."""

    at: int  # where the next append goes
    travel: Travel

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def append(self, data: bytes) -> None: ...
    def write_at(self, at: int, data: bytes) -> None: ...
    def copy_from(self, at: int, source: Source, start: int, stop: int) -> None: ...
    def flush(self) -> None: ...
    def reopen(self) -> Source: ...
    def discard(self) -> None: ...
    def commit(self, last_check: Callable[[], None] = ...) -> None: ...


class NewFile:
    """A file that is being written and will replace, or become, `target`.

    like       path whose permissions the new file takes (and owner and attributes, if replacing it);
               None: those of any new file
    overwrite  whether target may exist when the new file takes its place
    mode       permissions while it is being written, less the umask
    cached     leave it to the system which of its bytes stay in memory for who reads them next. Those of a data
               set push out what is needed more, and where memory is fresh, as a virtual machine's may be, they
               wait for it. Without sync it always is: only bytes that are on the disk can leave
    """

    def __init__(
        self, target: str, like: str | None, overwrite: bool, sync: bool, mode: int = 0o600, cached: bool = True
    ) -> None:
        self._named = target
        self.target = os.path.realpath(target) if overwrite else target
        self._like = os.path.realpath(like) if like is not None else None
        self._overwrite = overwrite
        self._sync = sync
        self._mode = mode
        self._cached = cached
        self._folder = os.path.dirname(self.target) or "."
        self._made: list[str] = []
        self.fd = -1
        self.path = ""
        self.at = 0  # where the next append goes
        self.travel = Travel()
        try:
            self._make_folder()
            remove_stale(self._folder)
            self._open()
        except BaseException as error:  # a signal too
            self._abandon()
            if isinstance(error, OSError):
                raise storage_error(self.target, error) from error
            raise

    def _make_folder(self) -> None:
        folder = self._folder
        while not os.path.isdir(folder):
            self._made.append(folder)
            folder = os.path.dirname(folder) or "."
        os.makedirs(self._folder, exist_ok=True)

    def _open(self) -> None:
        name = os.path.basename(self.target)[:120]
        while True:
            own = f".{name}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
            self.path = os.path.join(self._folder, own)
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._mode)
            if fcntl is None:
                return
            # Waiting: a run beside us that takes it for stale holds the lock until it has removed it.
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self.fd, fcntl.LOCK_EX)
            if os.fstat(self.fd).st_nlink:  # else another run took it for stale before the lock
                return
            os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._abandon()
        if isinstance(error, OSError):
            raise storage_error(self.target, error) from error

    def _abandon(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self.path:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            self.path = ""
            for folder in self._made:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def append(self, data: bytes) -> None:
        """Write new bytes at the end."""
        self.write_at(self.at, data)
        self.at += len(data)

    def write_at(self, at: int, data: bytes) -> None:
        """Write new bytes at an offset."""
        view = memoryview(data)
        while view:
            n = os.pwrite(self.fd, view, at)
            view, at = view[n:], at + n

    def copy_to(self, at: int, source_fd: int, start: int, stop: int) -> None:
        """Copy [start, stop) of another file to an offset."""
        step = _WRITE_STEP if self._cached else _PASSING_STEP
        while start < stop:
            n = min(stop - start, step)
            copy_range(source_fd, self.fd, start, at, n)
            self._start_writing(at, n)
            start, at = start + n, at + n

    def copy_from(self, at: int, source: Source, start: int, stop: int) -> None:
        """Copy [start, stop) of a source, local or remote, to an offset."""
        if source.fd is not None:
            self.copy_to(at, source.fd, start, stop)
            return
        while start < stop:
            n = min(stop - start, _READ_STEP)
            self.write_at(at, source.read_ranges([(start, n)])[0])
            start, at = start + n, at + n

    def reopen(self) -> Source:
        """Open what was written so far, to check it before it counts."""
        return Source(self.path)

    def _start_writing(self, at: int, n: int) -> None:
        """Let the disk begin with these bytes while we go on; the fsync at the end has less to wait for.

        The same call lets go of what the disk has by now.
        """
        if self._sync and hasattr(os, "posix_fadvise"):
            first = at if self._cached else 0
            with contextlib.suppress(OSError):
                os.posix_fadvise(self.fd, first, at + n - first, os.POSIX_FADV_DONTNEED)

    def discard(self) -> None:
        """Give the new file up; the target stays what it was."""
        self._abandon()

    def flush(self) -> None:
        """Wait until what was written so far is on the disk, unless sync is off."""
        if self._sync:
            os.fsync(self.fd)
            if not self._cached:
                self._start_writing(0, self.at)

    def put(self) -> None:
        """Take the target's place as it is: a new file of ordinary permissions."""
        try:
            self._replace()
        except OSError as error:
            raise storage_error(self.target, error) from error

    def _replace(self) -> None:
        if self._overwrite:
            os.replace(self.path, self.target)
        else:
            self._link()
        self.path = ""

    def commit(self, last_check: Callable[[], None] = lambda: None) -> None:
        """Take the target's place. Raises StorageError; the target is then what it was, or the error says otherwise.

        last_check  called when all bytes are on the disk, right before the rename; may raise
        """
        try:
            self._take_attributes()
            self.flush()
            last_check()
            self._replace()
        except OSError as error:
            raise storage_error(self.target, error) from error
        # Hadoop's checksums are of the old bytes: Spark would refuse the new ones. A symlink has one of its own.
        for folder, base in map(os.path.split, {self.target, self._named}):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, f".{base}.crc"))
        if self._sync:
            try:
                sync_folder(self._folder)
            except OSError as error:
                reason = f"has its new version, but fsync of its folder failed ({error.strerror or error})"
                raise StorageError(self.target, f"{reason}: after a power cut it may be as it was before") from error

    def _link(self) -> None:
        """Become the target unless something has that name by now: link fails where rename would not."""
        try:
            os.link(self.path, self.target)
            os.unlink(self.path)
        except FileExistsError:
            raise ConflictError(self.target, "exists; give --overwrite to replace it") from None
        except OSError:
            if os.path.lexists(self.target):
                raise ConflictError(self.target, "exists; give --overwrite to replace it") from None
            os.rename(self.path, self.target)

    def _take_attributes(self) -> None:
        if self._like is None:
            os.fchmod(self.fd, 0o666 & ~umask())
            return
        old = os.stat(self._like)
        if self._like != self.target:  # a new file is its owner's to write, as whole as the source's is secret
            os.fchmod(self.fd, stat.S_IMODE(old.st_mode) & 0o777 | 0o200)
            return
        os.fchmod(self.fd, stat.S_IMODE(old.st_mode))
        with contextlib.suppress(OSError):  # not the owner, and not root
            os.fchown(self.fd, old.st_uid, old.st_gid)
            os.fchmod(self.fd, stat.S_IMODE(old.st_mode))  # chown clears set-id bits
        if hasattr(os, "listxattr"):
            with contextlib.suppress(OSError):
                for name in os.listxattr(self._like):
                    with contextlib.suppress(OSError):
                        os.setxattr(self.fd, name, os.getxattr(self._like, name))


@contextlib.contextmanager
def new_output(target: str, overwrite: bool) -> Iterator[IO[bytes]]:
    """A file of any kind that takes its place when all of it is written, and never else."""
    if os.path.isdir(target):
        raise StorageError(target, "is a folder")
    if os.path.lexists(target) and not overwrite:
        raise StorageError(target, "exists; give --overwrite to replace it")
    with NewFile(target, target if os.path.exists(target) else os.devnull, overwrite, False, 0o666) as new:
        with os.fdopen(os.dup(new.fd), "wb") as out:
            yield out
            out.flush()
        new.put()


def _host() -> str:
    return socket.gethostname().replace("/", "_").replace("-", "_")[:40] or "host"


def remove_stale(folder: str) -> None:
    """Remove temporary files of runs on this machine that are no longer alive."""
    if fcntl is None:
        return
    for path in glob.glob(os.path.join(glob.escape(folder), f".*.{glob.escape(_host())}-*{SUFFIX}")):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
                os.unlink(path)
            finally:
                os.close(fd)
