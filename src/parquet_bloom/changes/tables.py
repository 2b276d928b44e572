"""Rows of a table deleted and replaced by their keys, in one commit.

keys     -> locate: files, rows -> each of these files is read, and written again without its rows that have a key
new rows -> new files           -> filters -> one commit -> the index is updated
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquet_bloom._version import __version__
from parquet_bloom.changes.keys import (
    Located,
    RowKeys,
    RowsRequest,
    arrays_of,
    as_stored,
    as_type,
    located_rows,
    plain_name,
)
from parquet_bloom.changes.values import KeyChanges, RewrittenFile
from parquet_bloom.edit.add import AddToFile
from parquet_bloom.edit.add_to_source import request_for_source
from parquet_bloom.edit.plan import Request, TableColumns
from parquet_bloom.edit.table_commit import THROUGH_LOG
from parquet_bloom.errors import (
    FileChangedError,
    ParquetBloomError,
    RequestError,
    TableFormatError,
    UnknownCommitError,
)
from parquet_bloom.format.arrow_types import leaf_arrays
from parquet_bloom.format.footer import Footer
from parquet_bloom.format.forms import FORMATS
from parquet_bloom.format.provenance import all_ranges
from parquet_bloom.format.schema import join_path, split_path, unknown_column
from parquet_bloom.keys.update import update_index
from parquet_bloom.options import DEFAULT_FORM, PathLike
from parquet_bloom.rows.scan import Scan
from parquet_bloom.source.adapters import NewFile, RowChanges, RowTable
from parquet_bloom.source.history import OPERATION, FilterOptions, History
from parquet_bloom.source.names import TableName
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.source.source import CallSource, open_table
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.workers import Meter, ProgressCallback, WorkerSets, processors, signals_wait

_OLD_CALENDAR = (
    "has dates before 1582-10-15, or times before 1900, by the calendar of old releases of Spark, which a new file "
    "would not say; rewrite the file by Spark first"
)


def change_table_rows(about: CallSource, request: RowsRequest, progress: ProgressCallback | None) -> KeyChanges:
    """Change rows of the latest version of a table. Raises as `delete_keys` and `upsert`."""
    name = about.table_name
    assert name is not None
    _check_kind(name, request.operation, request.columns)
    table = cast(RowTable, open_table(name, replace(about.access, changes=not request.dry_run), about.filesystem))
    snapshot = table.snapshot(stored_only=True)
    work = table.row_changes(snapshot)
    schema = pa.schema([pa.field(field.name, field.type, field.nullable) for field in snapshot.fields])
    rows = None if request.rows is None else _rows_of_table(request.rows, schema, snapshot.table)
    keys, n_deletes = _keys_of(request, rows, schema)
    report = KeyChanges(
        without_secret(name.unversioned), list(request.columns), len(snapshot.files), dry_run=request.dry_run
    )
    among = [n for n, column in enumerate(request.columns) if plain_name(column) not in snapshot.logged]
    if not among:
        reason = "is a partition column, which no file has"
        raise RequestError(f"{request.columns[0]}: {reason}; name a column of the files, too")
    located = Located(0, {})
    if len(keys.numbers) and snapshot.files:
        located = located_rows(CallSource(snapshot), keys, request.index, among)
    change = _Change(snapshot, work, keys, located, n_deletes, request, report, name.kind == "delta")
    found = set(located.rows)
    files = [file for file in snapshot.files if str(file) in found]
    work.check(files)
    try:
        change.rewrite(files, rows, Meter(progress, files), lambda: table.history(snapshot))
        if (change.gone or change.new) and not request.dry_run:
            with signals_wait():
                properties = {OPERATION: request.operation, "parquet-bloom.version": __version__}
                report.commit = work.commit(change.gone, change.new, properties)
    except UnknownCommitError:  # a version may name the new files
        raise
    except BaseException:
        if report.commit is None:
            with contextlib.suppress(ParquetBloomError):
                work.discard()
        raise
    if request.index is not None and report.commit is not None:
        report.notes += _updated(request.index, located, name, about)
    return report


def _check_kind(name: TableName, operation: str, columns: Sequence[str]) -> None:
    """Raise RequestError for DuckLake, whose SQL does the same."""
    shown = without_secret(name.unversioned)
    if name.kind == "ducklake":
        table, same = name.where.rpartition("/")[2], " AND ".join(f"k.{column} = t.{column}" for column in columns)
        sql = f"DELETE FROM {table} t USING keys k WHERE {same}"
        if operation == "upsert":
            sql = f"MERGE INTO {table} t USING rows k ON ({same}) WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
        raise RequestError(f"{shown}: use DuckDB for rows of a DuckLake table: {sql}")


def _rows_of_table(rows: pa.Table, schema: pa.Schema, table: str) -> pa.Table:
    """New rows in the types of a table. Raises RequestError for other columns, types, and NULL where none may be."""
    if sorted(rows.column_names) != sorted(schema.names):
        names = ", ".join(schema.names)
        raise RequestError(f"the rows have the columns {', '.join(rows.column_names)}; {table} has {names}")
    columns = [as_type(field.name, rows[field.name], field.type) for field in schema]
    for field, column in zip(schema, columns, strict=True):
        if column.null_count and not field.nullable:
            raise RequestError(f"{field.name}: a row has NULL, which {table} does not allow there; give it a value")
    return pa.table(columns, schema.names)


def _keys_of(request: RowsRequest, rows: pa.Table | None, schema: pa.Schema) -> tuple[RowKeys, int]:
    """All keys in the types of the table, those to be deleted first, and how many these are."""
    names = request.columns
    paths = [(field.name,) for field in schema]
    for name in names:
        if split_path(name) not in paths:
            raise unknown_column(name, list(map(join_path, paths)))
    deletes = [] if request.deletes is None else arrays_of(names, request.deletes)
    parts: list[list[pa.Array]] = [[] for _ in names]
    types = [schema.field(plain_name(name)).type for name in names]
    kinds = [getattr(one, "storage_type", one) for one in types]
    for of_column, name, array, kind in zip(parts, names, deletes, types, strict=False):  # of these may be none
        of_column.append(as_stored(as_type(name, array, kind)))
    for of_column, name in zip(parts, names, strict=True):
        of_column += [] if rows is None else [as_stored(chunk) for chunk in rows[plain_name(name)].chunks]
    arrays = [pa.chunked_array(some, kind).combine_chunks() for some, kind in zip(parts, kinds, strict=True)]
    return RowKeys(names, dict(zip(names, arrays, strict=True))), len(deletes[0]) if deletes else 0


def _updated(index: PathLike, located: Located, name: TableName, about: CallSource) -> list[str]:
    """Bring an index up to date that was so before; a note where it is behind."""
    shown = without_secret(str(index))
    if located.searched:
        return [f"{shown} did not know {located.searched:,} files of the table and is behind; update_index updates it"]
    access = about.access
    try:
        update_index(
            index,
            name.unversioned,
            filesystem=about.filesystem,
            catalog_properties=access.properties,
            allow_roots=access.allow_roots,
        )
    except ParquetBloomError as error:  # the change is committed
        return [f"{shown} is behind the table: {error}; update_index updates it"]
    return []


@dataclass
class _Change:
    """A change, while it is made.

    n_deletes  of the keys, so many first ones are to be deleted
    is_delta   Spark heeds the calendar that a file of Delta names; Iceberg's readers do not
    """

    snapshot: Snapshot
    work: RowChanges
    keys: RowKeys
    located: Located
    n_deletes: int
    request: RowsRequest
    report: KeyChanges
    is_delta: bool

    def __post_init__(self) -> None:
        self.gone: list[TableFile] = []
        self.new: list[NewFile] = []
        self._deleted = np.zeros(len(self.keys.numbers), bool)  # by the number of a key
        self._deleted[self.keys.numbers[: self.n_deletes]] = True

    def rewrite(self, files: Sequence[TableFile], rows: pa.Table | None, meter: Meter, history: Any) -> None:
        """Write the remaining rows of each file as new files, and the new rows."""
        report, seen = self.report, np.zeros(len(self._deleted), bool)
        with WorkerSets(self.request.threads or processors()) as sets:
            filters = _Filters(self.snapshot, history, sets, self.request.threads)
            for file in files:
                meter.start()
                stored = self._stored(file)
                number = self._keys_in(stored, file)
                has = number >= 0
                if has.any():
                    gone = RewrittenFile(str(file), stored.num_rows, int(has.sum()), file.size)
                    report.deleted += int(self._deleted[number[has]].sum())
                    seen[number[has]] = True
                    self.gone.append(file)
                    report.rewritten.append(gone)
                    old = filters.see(file)
                    if not has.all():
                        rest = stored.filter(pa.array(~has))
                        if old and self.is_delta and (dates := old_dates(rest)):
                            raise TableFormatError(file, f"column {dates[0]} {_OLD_CALENDAR}; nothing was committed")
                        gone.bytes_after = self._write(rest, filters)
                del stored
                meter.finish()
            report.replaced = sum(one.deleted for one in report.rewritten) - report.deleted
            if rows is not None and rows.num_rows:
                if not self.gone and self.snapshot.files:
                    filters.see(self.snapshot.files[-1])
                report.appended = int((~seen & ~self._deleted).sum())
                self._write(rows, filters)
            report.notes += filters.notes

    def _write(self, rows: pa.Table, filters: _Filters) -> int:
        if self.request.dry_run:
            return 0
        new = [filters.added(one) for one in self.work.write(rows)]
        self.new += new
        size = sum(one.file.size for one in new)
        self.report.bytes_written += size
        return size

    def _stored(self, file: TableFile) -> pa.Table:
        """The living rows of a file, under the names and types of the table."""
        source: Any = CallSource(replace(self.snapshot, files=[file]))
        names = [field.name for field in self.snapshot.fields]
        return Scan(source).to_table(names)

    def _keys_in(self, stored: pa.Table, file: TableFile) -> Any:
        """The number of each row's key. Raises FileChangedError where `locate` found other rows."""
        of_columns = []
        for name, values in zip(self.keys.columns, self.keys.distinct, strict=True):
            column = pa.chunked_array([as_stored(chunk) for chunk in stored[plain_name(name)].chunks], values.type)
            found = pc.index_in(column, value_set=values)
            of_columns.append(found.fill_null(-1).to_numpy().astype(np.int64))
        count = int((of_columns[self.located.column] >= 0).sum())
        expected = sum(self.located.rows[str(file)].values())
        if count != expected:
            reason = f"{count} of its rows have the keys, and {expected} were located; nothing was committed"
            raise FileChangedError(file, reason)
        return self.keys.matches(of_columns)


