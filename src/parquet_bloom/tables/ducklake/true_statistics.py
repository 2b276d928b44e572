"""A DuckLake catalog's statistics of columns, as they are stated and as the stored values have them.

    ducklake_file_column_stats    of one file: written anew, where the row states anything
    ducklake_table_column_stats   of all files, for DuckDB's optimizer: widened, so that they hold of this file too

No snapshot is added. So the statistics of the file are right at each snapshot that it is in.
Source: the DuckLake 1.0 specification, "ducklake_file_column_stats" and "ducklake_table_column_stats".
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from parquet_bloom.format.schema import Leaf
from parquet_bloom.source.columns import leaves_of
from parquet_bloom.source.snapshot import Change, FileBounds, LeafPath, TableFile
from parquet_bloom.source.truth import LeafTruth
from parquet_bloom.tables.ducklake.catalog import ANY, COUNT, NUMBER, TEXT, Queries
from parquet_bloom.tables.ducklake.columns import INTEGERS, Column, columns_of, is_exact
from parquet_bloom.tables.ducklake.evidence import ColumnStatistics, place_of, stated_bounds
from parquet_bloom.tables.ducklake.reading import TableRow

_FILE, _TABLE = "ducklake_file_column_stats", "ducklake_table_column_stats"
_OF_FILE = {
    "column_id": NUMBER,
    "value_count": COUNT.or_null,
    "null_count": COUNT.or_null,
    "min_value": TEXT.or_null,
    "max_value": TEXT.or_null,
    "contains_nan": ANY,
}
_OF_TABLE = {
    "column_id": NUMBER,
    "contains_null": ANY,
    "contains_nan": ANY,
    "min_value": TEXT.or_null,
    "max_value": TEXT.or_null,
}
_EPOCH = dt.datetime(1970, 1, 1)


class CatalogStatistics:
    """The statistics of one table's columns, within a transaction."""

    def __init__(self, queries: Queries, row: TableRow) -> None:
        self._queries, self._table = queries, row.id
        columns = columns_of(queries, row.name, row.id, row.snapshot)
        leaves = {leaf.path: leaf for leaf in leaves_of(columns.fields)}
        self._columns: dict[LeafPath, tuple[Column, Leaf]] = {
            path: (columns.by_id[number], leaves[path]) for number, path in columns.leaves.items() if path in leaves
        }

    def stated(self) -> Callable[[TableFile], Mapping[LeafPath, FileBounds]]:
        """As source.snapshot.Table has it; all is read at once."""
        rows = self._queries.rows(_FILE, {"data_file_id": NUMBER, **_OF_FILE}, "table_id = ?", [self._table])
        found: dict[int, dict[LeafPath, FileBounds]] = {}
        paths = {column.id: path for path, (column, _) in self._columns.items()}
        for file, number, *of in rows:
            if number in paths:
                column, leaf = self._columns[paths[number]]
                one = ColumnStatistics(number, *of)
                found.setdefault(file, {})[paths[number]] = stated_bounds(one, column, leaf)
        return lambda file: found.get(file.entry.id, {})

    def write(self, change: Change) -> None:
        """Write the true statistics of a change's file, and widen those of the table."""
        for table, values, number, where in self._changes(change):
            sets = ", ".join(f"{name} = ?" for name in values)
            of = f"UPDATE {self._queries.table(table)} SET {sets} WHERE table_id = ? AND column_id = ?"
            self._queries.run(of + where[0], [*values.values(), self._table, number, *where[1]])

    def has(self, change: Change) -> bool:
        """Whether the catalog has all that `write` would write."""
        return not any(self._changes(change))

    def _changes(self, change: Change) -> Iterator[tuple[str, dict[str, Any], int, tuple[str, list[int]]]]:
        """Table, new values by name, column id, further condition; of each row that differs."""
        file = change.file.entry.id
        of_file = self._read(_FILE, _OF_FILE, " AND data_file_id = ?", [file])
        of_table = self._read(_TABLE, _OF_TABLE)
        for path, true in change.truth.items():
            column, leaf = self._columns.get(path, (None, None))
            if column is None or leaf is None:
                continue
            if (old := of_file.get(column.id)) is not None:
                new = _of_file(old, true, column, leaf)
                if new != {name: old[name] for name in new}:
                    yield _FILE, new, column.id, (" AND data_file_id = ?", [file])
            if (old := of_table.get(column.id)) is not None:
                new = _of_table(old, true, column, leaf)
                if new != {name: old[name] for name in new}:
                    yield _TABLE, new, column.id, ("", [])

    def _read(self, table: str, columns: Any, where: str = "", more: list[int] | None = None) -> dict[int, Any]:
        if not self._queries.has(table):
            return {}
        rows = self._queries.rows(table, columns, "table_id = ?" + where, [self._table, *(more or [])])
        return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}


