"""Bytes behind a file that keeps its inode: journal first, so that what is cut short can be undone.

    .NAME.parquet-bloom-journal   written and on the disk, with all new bytes in it (format.journal)
    NAME                          the new bytes but the last 8; on the disk; then these, on the disk
    .NAME.parquet-bloom-journal   goes

The last 8 bytes are length and magic of the new footer: until they are there the file is torn, and is known to be.
What a run does that finds a journal is output.recovery's. Unlike a new file it is not atomic for other
programs: who opens the file meanwhile by its real size finds no footer.

Right before the first byte the version token (OpenFile.check_unchanged) says that the body is still the one that the
filters were built from. Then our own writes change the token, and only name, inode and size are compared: a program
that writes into the body, in place, in these milliseconds is not noticed.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from contextlib import closing

from parquet_bloom.errors import ConflictError, StorageError
from parquet_bloom.format.footer import TAIL_BYTES
from parquet_bloom.format.journal import HEADER_BYTES, Journal
from parquet_bloom.output.atomic_file import AtomicFile, followed
from parquet_bloom.output.draft import Assembled, Extent, NewVersion
from parquet_bloom.output.folder import Checksums, Folder
from parquet_bloom.output.recovery import UnlikeError, check_locked, crc_of, judge, remove_journal, writable
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.operating_system import copy_range, mount_of
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.storage.store import journal_path
from parquet_bloom.storage.workers import signals_wait

_STEP = 1 << 20


class AppendedFile(NewVersion):
    """A file that gets new bytes behind its end; nothing of it is touched before `commit`.

    source  the file, local, open and locked (output.recovery)
    Raises StorageError, also where the file has other hard links.
    """

    def __init__(self, source: OpenFile, target: Location) -> None:
        super().__init__(target)
        self._source = source
        self._named = os.path.abspath(target.path)
        self._path = followed(self._named)
        _check_links(source)
        check_locked(source)
        self._journal_path = journal_path(self._path)
        self._check_name()
        try:
            _check_folder(source, self._path)
        except OSError as error:
            raise storage_error(self._path, error) from error
        try:
            self._journal = AtomicFile(self._journal_path, self._path, overwrite=False, sync=True, as_like=True)
        except StorageError as error:
            raise self._unwritten(error) from error

    def discard(self) -> None:
        """Give the new bytes up; the file stays what it was."""
        self._journal.discard()

    def clone(self, source: OpenFile) -> bool:
        """The old bytes are there already."""
        return source is self._source

    def write_at(self, at: int, data: bytes) -> None:
        """New bytes, kept in what will be the journal."""
        self._journal.write_at(HEADER_BYTES + at - self._source.size, data)

    def copy_from(self, at: int, source: OpenFile, start: int, stop: int) -> None:
        """Nothing is copied: old bytes stay where they are."""
        assert source is self._source
        assert at == start

    def flush(self) -> None:
        """The journal's bytes reach the disk when it gets its name."""

    def reopen(self) -> OpenFile:
        """The longer file before it exists."""
        old = self._source.size
        pieces = [Extent(0, old, 0, True), Extent(old, self.at, HEADER_BYTES, False)]
        assembled = Assembled(pieces, self._source, self._journal.fd)
        return OpenFile(Location(self._path, None, str(self._shown_name), [assembled]))

    def commit(self, last_check: Callable[[], None] = lambda: None) -> None:
        """Write behind the file. Raises StorageError; the file is then what it was, or the error says otherwise."""
        told = self._facts()
        self._journal.write_at(0, told.encode())
        last_check()
        try:
            with writable(self._source, self._path) as fd, closing(Folder(os.path.dirname(self._path))) as folder:
                _check_links(self._source)
                self._append(fd, folder, told, last_check)
        except OSError as error:
            raise storage_error(self._path, error) from error

    def _facts(self) -> Journal:
        assert self._source.fd is not None
        found, length = os.fstat(self._source.fd), self.at - self._source.size
        return Journal(
            found.st_dev,
            found.st_ino,
            self._source.size,
            found.st_mtime_ns,
            found.st_ctime_ns,
            zlib.crc32(self._source.footer().data),
            length,
            crc_of(self._journal.fd, HEADER_BYTES, length),
        )

    def _append(self, fd: int, folder: Folder, told: Journal, last_check: Callable[[], None]) -> None:
        # Each step is on the disk before the next one begins: the journal; all new bytes but the last 8; these. So
        # after a power cut a file without its magic has a whole journal. `begun` says that the file may have new bytes.
        checksums = Checksums({self._named, self._path})
        old, last = self._source.size, self.at - TAIL_BYTES
        begun = False
        try:
            self._write_journal(last_check)
            checksums.set_aside(True)
            last_check()
            begun = True
            self._copy(fd, old, last)
            os.fsync(fd)
            self._copy(fd, last, self.at)
            os.fsync(fd)
        except BaseException as error:
            with signals_wait():
                try:
                    self._undo(fd, folder, told, begun, error)
                finally:
                    checksums.put_back()
            raise
        # From here on the file has its new version, and an error is no reason to undo it.
        checksums.remove()
        try:
            if remove_journal(folder, self._path, self._journal.fd):
                folder.sync()
        except OSError as error:
            reason = f"has its new version, but its journal {self._journal_path} cannot be removed ({error.strerror})"
            raise StorageError(self._path, f"{reason}; the next add or remove does that") from error

    def _copy(self, fd: int, at: int, stop: int) -> None:
        """Write [at, stop) behind the file in small steps, before each of which it must end where that one begins."""
        while at < stop:
            self._check_still(fd, at)
            step = min(stop - at, _STEP)
            copy_range(self._journal.fd, fd, HEADER_BYTES + at - self._source.size, at, step)
            at += step

    def _check_still(self, fd: int, size: int) -> None:
        """Raise ConflictError unless the file has as many bytes as we have written, under the name that it had."""
        try:
            same = os.path.samestat(os.stat(self._path), os.fstat(fd))
        except FileNotFoundError:
            same = False
        if not same or os.fstat(fd).st_size != size:
            raise ConflictError(self._path, "was changed by another program while it was appended to")

    def _check_name(self) -> None:
        """Raise StorageError where something has the journal's name: what is one of this file went with its lock."""
        if os.path.lexists(self._journal_path):
            reason = f"something that is no journal of it has the name of its journal {self._journal_path}"
            raise StorageError(self._path, f"{reason}; nothing was changed")

    def _write_journal(self, last_check: Callable[[], None]) -> None:
        try:
            self._journal.commit(last_check)
        except StorageError as error:
            if str(error.path) != self._journal_path:
                raise
            if isinstance(error, ConflictError):
                self._check_name()
            raise self._unwritten(error) from error

    def _unwritten(self, error: StorageError) -> StorageError:
        return StorageError(self._path, f"nothing was changed, its journal cannot be written: {error.reason}")

    def _undo(self, fd: int, folder: Folder, told: Journal, begun: bool, why: BaseException) -> None:
        """Leave the file as it was; where that fails the journal stays, and a later run does it.

        What another program wrote behind the old end, or in place of the file, is not cut off.
        """
        try:
            if begun:
                judge(fd, told, self._journal.fd)
                os.truncate(fd, self._source.size)
                os.fsync(fd)
            if remove_journal(folder, self._path, self._journal.fd):
                folder.sync()
        except OSError as error:
            reason = f"an append to it failed ({why}), and so did taking it back ({error.strerror})"
            way = f"; the next add or remove does that by {self._journal_path}"
            raise StorageError(self._path, reason + way) from why
        except UnlikeError as error:
            said = why.reason if isinstance(why, StorageError) else why
            reason = f"an append to it failed ({said}), and is not taken back, as another program wrote to it: {error}"
            way = f". Look at the file, and remove the journal {self._journal_path} when it is right"
            raise StorageError(self._path, reason + way) from why