class _Filters:
    """The filters that new files of a table get: on columns that have them by the log, the properties, or old files."""

    def __init__(self, snapshot: Snapshot, history: Any, sets: WorkerSets, threads: int | None) -> None:
        self.notes: list[str] = []
        self._snapshot, self._sets, self._threads = snapshot, sets, threads
        self._columns = TableColumns(snapshot)
        self._had: set[str] = set()
        self._history = history
        self._chosen: tuple[Set[str], Mapping[str, FilterOptions]] | None = None

    def see(self, file: TableFile) -> bool:
        """Notice the filters of an old file; whether its old dates are of another calendar. Raises FileError."""
        with OpenFile(file) as source:
            footer = source.footer()
            here = self._columns.of(file, footer)
            self._had |= {
                here.shown.get(name, name)
                for column in {column for _, column in all_ranges(footer)}
                for name in [footer.leaves[column].name]
            }
            return has_old_calendar(footer)

    def added(self, new: NewFile) -> NewFile:
        """A new file, with its filters. Raises FileError."""
        file = new.file
        for request in self._requests():
            with OpenFile(file) as source:
                names = self._columns.of(file, source.footer())
            asked, _ = self._columns.request_for(request, file, names)
            if asked.columns:
                report = AddToFile(asked, self._sets, THROUGH_LOG)(file, file, False).report
                file = replace(file, size=report.bytes_after)
        return NewFile(file, new.entry)

    def _requests(self) -> list[Request]:
        chosen, options = self._by_log()
        usual = FilterOptions(DEFAULT_FORM, FORMATS[DEFAULT_FORM].fpp)
        shared: dict[tuple[Any, int | None], dict[str, Any]] = {}
        known = {leaf.name for leaf in self._columns.leaves if leaf.refusal is None}
        for name in sorted((self._had | chosen) & known):
            of = options.get(name, usual)
            of = usual if of.spec not in FORMATS else of
            shared.setdefault((of.spec, of.max_bytes), {})[name] = of.fpp
        how: Any = {"in_place": True, "threads": self._threads}
        return [
            Request.checked(columns=list(rates), fpp=rates, spec=spec, max_bytes=most, **how)
            for (spec, most), rates in shared.items()
        ]

    def _by_log(self) -> tuple[Set[str], Mapping[str, FilterOptions]]:
        """Columns that get filters by the log or the table's properties, and the options of each."""
        if self._chosen is None:
            by_table, notes = request_for_source(self._snapshot, Request.checked())
            chosen: Set[str] = set(by_table.columns or ())
            rates = by_table.fpp if isinstance(by_table.fpp, Mapping) else {}
            options = {
                name: FilterOptions(DEFAULT_FORM, cast(Any, rates.get(name, by_table.form.fpp)), by_table.max_bytes)
                for name in chosen
            }
            try:
                past: History = self._history()
            except ParquetBloomError as error:
                past = History()
                notes = [*notes, f"{error}; new files have filters on columns of the old files alone"]
            for commit in past.commits:
                chosen = chosen | commit.columns if commit.operation == "add" else chosen - commit.columns
            self._chosen = chosen, {**past.options(), **options}
            self.notes += notes
        return self._chosen


