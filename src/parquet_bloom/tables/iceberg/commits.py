"""New versions of files become one snapshot of an Iceberg table, or nothing happens."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    RESTError,
    ValidationException,
)
from pyiceberg.table import Table as IcebergLog

from parquet_bloom.errors import (
    ConflictError,
    ParquetBloomError,
    RequestError,
    StorageError,
    TableFormatError,
    UnknownCommitError,
    first_line,
)
from parquet_bloom.storage.remote import side_by_side, storage_error
from parquet_bloom.storage.secrets import without_secret
from parquet_bloom.tables.iceberg.catalogs import refresh, telling
from parquet_bloom.tables.iceberg.delete_files import filesystem_of
from parquet_bloom.tables.iceberg.entries import Entry
from parquet_bloom.tables.iceberg.files import Files
from parquet_bloom.tables.iceberg.producer import LOST_SPEC, Replacement, Swap, lost_specs
from parquet_bloom.tables.iceberg.row_deletes import RowDeletes
from parquet_bloom.tables.iceberg.strangers import check_provider
from parquet_bloom.tables.new_names import beside
from parquet_bloom.tables.roots import Roots, TableAccess
from parquet_bloom.tables.snapshot import Change, Snapshot, TableFile, Ways

_MOST_VERSION = 2
_OF_FILES = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}


def ways_of(log: IcebergLog, name: str, files: Sequence[TableFile], roots: Roots) -> dict[str, Ways]:
    """For each file's path, how it may get a new version. Raises TableFormatError as `check_writable`."""
    check_writable(log, name)
    lost = lost_specs(log.schema(), log.specs())
    return {file.path: _ways(file, file.entry.partition[0] in lost, roots.no_change(file)) for file in files}


def check_writable(log: IcebergLog, name: str) -> None:
    """Raise TableFormatError for a format version whose manifests pyiceberg does not write, and code to be run."""
    if log.format_version > _MOST_VERSION:
        reason = f"has format version {log.format_version}, whose manifests pyiceberg cannot write; it can only be read"
        raise TableFormatError(name, reason)
    check_provider(name, log.properties, log.catalog.properties)


def _ways(file: TableFile, lost_spec: bool, outside: str) -> Ways:
    if outside:
        return Ways(None, outside, outside)
    if lost_spec:
        return Ways(None, LOST_SPEC, LOST_SPEC)
    if isinstance(file.deletes, RowDeletes) and (file.deletes.files or file.deletes.vectors):
        return Ways("same-path", no_new_path="position deletes or a deletion vector name the file by its path")
    return Ways("new-path")


def commit(
    log: IcebergLog, name: str, snapshot: Snapshot, changes: Sequence[Change], told: Mapping[str, str],
    access: TableAccess,
) -> str:  # fmt: skip
    """Commit changes as one snapshot; see tables.snapshot.Table.commit. Returns the snapshot's id.

    Appends since then do not matter, nor do deletes of rows of a file that keeps its path.
    Raises ConflictError where a file is gone, changed, or, if it would get a new path, named by deletes; StorageError
    where nothing was committed for another reason; UnknownCommitError where the catalog did not say.
    """
    refresh(log, name)
    check_writable(log, name)
    files = Files.of(log, name, access)
    swaps = side_by_side(lambda change: _swap(change, files), changes)
    touched = {swap.old.manifest for swap in swaps}
    untouched = {file.entry.manifest for file in snapshot.files} - touched
    transaction = log.transaction()
    with telling(name):
        producer = Replacement(transaction, log.io, swaps, untouched, told)
    try:
        producer.commit()  # writes manifests; the catalog knows nothing yet
    except Exception as error:
        producer.discard()
        raise _error(name, error) from error
    try:
        transaction.commit_transaction()
    except Exception as error:
        if not _landed(log, name, producer.snapshot_id, error):
            producer.discard()
            raise _error(name, error) from error
        producer._cleanup_uncommitted()
    return str(producer.snapshot_id)


def _swap(change: Change, files: Files) -> Swap:
    """Raises StorageError as `_splits`, and where the log would not lead to the new version."""
    entry: Entry = change.file.entry
    splits = _splits(change)
    if change.same_path:
        return Swap(entry, entry.path, change.size, entry.file.split_offsets)
    path = beside(entry.path, change.location.path)
    if files.location(path).path != change.location.path:
        reason = f"the table's log would name it {without_secret(path)}, which is another place; nothing was committed"
        raise StorageError(change.location, reason)
    return Swap(entry, path, change.size, splits)


def _splits(change: Change) -> list[int]:
    """The offsets of the row groups of a new version. Raises StorageError where it is not there, or has other rows.

    A file on its old path may be longer than is told: a version without its tail leaves the tail where it is.
    """
    place = change.location
    try:
        with filesystem_of(place).open_input_file(place.path) as file:
            size = file.size()
            metadata = pq.read_metadata(file)
    except (OSError, pa.ArrowException) as error:
        raise storage_error(place, error) from error
    if size < change.size or (size > change.size and not change.same_path):
        raise StorageError(place, f"has {size} bytes, where {change.size} were told; nothing was committed")
    if metadata.num_rows != change.file.rows:
        reason = f"has {metadata.num_rows} rows, where the table has {change.file.rows}; nothing was committed"
        raise StorageError(place, reason)
    firsts = [metadata.row_group(i).column(0) for i in range(metadata.num_row_groups)]
    return sorted(
        c.dictionary_page_offset
        if c.has_dictionary_page and c.dictionary_page_offset < c.data_page_offset
        else c.data_page_offset
        for c in firsts
    )


def _error(name: str, error: Exception) -> Exception:
    """An error that means that nothing was committed."""
    if isinstance(error, StorageError | TableFormatError):
        return error
    if isinstance(error, CommitFailedException | ValidationException):
        return ConflictError(name, f"other commits came first each time; try again: {first_line(error)}")
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    reason = "the disk of its metadata is full" if full else without_secret(first_line(error))
    return StorageError(name, f"{reason}; nothing was committed")


def _landed(log: IcebergLog, name: str, snapshot: int, error: Exception) -> bool:
    """Whether a commit that ended with an error is in the table all the same. Raises UnknownCommitError.

    A refusal too may be of a commit that landed: its answer got lost, and what was sent once more came too late.
    """
    said = without_secret(first_line(error))
    try:
        refresh(log, name)
        if log.snapshot_by_id(snapshot) is not None:
            return True
        if _is_certain(error):
            return False
    except RequestError as gone:
        said = gone.message.removeprefix(f"{name}: ")
    except Exception:  # then the first error tells more
        pass
    reason = f"the catalog did not say whether snapshot {snapshot} was committed ({said})"
    raise UnknownCommitError(name, f"{reason}; look at its history, new files were left where they are") from error


def _is_certain(error: Exception) -> bool:
    """Whether a catalog that gives this error, and whose table has no such snapshot, will never have it."""
    if isinstance(error, OSError):  # of a file, or of a connection that broke when all was sent
        return error.errno in _OF_FILES
    if isinstance(error, CommitStateUnknownException) or getattr(error, "connection_invalidated", False):
        return False
    if isinstance(error, RESTError | CommitFailedException | ValidationException | ParquetBloomError):
        return True  # ours comes before anything is sent
    return type(error).__module__.partition(".")[0] in ("builtins", "sqlalchemy")
