"""A new version of a file while it is being written, wherever it goes.

NewVersion     what all have: bytes at any offset, reading them again, the moment in which they count
  Draft        its bytes are in a local file: it can be held against what was meant (AtomicFile, UploadedFile)
  StoredFile   output.s3: only new bytes are at hand, of the others it is noted which ones they are
  AppendedFile output.append: only new bytes are at hand, the others are in the file already
"""

from __future__ import annotations

import contextlib
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from parquet_bloom.errors import StorageError
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.operating_system import clone, copy_range, require_space
from parquet_bloom.storage.remote import Location, storage_error

_READ_STEP = 32 << 20  # of a remote file
_WRITE_STEP = 32 << 20
_APPENDED_STEP = 4 << 20
_PASSING_STEP = 8 << 20  # of a file that is not to stay in memory
_COMPARE_STEP = 4 << 20


@dataclass(slots=True)
class Transfer:
    """The bytes of a new version: sent, copied inside the store, and why not more of them were copied."""

    sent: int = 0
    copied: int = 0
    why: str = ""


class NewVersion(ABC):
    """A new file while it is being written: locally, or for another storage. Leaving it gives it up.

    at        where the next append goes
    transfer  what it cost the network
    """

    def __init__(self, named: object) -> None:
        self.at = 0
        self.transfer = Transfer()
        self._shown_name = named

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.discard()
        if isinstance(error, OSError):
            raise storage_error(self._shown_name, error) from error

    def append(self, data: bytes) -> None:
        """Write new bytes at the end."""
        self.write_at(self.at, data)
        self.at += len(data)

    @abstractmethod
    def write_at(self, at: int, data: bytes) -> None:
        """Write new bytes at an offset."""

    @abstractmethod
    def copy_from(self, at: int, source: OpenFile, start: int, stop: int) -> None:
        """Copy [start, stop) of a source, local or remote, to an offset."""

    def clone(self, source: OpenFile) -> bool:
        """Begin with all bytes of a source by sharing them on the disk; False where nothing was done."""
        return False

    @abstractmethod
    def flush(self) -> None:
        """Wait until what was written so far is on the disk, where there is one to wait for."""

    def flush_early(self) -> None:
        """`flush`, so that `commit` waits for less, unless it drops from memory what is still to be read back."""
        self.flush()

    @abstractmethod
    def reopen(self) -> OpenFile:
        """Open what was written so far, to check it before it counts."""

    @abstractmethod
    def discard(self) -> None:
        """Give it up; the target stays what it was."""

    @abstractmethod
    def commit(self, last_check: Callable[[], None] = lambda: None) -> None:
        """Take the target's place. Raises StorageError; the target is then what it was, or the error says otherwise.

        last_check  called right before the target changes; may raise
        """


class FileSink:
    """The body of a new version, written from its start to its end: old bytes and new ones in turn.

    It has a place of its own, so other writing may go on beside it.
    """

    def __init__(self, new: NewVersion, source: OpenFile) -> None:
        self._new, self._source = new, source
        self.at = 0

    def copy(self, start: int, stop: int) -> None:
        """Copy the bytes [start, stop) of the old file."""
        self._new.copy_from(self.at, self._source, start, stop)
        self.at += stop - start

    def write(self, data: bytes) -> None:
        """Write bytes that the old file does not have."""
        self._new.write_at(self.at, data)
        self.at += len(data)


