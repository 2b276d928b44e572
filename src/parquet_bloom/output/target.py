"""The target of a new file: a folder of this machine, or a store, which takes it as a whole or in parts.

local target                   output.atomic_file: beside it, renamed
local, append                  output.append: behind the file itself, with a journal
S3 to or from itself, boto3    output.s3: bytes that stay are copied inside the store
any other storage              output.target: a local temporary file, then the storage's own put
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import posixpath
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from parquet_bloom.errors import EXISTS, ConflictError, StorageError, parameter
from parquet_bloom.extras import to_install
from parquet_bloom.options import WriteOptions
from parquet_bloom.output import s3
from parquet_bloom.output.append import AppendedFile, check_links, cut_off
from parquet_bloom.output.atomic_file import AtomicFile, check_regular
from parquet_bloom.output.draft import Draft, FileSink, NewVersion, Transfer
from parquet_bloom.output.folder import SUFFIX
from parquet_bloom.output.s3 import can_speak_for, client_of
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.operating_system import require_space
from parquet_bloom.storage.remote import Location, arrow_of, fsspec_of, storage_error
from parquet_bloom.storage.stores import store_of
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.workers import run_ignoring_signals

WITHOUT_BOTO3 = f"boto3 is not installed ({to_install('s3')}), with which S3 copies unchanged bytes inside the store"
WITH_A_ROLE = (
    "pyarrow assumes the role of role_arn itself, so boto3, with which S3 copies unchanged bytes inside the store, "
    "has no credentials; give access_key, secret_key and session_token of the role instead"
)
WITHOUT_COPIES = "this file system cannot put files together from parts of others"


@dataclass(frozen=True, slots=True)
class Writing:
    """How a new version of a file is written: WriteOptions, with their defaults; `cached` as AtomicFile has it."""

    overwrite: bool = False
    sync: bool = True
    force: bool = False
    cached: bool = True
    read_back: bool = False
    append: bool = False
    in_place: bool = False
    dry_run: bool = False

    @classmethod
    def of(cls, options: WriteOptions) -> Writing:
        """The same from a function's options."""
        return cls(**options)

    @property
    def replaces(self) -> bool:
        """Whether the new version may take the place of a file that is there."""
        return self.overwrite or self.in_place


class Target:
    """The target of one file's new version, and how it is written.

    at   the place; how  what was asked for
    """

    def __init__(self, at: Location, how: Writing) -> None:
        self.at, self.how = at, how
        self.is_local = at.is_local

    def check(self, source: Location, tables: Tables) -> None:
        """Refuse, before any work, to write where it would do harm. Raises StorageError, TableFormatError.

        `force` overrides all but folders and devices, and what an append refuses.
        """
        force = self.how.force
        tables.check_target(source, self.at, force)
        if not self.is_local:
            return
        check_regular(self.at.path)
        real = os.path.realpath(self.at.path)
        if self.how.append and os.path.exists(real):
            check_links(real, source)
            if not os.access(real, os.W_OK):
                leave = parameter("append", True) + " does; make it writable, or leave out " + parameter("append")
                raise StorageError(self.at, "is read-only, and cannot be written to itself, as " + leave)
        if force or not os.path.exists(real):
            return
        if self.how.in_place and os.stat(real).st_nlink > 1:
            ways = parameter("force", True) + " or " + parameter("output")
            raise StorageError(source, "has other hard links, which would keep the old bytes; give " + ways)
        if not os.access(real, os.W_OK) or not os.stat(real).st_mode & 0o222:
            forced = parameter("force", True) + " to replace it"
            raise StorageError(self.at, "is read-only; give " + forced + ", or another " + parameter("output"))

    def disk_needed(self, source: OpenFile, new_bytes: int) -> int:
        """Bytes of local disk that a new version takes at most; `new_bytes` are not copied."""
        if self.how.append:
            return 2 * new_bytes  # in the journal, and behind the file
        in_store = not self.is_local and hindrance_of(self.at.filesystem) is None
        return new_bytes if in_store else source.size + new_bytes

    def begin(self, source: OpenFile, needed: int) -> NewVersion:
        """Begin a new version of a file. Raises StorageError, also where `needed` bytes have no room."""
        at, how = self.at, self.how
        if how.append:
            self._check_appendable()
            require_space(at.path, needed)
            return AppendedFile(source, at)
        if self.is_local:
            require_space(at.path, needed)
            like = source.location.path if not source.is_remote else None
            replaces = None
            if source.fd is not None and like is not None and os.path.realpath(like) == os.path.realpath(at.path):
                replaces = os.fstat(source.fd)
            return AtomicFile(at.path, like, how.replaces, how.sync, how.cached, replaces, read_back=how.read_back)
        if how.read_back:
            raise StorageError(at, "is not on a local disk, where alone " + parameter("read_back") + " can be done")
        require_space(os.path.join(tempfile.gettempdir(), os.path.basename(at.path)), needed)
        hindrance = hindrance_of(at.filesystem)
        if hindrance is None:
            return s3.StoredFile(source, at, how.replaces, how.force)
        new = UploadedFile(at, how.replaces)
        new.transfer.why = hindrance
        return new

    def copy(self, source: OpenFile) -> Transfer:
        """Copy a file that needs no change."""
        needed = self.disk_needed(source, 0)
        with self.begin(source, needed) as new:
            FileSink(new, source).copy(0, source.size)
            new.at = source.size
            new.commit(source.check_unchanged)
        return new.transfer

    def cut_off(self, source: OpenFile, size: int) -> None:
        """Make the file itself shorter. Raises StorageError."""
        self._check_appendable()
        cut_off(source, self.at, size)

    def _check_appendable(self) -> None:
        if not self.is_local:
            reason = "is not on a local disk, where alone " + parameter("append") + " can be done"
            raise StorageError(self.at, reason)


