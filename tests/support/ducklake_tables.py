"""DuckLake itself, for tests: DuckDB with the extension, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.values import operand
from parquet_bloom.source.columns import leaves_of
from parquet_bloom.source.snapshot import Field, FileBounds, Snapshot, TableFile
from parquet_bloom.storage.remote import arrow_of
from support.duckdb_process import DuckDBError as DuckLakeError
from support.duckdb_process import duckdb_with

REQUIRED = "PARQUET_BLOOM_REQUIRE_DUCKLAKE"  # set where a test must not be skipped, as in CI
NOTHING_INLINED = "CALL lake.set_option('data_inlining_row_limit', 0)"

__all__ = [
    "NOTHING_INLINED", "DuckLakeError", "Lake", "fill", "live_rows", "sorted_rows", "stored_rows", "unsound",
]  # fmt: skip


class Lake:
    """A DuckLake: its catalog, its files, and a connection of DuckDB's to it.

    catalog      path of the DuckDB or SQLite file
    allow_roots  what a user has to allow of it, since the catalog names files outside of `data`
    """

    def __init__(self, folder: Path, sqlite: bool, *options: str, connection: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.catalog = folder / ("meta.sqlite" if sqlite else "meta.ducklake")
        self.data = folder / "data"
        self.allow_roots: tuple[str, ...] = ()
        self._connection = f"{self.catalog}{connection}"
        attach = f"sqlite:{self.catalog}" if sqlite else str(self.catalog)
        given = ", ".join([f"DATA_PATH '{self.data}/'", *options])
        self._begin = (f"ATTACH 'ducklake:{attach}' AS lake ({given})", "USE lake")

    def _ask(self, sql: str | None) -> list[Any]:
        duckdb = duckdb_with("ducklake", "sqlite_scanner", required=REQUIRED)
        return duckdb.ask(sql, self._connection, self._begin, ("USE memory", "DETACH lake"))

    def sql(self, *statements: str) -> list[Any]:
        """Run statements; the rows of the last one."""
        rows: list[Any] = []
        for statement in statements:
            rows = self._ask(statement)
        return rows

    def release(self) -> Lake:
        """Close the catalog, so that others may open it; the next statement opens it again."""
        self._ask(None)
        return self

    def name(self, table: str = "main.t") -> str:
        """As our functions name a table of it."""
        return f"{self.catalog}/{table}"

    def answer(self, query: str) -> list[dict[str, Any]]:
        """The rows that DuckLake gives, as pyarrow has them."""
        path = self.folder / "answer.parquet"
        self.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
        return pq.ParquetFile(path).read().to_pylist()

    def snapshots(self) -> list[int]:
        """All that have not expired."""
        return [row[0] for row in self.sql("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1")]


def fill(lake: Lake) -> None:
    """A table main.t (id, k) with a row in each table of the catalog that is read."""
    lake.data.mkdir()
    lake.sql(
        "CREATE TABLE t (id BIGINT, k VARCHAR)",
        f"COPY (SELECT 500 AS id, 'b' AS k) TO '{lake.data / 'more.parquet'}' (FORMAT parquet)",
        f"CALL ducklake_add_data_files('lake', 't', '{lake.data / 'more.parquet'}')",
        "ALTER TABLE t SET PARTITIONED BY (k, bucket(3, id))",
        "INSERT INTO t SELECT i, 'a' || i % 2 FROM range(100) r(i)",
        "DELETE FROM t WHERE id = 5",
        "INSERT INTO t VALUES (1000, 'inlined')",
    )


# --- what a snapshot of ours says, read without any of our readers ----------------------------


def stored_rows(snapshot: Snapshot, file: TableFile) -> list[dict[str, Any]]:
    """All rows of a file as rows of the table, deleted ones too."""
    with pq.ParquetFile(file.path if file.is_local else arrow_of(file.filesystem).open_input_file(file.path)) as opened:
        table = opened.read()
    fields = file.fields or snapshot.fields
    inside = list(table.schema)
    columns = {}
    for field in fields:
        found = _found(field, inside, bool(file.fields))
        if found is None and field.name in file.constants:
            columns[field.name] = [file.constants[field.name].as_py()] * table.num_rows
        else:
            values = table.column(inside.index(found)).to_pylist() if found is not None else [None] * table.num_rows
            columns[field.name] = [_value(field, found, value, bool(file.fields)) for value in values]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def live_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The rows of the table."""
    rows = []
    for file in snapshot.files:
        gone = set(file.deletes.positions().tolist()) if file.deletes is not None else set()
        if file.deletes is not None and file.deletes.rows is not None:
            assert file.deletes.rows == len(gone), "counts are taken from this without a look at the deletes"
        stored = stored_rows(snapshot, file)
        assert file.rows == len(stored), "counts are taken from this without a look at the file"
        rows += [row for i, row in enumerate(stored) if i not in gone]
    return rows


