"""A new file for another storage: written and checked in a local temporary file, then put.

A stream that a storage gives us publishes what was written when it is closed, and closes itself
when it is forgotten: also after an error, and then it would publish a part. So

    S3, GCS        written straight to the target, which changes when the stream is closed and not
                   before; where anything goes wrong before that, the stream is never closed
    all others     written under a name of ours beside the target, looked at, and moved there
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import posixpath
import secrets
import tempfile
from collections.abc import Callable
from typing import Any

from parquet_bloom.errors import EXISTS, ConflictError, StorageError
from parquet_bloom.storage.remote import Location, fsspec_of, storage_error
from parquet_bloom.storage.stores import store_of
from parquet_bloom.storage.workers import undisturbed
from parquet_bloom.storage.writing.draft import Draft
from parquet_bloom.storage.writing.litter import SUFFIX

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
            undisturbed(lambda: put(check), self._give_up)
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
        stream = self._to.filesystem.open_output_stream(self._to.path)
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
        filesystem, path = self._to.filesystem, self._to.path
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