def size_of(at: Location) -> int | None:
    """Bytes of a file; None where there is none. Raises StorageError."""
    try:
        return store_of(at).size(at.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error(at, error) from error


def remove_unnamed(new: Location) -> None:
    """Remove a new file that nothing names yet, if it is there. Raises StorageError."""
    try:
        if new.is_local:
            os.unlink(new.path)
        elif hindrance_of(new.filesystem) is None:  # pyarrow would leave an object of the folder's name
            bucket, _, key = new.path.partition("/")
            client_of(new.filesystem).delete_object(Bucket=bucket, Key=key)
        elif store_of(new).exists(new.path):
            arrow_of(new.filesystem).delete_file(new.path)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise storage_error(new, error) from error


def hindrance_of(filesystem: Any) -> str | None:
    """Why a storage cannot put a file together from parts of others, on a condition; None if it can."""
    if filesystem.type_name != "s3":
        return WITHOUT_COPIES
    if not can_speak_for(filesystem):
        return WITH_A_ROLE  # first: boto3 would not help
    return WITHOUT_BOTO3 if importlib.util.find_spec("boto3") is None else None


# --- files for other storages ---------------------------------------------------------------------
#
# A new file for another storage: written and checked in a local temporary file, then put.
#
# A stream that a storage gives us publishes what was written when it is closed, and closes itself
# when it is forgotten: also after an error, and then it would publish a part. So
#
#    S3, GCS        written straight to the target, which changes when the stream is closed and not
#                   before; where anything goes wrong before that, the stream is never closed
#    all others     written under a name of ours beside the target, looked at, and moved there

_STEP = 16 << 20
_ALL_AT_ONCE = {"s3", "gcs"}  # storages whose streams publish when they are closed


class UploadedFile(Draft):
    """A file that is being written locally and will replace, or become, an object of another storage.

    The local file has no name, where the system has such files: nobody else finds it, and it ends with us.

    target     where it goes
    overwrite  whether something may be there by then
    """

    def __init__(self, target: Location, overwrite: bool) -> None:
        super().__init__(target, sync=False, cached=True, remember=False)
        self._to, self._may_replace, self._given_up = target, overwrite, False
        make = tempfile.TemporaryFile if os.path.exists("/proc/self/fd") else tempfile.NamedTemporaryFile
        try:
            self._file = make(prefix="parquet-bloom-")
        except OSError as error:
            raise storage_error(tempfile.gettempdir(), error) from error
        self.fd, self.path = self._file.fileno(), str(self._file.name)

    def discard(self) -> None:
        """Give the new file up; the target stays what it was."""
        self.fd = -1
        self._file.close()

    def commit(self, last_check: Callable[[], None] = lambda: None) -> None:
        """Send the file and let it take the target's place. Raises StorageError; the target is then what it was.

        last_check  called before anything is sent, and right before the target changes; may raise
        """

        def check() -> None:
            self._go_on()
            last_check()
            if not self._may_replace and store_of(self._to).exists(self._to.path):
                raise ConflictError(self._to, EXISTS)

        check()
        put = self._put if self._to.filesystem.type_name in _ALL_AT_ONCE else self._put_aside
        try:
            run_ignoring_signals(lambda: put(check), self._give_up)
        except StorageError:
            raise
        except Exception as error:
            raise storage_error(self._to, error) from error

    def _give_up(self) -> None:
        self._given_up = True

    def _go_on(self) -> None:
        if self._given_up:
            raise StorageError(self._to, "interrupted; nothing was changed")

    def _put(self, check: Callable[[], None]) -> None:
        stream = arrow_of(self._to.filesystem).open_output_stream(self._to.path)
        try:
            self._write_to(stream)
            check()
        except BaseException:
            # For ever: even at the end of the process its destructor would close it, and so publish. A stream cannot
            # be given up (apache/arrow#40502); docs/architecture.md, "Workarounds", says when this can go.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))
            raise
        stream.close()

    def _put_aside(self, check: Callable[[], None]) -> None:
        filesystem, path = arrow_of(self._to.filesystem), self._to.path
        folder, name = posixpath.split(path)
        aside = posixpath.join(folder, f".{name[:120]}.{secrets.token_hex(4)}{SUFFIX}")
        made = _make_folder(filesystem, folder)
        try:
            with filesystem.open_output_stream(aside) as stream:
                self._write_to(stream)
            size = filesystem.get_file_info(aside).size
            if size != self.at:
                raise StorageError(self._to, f"{size} of {self.at} bytes arrived; nothing was changed")
            check()
            _move(filesystem, aside, path)
        except BaseException:
            with contextlib.suppress(Exception):
                filesystem.delete_file(aside)
            if made is not None:
                with contextlib.suppress(Exception):
                    filesystem.delete_dir(made)
            raise

    def _write_to(self, stream: Any) -> None:
        at = 0
        while at < self.at:
            self._go_on()
            data = os.pread(self.fd, min(_STEP, self.at - at), at)
            if not data:
                raise OSError("the temporary file became shorter while it was sent")
            stream.write(data)
            stream.flush()  # else S3's stream would keep all of it in memory
            at += len(data)
            self.transfer.sent += len(data)


def _make_folder(filesystem: Any, folder: str) -> str | None:
    """Make a folder where it is missing; returns the uppermost one that was made."""
    from pyarrow import fs

    missing = None
    at = folder
    while at not in ("", "/") and filesystem.get_file_info(at).type == fs.FileType.NotFound:
        missing, at = at, posixpath.dirname(at)
    if missing is not None:
        filesystem.create_dir(folder, recursive=True)
    return missing


def _move(filesystem: Any, aside: str, path: str) -> None:
    """Give a file its name, over one that has it; where the storage refuses that, the old one steps aside first."""
    import pyarrow as pa
    from pyarrow import fs

    fsspec = fsspec_of(filesystem)
    if fsspec is not None and getattr(type(fsspec).mv, "__module__", "") == "fsspec.spec":
        fsspec.cp_file(aside, path)  # what mv would do too, after taking [ and * in names for patterns
        fsspec.rm_file(aside)
        return
    try:
        filesystem.move(aside, path)
        return
    except pa.ArrowNotImplementedError:  # Azure without a hierarchical namespace
        filesystem.copy_file(aside, path)
        filesystem.delete_file(aside)
        return
    except Exception:
        if filesystem.get_file_info(path).type != fs.FileType.File:
            raise
    old = f"{aside}.old"
    filesystem.move(path, old)
    try:
        filesystem.move(aside, path)
    except BaseException:
        filesystem.move(old, path)
        raise
    filesystem.delete_file(old)
