"""Bytes behind a file that keeps its inode: journal first, so that what is cut short can be undone.

    .NAME.parquet-bloom-journal   written and on the disk, with all new bytes in it (formats.journal)
    NAME                          the new bytes but the last 8; on the disk; then these, on the disk
    .NAME.parquet-bloom-journal   goes

The last 8 bytes are length and magic of the new footer: until they are there the file is torn, and is known to be.
A run that finds a journal cuts off what lies behind the old end, if all of it is a beginning of what was to come; a
whole tail stays. Anything else is an error that says what it saw. Unlike a new file it is not atomic for other
programs: who opens the file meanwhile by its real size finds no footer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Callable, Iterator

from parquet_bloom.errors import ConflictError, FooterError, StorageError
from parquet_bloom.formats.journal import HEADER_BYTES, Journal, journal_name
from parquet_bloom.formats.metadata.footer import TAIL_BYTES, footer_length
from parquet_bloom.storage.operating_system import copy_range
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.storage.source import Source
from parquet_bloom.storage.workers import signals_wait
from parquet_bloom.storage.writing.draft import Assembled, NewVersion, read_at
from parquet_bloom.storage.writing.folder import Folder
from parquet_bloom.storage.writing.litter import try_lock
from parquet_bloom.storage.writing.new_file import NewFile
from parquet_bloom.storage.writing.renaming import CHANGED, Checksums, followed
from parquet_bloom.storage.writing.s3_parts import Extent

_COMPARE_STEP = 4 << 20


class AppendedFile(NewVersion):
    """A file that gets new bytes behind its end; nothing of it is touched before `commit`.

    source  the file, local, open and locked (storage.writing.file_lock)
    Raises StorageError, also where the file has other hard links.
    """

    def __init__(self, source: Source, target: Location) -> None:
        super().__init__(target)
        self._source = source
        self._named = os.path.abspath(target.path)
        self._path = followed(self._named)
        _check_links(source)
        _check_locked(source)
        folder, name = os.path.split(self._path)
        self._journal_path = os.path.join(folder, journal_name(name))
        self._journal = NewFile(self._journal_path, self._path, overwrite=False, sync=True)

    def discard(self) -> None:
        """Give the new bytes up; the file stays what it was."""
        self._journal.discard()

    def clone(self, source: Source) -> bool:
        """The old bytes are there already."""
        return source is self._source

    def write_at(self, at: int, data: bytes) -> None:
        """New bytes, kept in what will be the journal."""
        self._journal.write_at(HEADER_BYTES + at - self._source.size, data)

    def copy_from(self, at: int, source: Source, start: int, stop: int) -> None:
        """Nothing is copied: old bytes stay where they are."""
        assert source is self._source
        assert at == start

    def flush(self) -> None:
        """The journal's bytes reach the disk when it gets its name."""

    def reopen(self) -> Source:
        """The longer file before it exists."""
        old = self._source.size
        pieces = [Extent(0, old, 0, True), Extent(old, self.at, HEADER_BYTES, False)]
        assembled = Assembled(pieces, self._source, self._journal.fd)
        return Source(Location(self._path, None, str(self._shown_name), [assembled]))

    def commit(self, last_check: Callable[[], None] = lambda: None) -> None:
        """Write behind the file. Raises StorageError; the file is then what it was, or the error says otherwise."""
        self._journal.write_at(0, self._facts().encode())
        last_check()
        try:
            with _writable(self._source, self._path) as fd, _folder_of(self._path) as folder:
                _check_links(self._source)
                self._append(fd, folder, last_check)
        except OSError as error:
            raise storage_error(self._path, error) from error

    def _facts(self) -> Journal:
        assert self._source.fd is not None
        found, length = os.fstat(self._source.fd), self.at - self._source.size
        return Journal(
            found.st_dev, found.st_ino, self._source.size, found.st_mtime_ns, found.st_ctime_ns,
            zlib.crc32(self._source.footer().data), length, _crc(self._journal.fd, HEADER_BYTES, length),
        )  # fmt: skip

    def _append(self, fd: int, folder: Folder, last_check: Callable[[], None]) -> None:
        checksums = Checksums({self._named, self._path})
        old, last = self._source.size, self.at - TAIL_BYTES
        begun = False
        try:
            self._write_journal(last_check)
            checksums.set_aside(True)
            last_check()
            begun = True
            copy_range(self._journal.fd, fd, HEADER_BYTES, old, last - old)
            os.fsync(fd)
            self._check_still(fd, last)
            copy_range(self._journal.fd, fd, HEADER_BYTES + last - old, last, TAIL_BYTES)
            os.fsync(fd)
        except BaseException as error:
            with signals_wait():
                try:
                    self._undo(fd, folder, begun, error)
                finally:
                    checksums.put_back()
            raise
        checksums.remove()
        try:
            _remove_journal(folder, self._path)
        except OSError as error:
            reason = f"has its new version, but its journal {self._journal_path} cannot be removed ({error.strerror})"
            raise StorageError(self._path, f"{reason}; the next add or remove does that") from error

    def _check_still(self, fd: int, size: int) -> None:
        """Raise ConflictError unless the file has as many bytes as we have written, under the name that it had."""
        try:
            same = os.path.samestat(os.stat(self._path), os.fstat(fd))
        except FileNotFoundError:
            same = False
        if not same or os.fstat(fd).st_size != size:
            raise ConflictError(self._path, "was changed by another program while it was appended to")

    def _write_journal(self, last_check: Callable[[], None]) -> None:
        try:
            self._journal.commit(last_check)
        except StorageError as error:
            if str(error.path) != self._journal_path:
                raise
            raise StorageError(
                self._path, f"nothing was changed, its journal cannot be written: {error.reason}"
            ) from error

    def _undo(self, fd: int, folder: Folder, begun: bool, why: BaseException) -> None:
        """Leave the file as it was; where that fails the journal stays, and a later run does it."""
        try:
            size = os.fstat(fd).st_size
            if begun and size > self.at:
                raise OSError(errno.EBUSY, f"another program made it {size:,} bytes long")
            if begun and size > self._source.size:
                os.truncate(fd, self._source.size)
                os.fsync(fd)
            named = folder.look(journal_name(os.path.basename(self._path)))
            if named is not None and os.path.samestat(named, os.fstat(self._journal.fd)):
                _remove_journal(folder, self._path)
        except OSError as error:
            reason = f"an append to it failed ({why}), and so did taking it back ({error.strerror})"
            way = f"; the next add or remove does that by {self._journal_path}"
            raise StorageError(self._path, reason + way) from why