def _found(field: Field, inside: list[pa.Field], by_name: bool) -> pa.Field | None:
    if by_name:
        return next((one for one in inside if one.name == (field.physical or field.name)), None)
    return next(
        (one for one in inside if (one.metadata or {}).get(b"PARQUET:field_id") == b"%d" % field.field_id), None
    )


def _value(field: Field, found: pa.Field | None, value: Any, by_name: bool) -> Any:
    if found is None:
        return field.default.as_py() if field.default is not None else None
    if value is None or not field.children:
        return value
    if pa.types.is_struct(field.type):
        pairs = [(child, _found(child, list(found.type), by_name)) for child in field.children]
        return {one.name: _value(one, at, value[at.name] if at is not None else None, by_name) for one, at in pairs}
    if pa.types.is_list(field.type):
        return [_value(field.children[0], found.type.value_field, one, by_name) for one in value]
    key, item = field.children
    return [
        (_value(key, found.type.key_field, k, by_name), _value(item, found.type.item_field, v, by_name))
        for k, v in value
    ]


def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in an order of their own; NaN equals NaN, 1.50 equals 1.5."""
    return sorted(repr(_plain(row)) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.normalize() if isinstance(value, Decimal) else value


def leaf_values(field: Field, value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and value of each leaf in one value of a column; of an empty list nothing."""
    path = (*above, field.name)
    if not field.children:
        yield path, value
    elif pa.types.is_struct(field.type):
        for child in field.children:
            yield from leaf_values(child, value[child.name] if value is not None else None, path)
    elif pa.types.is_list(field.type):
        for one in value or ():
            yield from leaf_values(field.children[0], one, (*path, "list"))
    else:
        for pair in value or ():
            for child, one in zip(field.children, pair, strict=True):
                yield from leaf_values(child, one, (*path, "key_value"))


def unsound(snapshot: Snapshot) -> list[str]:
    """What a snapshot says of a file, and a row of the file denies."""
    leaves = {leaf.path: leaf for leaf in leaves_of(snapshot.fields)}
    wrong = []
    for file in snapshot.files:
        values: dict[tuple[str, ...], list[Any]] = {}
        rows = stored_rows(snapshot, file)
        for row in rows:
            for field in snapshot.fields:
                for path, value in leaf_values(field, row[field.name]):
                    values.setdefault(path, []).append(value)
        for name, constant in file.constants.items():
            if any(row[name] != constant.as_py() for row in rows):
                wrong.append(f"{file}: {name} is not always {constant}")
        for path, bounds in file.bounds.items():
            told = _denied(bounds, values.get(path, []), leaves[path])
            wrong += [f"{file}: {path} {bounds}: {reason}" for reason in told]
        for bucket in file.buckets:
            for value in values[bucket.path]:
                if value is not None and not bucket.admits(leaves[bucket.path], operand(value, leaves[bucket.path])):
                    wrong.append(f"{file}: {bucket} denies {value!r}")
    return wrong


def _denied(bounds: FileBounds, values: list[Any], leaf: Leaf) -> Iterator[str]:
    if bounds.null_count is not None and bounds.null_count != values.count(None):
        yield f"{values.count(None)} NULLs"
    if not bounds.has_values and any(value is not None for value in values):
        yield "there are values"
    for value in values:
        if isinstance(value, float) and value != value:
            if bounds.nan_free:
                yield "there is a NaN"
        elif value is not None and (place := operand(value, leaf)).known:
            if bounds.lower is not None and not bounds.lower <= place.lower:
                yield f"{value!r} is lower"
            if bounds.upper is not None and not bounds.upper >= place.upper:
                yield f"{value!r} is higher"
