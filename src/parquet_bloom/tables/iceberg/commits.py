"""New versions of files become one snapshot of an Iceberg table, or nothing happens."""

from __future__ import annotations

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
    StorageError,
    TableFormatError,
    UnknownCommitError,
    first_line,
)
from parquet_bloom.storage.remote import side_by_side, storage_error
from parquet_bloom.storage.secrets import without_secret
from parquet_bloom.tables.iceberg.catalogs import telling
from parquet_bloom.tables.iceberg.delete_files import filesystem_of
from parquet_bloom.tables.iceberg.entries import Entry
from parquet_bloom.tables.iceberg.files import beside
from parquet_bloom.tables.iceberg.producer import Replacement, Swap
from parquet_bloom.tables.iceberg.row_deletes import RowDeletes
from parquet_bloom.tables.snapshot import Change, Snapshot, TableFile, Ways

_MOST_VERSION = 2


def ways_of(log: IcebergLog, name: str, files: Sequence[TableFile]) -> dict[str, Ways]:
    """For each file's path, how it may get a new version. Raises TableFormatError as `check_version`."""
    check_version(log, name)
    ids = set(log.schema().field_ids)
    lost = {number for number, spec in log.specs().items() if any(part.source_id not in ids for part in spec.fields)}
    return {file.path: _ways(file, file.entry.partition[0] in lost) for file in files}


def check_version(log: IcebergLog, name: str) -> None:
    """Raise TableFormatError for a format version whose manifests pyiceberg does not write."""
    if log.format_version > _MOST_VERSION:
        reason = f"has format version {log.format_version}, whose manifests pyiceberg cannot write; it can only be read"
        raise TableFormatError(name, reason)


def _ways(file: TableFile, lost_spec: bool) -> Ways:
    if lost_spec:
        reason = "a partition column was dropped from the table, and pyiceberg would lose its values"
        return Ways(None, reason, reason)
    if isinstance(file.deletes, RowDeletes) and (file.deletes.files or file.deletes.vectors):
        return Ways("same-path", no_new_path="position deletes or a deletion vector name the file by its path")
    return Ways("new-path")


def commit(log: IcebergLog, name: str, snapshot: Snapshot, changes: Sequence[Change], told: Mapping[str, str]) -> str:
    """Commit changes as one snapshot; see tables.snapshot.Table.commit. Returns the snapshot's id.

    Appends since then do not matter, nor do deletes of rows of a file that keeps its path.
    Raises ConflictError where a file is gone, changed, or, if it would get a new path, named by deletes; StorageError
    where nothing was committed for another reason; UnknownCommitError where the catalog did not say.
    """
    with telling(name):
        log.refresh()
    check_version(log, name)
    swaps = side_by_side(_swap, changes)
    touched = {swap.old.manifest for swap in swaps}
    untouched = {file.entry.manifest for file in snapshot.files} - touched
    transaction = log.transaction()
    producer = Replacement(transaction, log.io, swaps, untouched, told)
    try:
        producer.commit()  # writes manifests; the catalog knows nothing yet
    except Exception as error:
        producer._clean_all_uncommitted()
        raise _error(name, error) from error
    try:
        transaction.commit_transaction()
    except (CommitFailedException, ValidationException) as error:
        raise ConflictError(name, f"other commits came first each time; try again: {first_line(error)}") from error
    except ConflictError:
        producer._clean_all_uncommitted()
        raise
    except Exception as error:
        if not _landed(log, name, producer.snapshot_id, error):
            producer._clean_all_uncommitted()
            raise _error(name, error) from error
    return str(producer.snapshot_id)


def _swap(change: Change) -> Swap:
    entry: Entry = change.file.entry
    splits = _splits(change)
    if change.same_path:
        return Swap(entry, entry.path, change.size, entry.file.split_offsets)
    return Swap(entry, beside(entry.path, change.file, change.location), change.size, splits)


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
    return StorageError(name, f"{without_secret(first_line(error))}; nothing was committed")


def _landed(log: IcebergLog, name: str, snapshot: int, error: Exception) -> bool:
    """Whether a commit that ended with an error is in the table all the same. Raises UnknownCommitError."""
    try:
        log.refresh()
        if log.snapshot_by_id(snapshot) is not None:
            return True
        if _is_certain(error):
            return False
    except Exception:
        pass
    reason = f"the catalog did not say whether snapshot {snapshot} was committed ({without_secret(first_line(error))})"
    raise UnknownCommitError(name, f"{reason}; look at its history, new files were left where they are") from error


def _is_certain(error: Exception) -> bool:
    """Whether a catalog that gives this error, and whose table has no such snapshot, will never have it."""
    if isinstance(error, CommitStateUnknownException | ConnectionError | TimeoutError):
        return False
    library = type(error).__module__.partition(".")[0]
    return isinstance(error, RESTError) or library in ("builtins", "sqlalchemy")