def cut_off(source: Source, target: Location, size: int) -> None:
    """Make a file shorter, by one system call: it has all of its end or nothing of it. Raises StorageError.

    source  the file, local, open and locked
    """
    path = followed(os.path.abspath(target.path))
    try:
        with _writable(source, path) as fd:
            _check_links(source)
            checksums = Checksums({os.path.abspath(target.path), path})
            try:
                checksums.set_aside(True)
                source.check_unchanged()
                os.truncate(fd, size)
            except BaseException:
                checksums.put_back()
                raise
            checksums.remove()
            _sync_shorter(fd, path)
    except OSError as error:
        raise storage_error(path, error) from error


def _sync_shorter(fd: int, path: str) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        reason = f"has its new version, but fsync of it failed ({error.strerror})"
        raise StorageError(path, f"{reason}: after a power cut it may be as it was before") from error


def recover(source: Source) -> bool:
    """End what a killed append to a file left; whether there was anything. The file has to be locked.

    That lock is what tells that the append does not go on.

    Raises StorageError where the file is not what that append can have left.
    """
    path = os.path.realpath(source.location.path)
    journal_path = os.path.join(os.path.dirname(path), journal_name(os.path.basename(path)))
    try:
        with open(journal_path, "rb", buffering=0) as opened, _folder_of(path) as folder:
            _check_locked(source)
            _recover(source, path, opened.fileno())
            _remove_journal(folder, path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage_error(journal_path, error) from error
    except _UnlikeError as error:
        reason = (
            f"an append to it was cut short, and its journal {journal_path} does not fit: {error}; nothing was changed"
        )
        raise StorageError(
            source.path, f"{reason}. Look at the file, and remove the journal when it is right"
        ) from None
    return True


class _UnlikeError(Exception):
    """What was seen that no append of ours leaves."""


def _recover(source: Source, path: str, opened: int) -> None:
    journal = Journal.decode(read_at(opened, 0, HEADER_BYTES))
    if journal is None:
        raise _UnlikeError("it is damaged")
    with _writable(source, path) as fd:
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != (journal.device, journal.inode):
            raise _UnlikeError(f"it is of inode {journal.inode}, the file is inode {found.st_ino}")
        behind = found.st_size - journal.old_size
        if behind < 0:
            raise _UnlikeError(f"the file had {journal.old_size:,} bytes before, and has {found.st_size:,}")
        if _footer_crc(fd, journal.old_size) != journal.footer_crc32:
            raise _UnlikeError(f"the footer before byte {journal.old_size:,} is not the one that was there")
        if behind > journal.tail_length:
            raise _UnlikeError(f"{behind:,} bytes lie behind the old end, where {journal.tail_length:,} were to come")
        same = _same_bytes(fd, journal.old_size, opened, behind)
        if same < behind:
            at = journal.old_size + same
            raise _UnlikeError(f"{behind:,} bytes lie behind the old end, and from byte {at:,} on they are others")
        if behind < journal.tail_length:
            os.truncate(fd, journal.old_size)
        elif _crc(opened, HEADER_BYTES, behind) != journal.tail_crc32:
            raise _UnlikeError("the tail in it does not have the checksum that it had")
        os.fsync(fd)


def _footer_crc(fd: int, size: int) -> int | None:
    try:
        length = footer_length(read_at(fd, size - TAIL_BYTES, TAIL_BYTES), size)
    except (FooterError, ValueError):
        return None
    return zlib.crc32(read_at(fd, size - TAIL_BYTES - length, length))


def _crc(fd: int, at: int, length: int) -> int:
    crc, stop = 0, at + length
    while at < stop and (data := read_at(fd, at, min(_COMPARE_STEP, stop - at))):
        crc, at = zlib.crc32(data, crc), at + len(data)
    return crc


def _same_bytes(fd: int, at: int, journal: int, length: int) -> int:
    """How many bytes behind the old end are those of the journal's tail."""
    done = 0
    while done < length:
        n = min(_COMPARE_STEP, length - done)
        here, there = read_at(fd, at + done, n), read_at(journal, HEADER_BYTES + done, n)
        if not here or here != there:
            return done + next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), 0)
        done += len(here)
    return done


@contextlib.contextmanager
def _folder_of(path: str) -> Iterator[Folder]:
    folder = Folder(os.path.dirname(path))
    try:
        yield folder
    finally:
        folder.close()


def _remove_journal(folder: Folder, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # it went with the file, which was replaced
        folder.remove(journal_name(os.path.basename(path)))
    folder.sync()


@contextlib.contextmanager
def _writable(source: Source, path: str) -> Iterator[int]:
    """The file that a source has open, open for writing. Raises ConflictError where the path names another one."""
    assert source.fd is not None
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    try:
        if not os.path.samestat(os.fstat(fd), os.fstat(source.fd)):
            raise ConflictError(path, CHANGED)
        yield fd
    finally:
        os.close(fd)


def _check_locked(source: Source) -> None:
    assert source.fd is not None
    try:
        if try_lock(source.fd):
            return
    except OSError:
        pass
    raise StorageError(
        source.path, "cannot be locked, as its file system has no locks; without them nothing is appended"
    )


def _check_links(source: Source) -> None:
    assert source.fd is not None
    if os.fstat(source.fd).st_nlink > 1:
        raise StorageError(source.path, "has other hard links, whose readers would see its end change under them")