def _of_file(old: Mapping[str, Any], true: LeafTruth, column: Column, leaf: Leaf) -> dict[str, Any]:
    new: dict[str, Any] = {}
    for name, bound in zip(("min_value", "max_value"), true.bounds, strict=True):
        if old[name] is not None:
            new[name] = text_of(bound, column, leaf)
    if true.nulls is not None and old["null_count"] is not None:
        new |= {"null_count": true.nulls, "value_count": true.values}
    if leaf.float_bits and old["contains_nan"] is not None:
        new["contains_nan"] = true.nans > 0
    return new


def _of_table(old: Mapping[str, Any], true: LeafTruth, column: Column, leaf: Leaf) -> dict[str, Any]:
    new: dict[str, Any] = {}
    for name, bound in zip(("min_value", "max_value"), true.bounds, strict=True):
        stated = place_of(old[name], column, leaf) if column.comparable else None
        if old[name] is None or (not true.values and true.in_order):
            continue
        is_low = name == "min_value"
        if stated is None or bound is None or (stated.lower > bound if is_low else stated.upper < bound):
            new[name] = text_of(bound, column, leaf)
    if true.nulls and old["contains_null"] is not None:
        new["contains_null"] = True
    if true.nans and old["contains_nan"] is not None:
        new["contains_nan"] = True
    return new


def text_of(place: Any, column: Column, leaf: Leaf) -> str | None:
    """A position as the catalog has it, by our own reading; None where there is none, or that is not sure."""
    if place is None or not column.comparable:
        return None
    try:
        text = _text(place, column.type, leaf)
    except (OverflowError, UnicodeDecodeError, ValueError):
        return None
    back = place_of(text, column, leaf) if text is not None and "\0" not in text else None
    return text if back is not None and back.lower <= place <= back.upper else None


def _text(place: Any, name: str, leaf: Leaf) -> str | None:
    if name in INTEGERS:
        return str(place)
    if is_exact(name):
        return f"{Decimal(f'{place}E{-leaf.scale}'):f}"
    if name in ("float32", "float64"):
        return repr(float(place))
    if name in ("varchar", "json"):
        return bytes(place).decode()
    if name == "boolean":
        return str(int(place))
    if name == "uuid":
        return str(uuid.UUID(bytes=bytes(place)))
    if name in ("time", "time_ns"):
        seconds, rest = divmod(place * leaf.unit_ns, 10**9)
        return f"{dt.timedelta(seconds=seconds)!s:0>8}" + _fraction(rest) if seconds < 86_400 else None
    if name == "date":
        return (dt.date(1970, 1, 1) + dt.timedelta(days=place)).isoformat()
    if name.startswith("timestamp"):
        seconds, rest = divmod(place * leaf.unit_ns, 10**9)
        time = (_EPOCH + dt.timedelta(seconds=seconds)).isoformat(" ")
        return time + _fraction(rest) + ("+00" if name == "timestamptz" else "")
    return None


def _fraction(nanoseconds: int) -> str:
    return f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