# --- old dates of Spark ---------------------------------------------------------------------------
#
# Days that count by another calendar, as a key-value of the file says, which a new file has not. Spark 2, and later
# ones with spark.sql.parquet.datetimeRebaseModeInWrite=LEGACY, wrote days of the Julian calendar before 1582-10-15, and
# times before 1900 by local mean times. Spark reads such files by these rules, and no others.
# Source: Spark's DataSourceUtils.datetimeRebaseSpec.

_MARKS = ("org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96")
_VERSION = "org.apache.spark.version"
_OLD = re.compile(r"[12]\.|3\.0\.")  # 3.0 wrote INT96 by the old calendar
_FIRST_DAY, _FIRST_TIME = date(1582, 10, 15), datetime(1900, 1, 1)  # that both calendars count alike


def has_old_calendar(footer: Footer) -> bool:
    """Whether Spark takes old dates of a file for those of the Julian calendar."""
    pairs = {pair.key: pair.value for pair in footer.key_values or ()}
    return any(mark in pairs for mark in _MARKS) or _OLD.match(pairs.get(_VERSION) or "") is not None


def old_dates(rows: pa.Table) -> list[str]:
    """The columns with a date or a time that the two calendars count differently."""
    return [
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if any(_is_old(part) for chunk in column.chunks for part in leaf_arrays(chunk))
    ]


def _is_old(array: pa.Array) -> bool:
    if pa.types.is_date(array.type):
        first = pa.scalar(_FIRST_DAY, array.type)
    elif pa.types.is_timestamp(array.type):
        first = pa.scalar(_FIRST_TIME, pa.timestamp(array.type.unit)).cast(pa.int64()).cast(array.type)
    else:
        return False
    return bool(pc.any(pc.less(array, first)).as_py())