def cut_off(source: OpenFile, target: Location, size: int) -> None:
    """Make a file shorter, by one system call: it has all of its end or nothing of it. Raises StorageError.

    source  the file, local, open and locked
    """
    path = followed(os.path.abspath(target.path))
    try:
        with writable(source, path) as fd:
            _check_links(source)
            checksums = Checksums({os.path.abspath(target.path), path})
            with signals_wait():  # a checksum file that comes back has to be that of what is there
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


def _check_folder(source: OpenFile, path: str) -> None:
    """Raise StorageError where a journal would not be for all who see the file, or not known to be on the disk."""
    assert source.fd is not None
    with closing(Folder(os.path.dirname(path))) as folder:
        if folder.fd is None:
            return
        if mount_of(source.fd) != mount_of(folder.fd):  # as of a container that was given the file and not its folder
            raise StorageError(path, "is mounted by itself; under its other names no program would find its journal")
        if not folder.syncs:
            raise StorageError(
                path, "its folder may not be listed, so it is not known when a journal there is on the disk"
            )


def check_links(file: int | str, at: object) -> None:
    """Raise StorageError for a file, a path or an open one, that has other hard links."""
    if os.stat(file).st_nlink > 1:
        raise StorageError(at, "has other hard links, whose readers would see its end change under them")


def _check_links(source: OpenFile) -> None:
    assert source.fd is not None
    check_links(source.fd, source.path)
