"""Changes of a Delta table's rows: deltalake writes the new files, and one commit names them.

deltalake writes the files into a table of their own below this one, with its schema, partition columns and statistics
settings, so that statistics, partition values and checks of rows are its own. The log of that table goes at once.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from parquet_bloom.errors import ConflictError, RequestError, StorageError, TableFormatError
from parquet_bloom.format.arrow_types import has_any_length
from parquet_bloom.source.adapters import NewFile
from parquet_bloom.source.snapshot import CommitModes, Snapshot, TableFile
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.remote import Location, arrow_of, storage_error
from parquet_bloom.tables.delta.actions import Add, State, read_commits
from parquet_bloom.tables.delta.commit import (
    Transaction,
    check_size,
    deltalake,
    error_text,
    is_failure,
    open_delta_table,
    uri_and_options,
)
from parquet_bloom.tables.delta.log import LogFiles, TableFolder
from parquet_bloom.tables.delta.statistics import Schema, constants_of, rows_of

# A change of rows heeds these. With others a writer has more to do: deletion vectors, column mapping, CHECK, a change
# feed, generated and identity columns, row ids.
_HEEDED = {"appendOnly", "invariants", "timestampNtz"}


def check_changeable(table: object, state: State, features: Collection[str]) -> None:
    """Raise TableFormatError for a table whose rows are not changed here. features: those that a writer must heed."""
    if more := sorted(set(features) - _HEEDED):
        reason = f"has features that a change of rows does not heed: {', '.join(more)}"
        raise TableFormatError(table, f"{reason}; use the merge and delete of its own engine")
    if state.properties.get("delta.appendOnly", "").lower() == "true":
        raise TableFormatError(table, "its property delta.appendOnly says that no row may be deleted")


class DeltaRows:
    """See source.adapters.RowChanges.

    modes  how files of a snapshot may get new versions, as DeltaTable.commit_modes has it
    """

    def __init__(
        self,
        folder: TableFolder,
        snapshot: Snapshot,
        state: State,
        schema: Schema,
        modes: Callable[[Snapshot], Mapping[str, CommitModes]],
    ) -> None:
        self._folder, self._snapshot, self._state, self._schema, self._modes = folder, snapshot, state, schema, modes
        self._table = open_delta_table(folder, state.version, state.identity)
        self._below = f"rewrite-{uuid.uuid4().hex}"
        self._written = 0

    def check(self, files: Sequence[TableFile]) -> None:
        """Raise TableFormatError for a file that deltalake would remove by another path, or with loss."""
        for path, modes in self._modes(replace(self._snapshot, files=list(files))).items():
            if modes.refusal:
                raise TableFormatError(path, f"cannot be taken out of the table: {modes.refusal}")

    def write(self, rows: pa.Table) -> list[NewFile]:
        """Write rows as new files. Raises StorageError; RequestError for rows that the table does not take."""
        for name in self._table.metadata().partition_columns:
            values = rows[name]
            if has_any_length(values.type) and pc.any(pc.equal(pc.binary_length(values), 0)).as_py():
                reason = f"{name}: a row has an empty text, which Delta stores as NULL in a partition column"
                raise RequestError(f"{self._folder.at}: {reason}; give another value; nothing was committed")
        below = f"{self._below}/{self._written}"
        self._written += 1
        place = TableFolder(self._folder.below(below), self._folder.store, self._folder.roots)
        try:
            self._write(below, rows)
        except BaseException as error:
            if not is_failure(error):
                raise
            reason = f"deltalake does not write the rows: {without_secret(error_text(error))}; nothing was committed"
            if isinstance(error, deltalake().refusals):
                raise RequestError(f"{self._folder.at}: {reason}") from error
            raise StorageError(self._folder.at, reason) from error
        names = [name for _, name in LogFiles(place).commits_after(-1)]
        adds = [add for actions in read_commits(place, names) for add in actions.adds]
        _remove_folder(place.below("_delta_log"))
        return [self._new_file(replace(add, path=f"{below}/{unquote(add.path)}")) for add in adds]

    def _write(self, below: str, rows: pa.Table) -> None:
        uri, options = uri_and_options(self._folder)
        settings = {name: value for name, value in self._state.properties.items() if "dataSkipping" in name}
        library, columns = deltalake(), self._table.metadata().partition_columns
        new = library.DeltaTable.create(
            f"{uri}/{below}",
            self._table.schema(),
            partition_by=columns,
            configuration=settings,
            storage_options=options,
        )
        library.write_deltalake(new, rows, mode="append")

    def _new_file(self, add: Add) -> NewFile:
        at = self._folder.below(add.path)
        constants = constants_of(self._folder.at, self._schema, add)
        file = TableFile(at.path, at.filesystem, at.shown, rows=rows_of(add), size=add.size, constants=constants)
        return NewFile(file, add)

    def commit(self, gone: Sequence[TableFile], new: Sequence[NewFile], properties: Mapping[str, str]) -> str:
        """Commit as the version after the snapshot. Raises as source.adapters.RowChanges has it."""
        # deltalake's own operations that read one of the old files, or could have read one of the new rows, conflict
        # with a commit that is no blind append.
        transaction = Transaction(self._folder, self._state.identity, {**properties, "isBlindAppend": False})
        for file, _ in new:
            check_size(file, file.size)
        now, library = int(time.time() * 1000), transaction.library
        actions: list[Any] = []
        for file in gone:
            old: Add = file.entry
            actions.append(library.RemoveAction(unquote(old.path), True, now, old.size, dict(old.values)))
        for file, add in new:
            stats: Any = add.stats
            actions.append(library.AddAction(add.path, file.size, dict(add.values), add.modified, True, stats))
        if not transaction.attempt(self._state.version, actions):
            reason = f"another commit made version {self._state.version + 1} first; nothing was committed, try again"
            raise ConflictError(self._folder.at, reason)
        return str(self._state.version + 1)

    def discard(self) -> None:
        """Remove the folder of the new files."""
        _remove_folder(self._folder.below(self._below))


def _remove_folder(at: Location) -> None:
    try:
        if at.is_local:
            shutil.rmtree(at.path)
        else:
            arrow_of(at.filesystem).delete_dir(at.path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise storage_error(at, error) from error