class Draft(NewVersion):
    """A new version whose bytes are in a local file, and its name in messages.

    fd        -1 before it is open and after it is closed
    sync      wait for the disk in `flush`, and let it begin before
    cached    keep the new file's pages in the page cache. False drops them once they are on the disk (which needs
              sync), so that a large data set does not evict other data
    remember  note what is written, for `compare`
    """

    def __init__(self, named: object, sync: bool, cached: bool, remember: bool) -> None:
        super().__init__(named)
        self.fd = -1
        self.path = ""  # where there is a name to open it by
        self._sync = sync
        self._cached = cached
        self._remember = remember
        self._waiting = 0  # bytes that were appended since the disk was told of any
        self._written: list[tuple[int, int, int]] = []  # offset, bytes, CRC-32
        self._copied: list[tuple[int, int, int, int]] = []  # offset, descriptor, its range

    def append(self, data: bytes) -> None:
        """Write new bytes at the end; the disk begins with them while more are being made."""
        super().append(data)
        self._waiting += len(data)
        if self._waiting >= _APPENDED_STEP:
            self._start_writing(self.at - self._waiting, self._waiting)
            self._waiting = 0

    def write_at(self, at: int, data: bytes) -> None:
        """Write bytes at an offset, and remember their checksum if they will be compared."""
        if self._remember:
            self._written.append((at, len(data), zlib.crc32(data)))
        view = memoryview(data)
        while view:
            n = os.pwrite(self.fd, view, at)
            view, at = view[n:], at + n

    def copy_to(self, at: int, source_fd: int, start: int, stop: int) -> None:
        """Copy [start, stop) of another file to an offset; it stays open until this one is in its place."""
        if self._remember:
            self._copied.append((at, source_fd, start, stop))
        step = _WRITE_STEP if self._cached else _PASSING_STEP
        while start < stop:
            n = min(stop - start, step)
            copy_range(source_fd, self.fd, start, at, n)
            self._start_writing(at, n)
            start, at = start + n, at + n

    def clone(self, source: OpenFile) -> bool:
        """Share the blocks of a local file, as XFS and btrfs can; this one has to be empty.

        Raises StorageError where that cannot be and a copy has no room.
        """
        if source.fd is None or not clone(source.fd, self.fd):
            require_space(self._shown_name, source.size, self.fd)
            return False
        os.truncate(self.fd, source.size)  # one that is longer by now
        if self._remember:
            self._copied.append((0, source.fd, 0, source.size))
        return True

    def copy_from(self, at: int, source: OpenFile, start: int, stop: int) -> None:
        """Copy within the operating system where the source is local, else by reading it."""
        if source.fd is not None:
            self.copy_to(at, source.fd, start, stop)
            return
        while start < stop:
            n = min(stop - start, _READ_STEP)
            self.write_at(at, source.read_ranges([(start, n)])[0])
            start, at = start + n, at + n

    def reopen(self) -> OpenFile:
        """Open what was written so far, to check it before it counts: this very file, whatever has its name."""
        same = f"/proc/self/fd/{self.fd}"
        return OpenFile(Location(same if os.path.exists(same) else self.path, shown=str(self._shown_name)))

    def _start_writing(self, at: int, n: int) -> None:
        """Let the disk begin with these bytes while we go on; the fsync at the end has less to wait for.

        The same call lets go of what the disk has by now.
        """
        if self._sync:
            first = at if self._cached else 0
            self._leave_memory(first, at + n - first)

    def _leave_memory(self, at: int, n: int) -> None:
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self.fd, at, n, os.POSIX_FADV_DONTNEED)

    def flush(self) -> None:
        """Wait until what was written so far is on the disk, unless sync is off."""
        if self._sync:
            os.fsync(self.fd)
            if not self._cached:
                self._start_writing(0, self.at)

    def flush_early(self) -> None:
        """`flush`, of a file whose pages stay in the page cache."""
        if self._cached:
            self.flush()

    def compare(self) -> None:
        """Read everything back, from the disk, and compare. Raises StorageError; the draft is not to be used then."""
        os.fsync(self.fd)
        self._leave_memory(0, 0)
        for at, n, wanted in self._written:
            if self._sum(at, n) != wanted:
                raise self._differs(at, n)
        for at, source, start, stop in self._copied:
            while start < stop:
                n = min(stop - start, _COMPARE_STEP)
                if read_at(self.fd, at, n) != read_at(source, start, n):
                    raise self._differs(at, n)
                start, at = start + n, at + n

    def _sum(self, at: int, n: int) -> int:
        found, stop = 0, at + n
        while at < stop:
            data = read_at(self.fd, at, min(stop - at, _COMPARE_STEP))
            if not data:
                break
            found, at = zlib.crc32(data, found), at + len(data)
        return found

    def _differs(self, at: int, n: int) -> StorageError:
        reason = f"bytes {at:,} to {at + n:,} of the new version do not read back as they were written"
        return StorageError(self._shown_name, f"{reason}; nothing was changed")


def read_at(fd: int, at: int, length: int) -> bytes:
    """Read `length` bytes of a descriptor, fewer only where it ends. Raises OSError."""
    parts = []
    while length:
        part = os.pread(fd, length, at)
        if not part:
            break
        parts.append(part)
        at, length = at + len(part), length - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """Bytes [at, stop) of the new file.

    copied  they are those at `origin` of the old object; otherwise of our own temporary file
    """

    at: int
    stop: int
    origin: int
    copied: bool


class Assembled:
    """An OpenFile of what is not together yet: old bytes from the old file, new ones from a temporary file.

    spool  its descriptor; the origins of new pieces are offsets in it
    """

    fd: int | None = None
    pinned = stays = one_version = False

    def __init__(self, pieces: Sequence[Extent], source: OpenFile, spool: int) -> None:
        self.size = pieces[-1].stop if pieces else 0
        self._pieces, self._source, self._spool = list(pieces), source, spool

    def read(self, offset: int, length: int) -> bytes:
        """Read as OpenFile does, by the pieces that the bytes lie in."""
        parts = []
        for piece in self._pieces:
            start, stop = max(offset, piece.at), min(offset + length, piece.stop)
            if start < stop:
                at = piece.origin + start - piece.at
                parts.append(
                    self._source.read(at, stop - start) if piece.copied else read_at(self._spool, at, stop - start)
                )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def version(self) -> None:
        """None: it is no version of any file yet."""
        return

    def facts(self) -> None:
        """None, for the same reason."""
        return

    def lasting(self, wait: bool) -> None:
        """None, for the same reason."""
        return

    def etag(self) -> None:
        """None: no store has seen it."""
        return

    def close(self) -> None:
        """Its parts are closed by others."""
