"""Locks a file for one writer at a time, and undoes the work of a killed one.

The lock (flock) is on the file itself, not on its name, and ends with its process. Who comes later waits, and then
works on the newest version. Programs that do not take it are noticed at the end all the same, see output.atomic_file.

A run that finds a journal cuts off what lies behind the old end, if all of it is a beginning of what was to come; a
whole tail stays. Bytes may be zero instead: after a power cut a file can have its size, and not yet all its data, and
reads as zeros there. Anything else is an error that says what it saw.

The inode, the old size and the footer before it do not prove that the body is the one that was appended to: another
program may have written other values into it since, in place. Nothing here depends on that, and so the journal has no
checksum of the body. What is cut off is our own bytes, each compared with the journal, and the body stays as it is.
Filters are never put in, or completed, by a journal: a whole tail that stays is one that readers see already, journal
or none, and a program that writes other values into a file and leaves its filters there makes them wrong in any file.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Iterator

from parquet_bloom.errors import CHANGED, ConflictError, FooterError, ParquetBloomError, StorageError
from parquet_bloom.format.footer import TAIL_BYTES, footer_length
from parquet_bloom.format.journal import HEADER_BYTES, Journal, journal_name
from parquet_bloom.output.draft import read_at
from parquet_bloom.output.folder import Folder, clear_beside, try_lock
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.store import journal_path, open_journal

_COMPARE_STEP, _ZEROS_STEP = 4 << 20, 4 << 10
PATIENCE_S = 60.0
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.002, 0.05


@contextlib.contextmanager
def open_for_change(file: Location, to_replace: bool) -> Iterator[OpenFile]:
    """Open a file that is to get a new version.

    to_replace  the new version takes its place: wait until no other run works on one
    Raises StorageError; ConflictError where another run takes longer than a minute.
    """
    stop, pause = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S
    if to_replace and file.is_local:
        # What killed runs left, also where nothing is to be done now. One of them may be a second name of this file,
        # which goes by its lock, and so before we have that.
        clear_beside(file.path, os.path.realpath(file.path))
    while True:
        with OpenFile(file, pin=True) as source:
            if not to_replace or source.fd is None:
                yield source
                return
            if _is_ours(source.fd) and _is_newest(source):
                if recover(source):
                    continue  # it is another version now
                yield source
                return
        if time.monotonic() > stop:
            reason = f"another program holds its lock, as one does that writes it; waited {PATIENCE_S:.0f} seconds"
            raise ConflictError(file, f"{reason}; nothing was written")
        time.sleep(pause)
        pause = min(2 * pause, _LAST_PAUSE_S)


def _is_ours(fd: int) -> bool:
    try:
        return try_lock(fd)
    except OSError:  # a file system, or a system, without locks: the end of the work tells
        return True


def _is_newest(source: OpenFile) -> bool:
    """Whether the path still names what was opened, as it was then."""
    try:
        source.check_unchanged()
    except (ConflictError, OSError):
        return False
    return True


def recover(source: OpenFile) -> bool:
    """Undo a killed append to a file; True if there was one. The file has to be locked.

    That lock is what tells that the append does not go on.

    Raises StorageError where the file is not what that append can have left.
    """
    path = os.path.realpath(source.location.path)
    journal = journal_path(path)
    assert source.fd is not None
    try:
        opened = open_journal(path, os.fstat(source.fd))
    except FileNotFoundError:
        return False
    except OSError as error:
        reason = f"an append to it was cut short, and its journal {journal} cannot be opened"
        raise StorageError(source.path, f"{reason} ({error.strerror or error})") from error
    try:
        with contextlib.closing(Folder(os.path.dirname(path))) as folder:
            check_locked(source)
            _recover(source, path, opened)
            if remove_journal(folder, path, opened):
                folder.sync()
    except OSError as error:
        reason = f"an append to it was cut short, and taking that back failed ({error.strerror or error})"
        raise StorageError(source.path, reason) from error
    except UnlikeError as error:
        reason = f"an append to it was cut short, and its journal {journal} does not fit: {error}; nothing was changed"
        raise StorageError(
            source.path, f"{reason}. Look at the file, and remove the journal when it is right"
        ) from None
    finally:
        os.close(opened)
    return True


class UnlikeError(Exception):
    """A state that no append of ours makes."""


def _recover(source: OpenFile, path: str, opened: int) -> None:
    journal = Journal.decode(read_at(opened, 0, HEADER_BYTES))
    if journal is None:
        raise UnlikeError("it is damaged")
    assert source.fd is not None
    inode = os.fstat(source.fd).st_ino
    if inode != journal.inode:
        if _is_whole(source):
            return  # the torn file is gone, and what has its name needs no journal
        raise UnlikeError(f"it is of inode {journal.inode}, the file is inode {inode}")
    with writable(source, path) as fd:
        if not judge(fd, journal, opened):
            os.truncate(fd, journal.old_size)
        elif crc_of(opened, HEADER_BYTES, journal.tail_length) != journal.tail_crc32:
            raise UnlikeError("the tail in it does not have the checksum that it had")
        os.fsync(fd)


def _is_whole(source: OpenFile) -> bool:
    try:
        source.footer()
    except ParquetBloomError:
        return False
    return True


def judge(fd: int, journal: Journal, opened: int) -> bool:
    """Whether all of a tail lies behind the old end of a file; False: some of it, with zeros for the rest, or nothing.

    opened  the journal's descriptor, with the tail
    Raises UnlikeError where it is anything else, OSError.
    """
    size = os.fstat(fd).st_size
    behind = size - journal.old_size
    if behind < 0:
        raise UnlikeError(f"the file had {journal.old_size:,} bytes before, and has {size:,}")
    if _footer_crc(fd, journal.old_size) != journal.footer_crc32:
        raise UnlikeError(f"the footer before byte {journal.old_size:,} is not the one that was there")
    if behind > journal.tail_length:
        raise UnlikeError(f"{behind:,} bytes lie behind the old end, where {journal.tail_length:,} were to come")
    whole, done = behind == journal.tail_length, 0
    while done < behind:
        n = min(_COMPARE_STEP, behind - done)
        here, there = read_at(fd, journal.old_size + done, n), read_at(opened, HEADER_BYTES + done, n)
        if here != there:
            whole, other = False, _other_byte(here, there)
            if other is not None or len(here) < n:
                at = journal.old_size + done + (len(here) if other is None else other)
                raise UnlikeError(f"{behind:,} bytes lie behind the old end, and from byte {at:,} on they are others")
        done += n
    return whole


def _other_byte(here: bytes, there: bytes) -> int | None:
    """The offset of the first byte that is neither the expected one nor zero."""
    for at in range(0, len(here), _ZEROS_STEP):
        a, b = here[at : at + _ZEROS_STEP], there[at : at + _ZEROS_STEP]
        if a != b and (len(b) < len(a) or any(a)):
            other = next((i for i, byte in enumerate(a) if i >= len(b) or byte not in (0, b[i])), None)
            if other is not None:
                return at + other
    return None


def _footer_crc(fd: int, size: int) -> int | None:
    try:
        length = footer_length(read_at(fd, size - TAIL_BYTES, TAIL_BYTES), size)
    except (FooterError, ValueError):
        return None
    return zlib.crc32(read_at(fd, size - TAIL_BYTES - length, length))


def crc_of(fd: int, at: int, length: int) -> int:
    """The CRC-32 of `length` bytes of a descriptor, or of as many as there are. Raises OSError."""
    crc, stop = 0, at + length
    while at < stop and (data := read_at(fd, at, min(_COMPARE_STEP, stop - at))):
        crc, at = zlib.crc32(data, crc), at + len(data)
    return crc


def remove_journal(folder: Folder, path: str, opened: int) -> bool:
    """Remove the journal of a file, if it is still the one that is open; whether it was. Raises OSError.

    It may have gone with the file, which was replaced, and another append may have put its own there since.
    """
    name = journal_name(os.path.basename(path))
    named = folder.lstat(name)
    if named is None or not os.path.samestat(named, os.fstat(opened)):
        return False
    with contextlib.suppress(FileNotFoundError):
        folder.remove(name)
    return True


@contextlib.contextmanager
def writable(source: OpenFile, path: str) -> Iterator[int]:
    """The file that a source has open, open for writing. Raises ConflictError where the path names another one."""
    assert source.fd is not None
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    try:
        if not os.path.samestat(os.fstat(fd), os.fstat(source.fd)):
            raise ConflictError(path, CHANGED)
        yield fd
    finally:
        os.close(fd)


def check_locked(source: OpenFile) -> None:
    """Raise StorageError unless the file has a lock, of this run."""
    assert source.fd is not None
    try:
        if try_lock(source.fd):
            return
    except OSError:
        pass
    raise StorageError(
        source.path, "cannot be locked, as its file system has no locks; without them nothing is appended"
    )
