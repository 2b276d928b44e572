"""Where a new version goes: whether it may, whether there is room, and how it gets there.

local target                   storage.writing.new_file: beside it, renamed
local, append                  storage.writing.append: behind the file itself, with a journal
S3 to or from itself, boto3    storage.writing.s3: bytes that stay are copied inside the store
any other storage              storage.writing.upload: a local temporary file, then the storage's own put
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parquet_bloom.errors import RequestError, StorageError, parameter
from parquet_bloom.extras import to_install
from parquet_bloom.storage.operating_system import require_space
from parquet_bloom.storage.paths import Outputs, targets
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.storage.source import PathLike, Source
from parquet_bloom.storage.stores import store_of
from parquet_bloom.storage.table_folders import Tables, look_before
from parquet_bloom.storage.writing import s3
from parquet_bloom.storage.writing.append import AppendedFile, check_links
from parquet_bloom.storage.writing.draft import NewVersion, Transfer
from parquet_bloom.storage.writing.new_file import NewFile
from parquet_bloom.storage.writing.renaming import check_regular
from parquet_bloom.storage.writing.s3_client import can_speak_for, client_of
from parquet_bloom.storage.writing.sink import FileSink
from parquet_bloom.storage.writing.upload import UploadedFile

WITHOUT_BOTO3 = f"boto3 is not installed ({to_install('s3')}), with which S3 copies unchanged bytes inside the store"
WITH_A_ROLE = (
    "pyarrow assumes the role of role_arn itself, so boto3, with which S3 copies unchanged bytes inside the store, "
    "has no credentials; give access_key, secret_key and session_token of the role instead"
)
WITHOUT_COPIES = "this file system cannot put files together from parts of others"
_HALF_URI = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a new version is written: as add_filters has it, `cached` as NewFile; `append` for a tail in place."""

    overwrite: bool
    sync: bool
    force: bool
    cached: bool = True
    read_back: bool = False
    append: bool = False


def outputs_of(
    source: PathLike | Sequence[PathLike], output: PathLike | None, in_place: bool, overwrite: bool, force: bool,
    raw_files: bool, filesystem: Any,
) -> tuple[Outputs, Tables, list[str]]:  # fmt: skip
    """Where each file's new version goes, for check_target the folders that were looked at, and notes.

    notes  what is to be said of tables whose files change, as was forced; a TableWarning says it too
    Raises as paths.targets; TableFormatError where files of a table would be copied elsewhere, dead
    ones too, without raw_files or force, and as Tables.change.
    """
    if output is not None and filesystem is None and _HALF_URI.match(os.fspath(output)):
        name = os.fspath(output)
        raise RequestError(f"{name}: a URI has two slashes after its scheme; a folder of that name here is ./{name}")
    tables = look_before(output is not None, raw_files, force)
    outputs = targets(source, output, in_place, overwrite, filesystem, tables)
    if tables is None:
        return outputs, Tables(), []
    return outputs, tables, tables.change(force) if in_place else []


def check_target(
    at: Location, target: Location, in_place: bool, force: bool, tables: Tables, append: bool = False
) -> None:
    """Refuse, before any work, to write where it would do harm.

    `force` overrides all but folders and devices, and what an append refuses.
    """
    tables.refuse(at, target, force)
    if not target.is_local:
        return
    check_regular(target.path)
    real = os.path.realpath(target.path)
    if append and os.path.exists(real):
        check_links(real, at)
        if not os.access(real, os.W_OK):
            leave = parameter("append", True) + " does; make it writable, or leave out " + parameter("append")
            raise StorageError(target, "is read-only, and cannot be written to itself, as " + leave)
    if force or not os.path.exists(real):
        return
    if in_place and os.stat(real).st_nlink > 1:
        ways = parameter("force", True) + " or " + parameter("output")
        raise StorageError(at, "has other hard links, which would keep the old bytes; give " + ways)
    if not os.access(real, os.W_OK) or not os.stat(real).st_mode & 0o222:
        forced = parameter("force", True) + " to replace it"
        raise StorageError(target, "is read-only; give " + forced + ", or another " + parameter("output"))


def disk_needed(source: Source, target: Location, new_bytes: int, append: bool = False) -> int:
    """Bytes of local disk that a new version takes at most; `new_bytes` are not copied."""
    if append:
        return 2 * new_bytes  # in the journal, and behind the file
    return new_bytes if _in_store(target) else source.size + new_bytes


def new_version(source: Source, target: Location, how: WriteOptions, needed: int) -> NewVersion:
    """Begin a new version of a file. Raises StorageError, also where `needed` bytes have no room."""
    if how.append:
        check_appendable(target)
        require_space(target.path, needed)
        return AppendedFile(source, target)
    if target.is_local:
        require_space(target.path, needed)
        like = source.location.path if not source.is_remote else None
        replaces = None
        if source.fd is not None and like is not None and os.path.realpath(like) == os.path.realpath(target.path):
            replaces = os.fstat(source.fd)
        return NewFile(target.path, like, how.overwrite, how.sync, how.cached, replaces, read_back=how.read_back)
    if how.read_back:
        raise StorageError(target, "is not on a local disk, where alone " + parameter("read_back") + " can be done")
    require_space(os.path.join(tempfile.gettempdir(), os.path.basename(target.path)), needed)
    if _in_store(target):
        return s3.StoredFile(source, target, how.overwrite, how.force)
    new = UploadedFile(target, how.overwrite)
    new.transfer.why = _hindrance(target.filesystem) or ""
    return new


def check_appendable(target: Location) -> None:
    """Raise StorageError for a file of another storage than the local disks."""
    if not target.is_local:
        raise StorageError(target, "is not on a local disk, where alone " + parameter("append") + " can be done")


def copy_whole(source: Source, target: Location, how: WriteOptions) -> Transfer:
    """Copy a file that needs no change to its output."""
    needed = disk_needed(source, target, 0)
    with new_version(source, target, how, needed) as new:
        FileSink(new, source).copy(0, source.size)
        new.at = source.size
        new.commit(source.check_unchanged)
    return new.transfer


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
        elif _in_store(new):  # pyarrow would leave an object of the folder's name
            bucket, _, key = new.path.partition("/")
            client_of(new.filesystem).delete_object(Bucket=bucket, Key=key)
        elif store_of(new).exists(new.path):
            new.filesystem.delete_file(new.path)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise storage_error(new, error) from error


def _in_store(target: Location) -> bool:
    return not target.is_local and _hindrance(target.filesystem) is None


def _hindrance(filesystem: Any) -> str | None:
    """Why a storage cannot put a file together from parts of others; None if it can."""
    if filesystem.type_name != "s3":
        return WITHOUT_COPIES
    if not can_speak_for(filesystem):
        return WITH_A_ROLE  # first: boto3 would not help
    return WITHOUT_BOTO3 if importlib.util.find_spec("boto3") is None else None
