"""A Delta table's snapshot against deltalake's own rows, and its bounds against every value of every file."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from support import delta_tables as made
from support.repeats import first_then_more, more_then_slow

from parquet_bloom.source.columns import leaves_of, schema_of
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.tables.delta.table import open_delta


def stored(file: TableFile) -> pa.Table:
    """All rows of a file as it has them."""
    with open(file.path, "rb") as opened:
        table = pq.ParquetFile(opened).read()
    return table.cast(pa.schema([pa.field(field.name, plain(field.type)) for field in table.schema]))


def plain(kind: pa.DataType) -> pa.DataType:
    """deltalake's compaction writes views, which pyarrow takes no rows of."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def rows_of(snapshot: Snapshot) -> pa.Table:
    """The rows of a snapshot by the simplest way there is; columns by name."""
    schema = schema_of(snapshot.fields)
    parts = []
    for file in snapshot.files:
        table = stored(file)
        live = pa.array(range(table.num_rows), pa.int64())
        if file.deletes is not None:
            live = live.filter(pc.invert(pc.is_in(live, value_set=pa.array(file.deletes.positions()))))
        table = table.take(live)
        columns = []
        for field in schema:
            if field.name in file.constants:
                columns.append(pa.repeat(file.constants[field.name], table.num_rows))
            elif field.name in table.column_names:
                columns.append(table[field.name].combine_chunks().cast(field.type))
            else:
                columns.append(pa.nulls(table.num_rows, field.type))
        parts.append(pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in schema])))
    return pa.concat_tables(parts) if parts else schema.empty_table()


def texts_of(table: pa.Table) -> list[str]:
    """Rows as texts in an order: NaN is itself then, and nested values compare."""
    return sorted(repr([row[name] for name in sorted(row)]) for row in table.to_pylist())


def place(value: Any, kind: pa.DataType) -> Any:
    """A stored value in the leaf's order."""
    if isinstance(value, Decimal):
        return int(value.scaleb(kind.scale, made.WIDE))
    if isinstance(value, dt.datetime):
        return pa.scalar(value, kind).value
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    if isinstance(value, str):
        return value.encode()
    return value


def check_bounds(snapshot: Snapshot) -> int:
    """Hold every bound against every value of its file; returns how many there were."""
    leaves, seen = {leaf.path for leaf in leaves_of(snapshot.fields)}, 0
    for file in snapshot.files:
        table = stored(file)
        assert file.rows in (None, table.num_rows), "deleted rows are counted too"
        for path, bounds in file.bounds.items():
            assert path in leaves, f"{path} is no leaf of the table"
            column = table[path[0]].combine_chunks()
            for name in path[1:]:
                column = pc.struct_field(column, name)
            values = [place(value, column.type) for value in column.to_pylist() if value is not None]
            if bounds.null_count is not None:
                assert bounds.null_count == len(column) - len(values), f"{path}: null counts must be exact"
            if not bounds.has_values:
                assert not values, f"{path} was said to be NULL alone"
            for value in values:
                if isinstance(value, float) and math.isnan(value):
                    assert not bounds.nan_free, f"{path} holds NaN"
                    continue
                assert bounds.lower is None or bounds.lower <= value, f"{path}: {value!r} lies below {bounds.lower!r}"
                assert bounds.upper is None or value <= bounds.upper, f"{path}: {value!r} lies above {bounds.upper!r}"
                seen += bounds.lower is not None or bounds.upper is not None
    return seen


def check_walk(root: Path, seed: int, steps: int) -> int:
    made.random_table(root, random.Random(seed), steps)
    seen = 0
    for version in range(DeltaTable(str(root)).version() + 1):
        snapshot = open_delta(str(root), str(version)).snapshot()
        theirs = DeltaTable(str(root), version=version)
        assert snapshot.version == str(version)
        assert sorted(file.path for file in snapshot.files) == sorted(
            uri.removeprefix("file://") for uri in theirs.file_uris()
        )
        assert texts_of(rows_of(snapshot)) == texts_of(theirs.to_pyarrow_table()), f"version {version} of seed {seed}"
        seen += check_bounds(snapshot)
    return seen


def check_vectors(root: Path, seed: int) -> None:
    """Rows that vectors delete, twice over, by deltalake's own engine."""
    rng = random.Random(seed)
    made.random_table(root, rng, 5)
    version = DeltaTable(str(root)).version() + 1
    protocol = DeltaTable(str(root)).protocol()
    named = {*(protocol.reader_features or ()), "deletionVectors"}
    made.commit(root, version, made.protocol(sorted(named), sorted({*(protocol.writer_features or ()), *named})))
    gone: dict[str, list[int]] = {}
    for step in (1, 2):
        adds = []
        for file in open_delta(str(root), None).snapshot().files:
            if rng.random() < 0.7:
                adds.append(add_of(file) | {"gone": gone.get(file.path, [])})
        found = made.delete_by_vectors(root, version + step, rng, adds)
        paths = {file.entry.path: file.path for file in open_delta(str(root), None).snapshot().files}
        gone |= {paths[add["path"]]: positions for add, positions in zip(adds, found, strict=True)}
        snapshot = open_delta(str(root), None).snapshot()
        for file in snapshot.files:
            assert ([] if file.deletes is None else file.deletes.positions().tolist()) == gone.get(file.path, [])
        theirs = QueryBuilder().register("t", DeltaTable(str(root))).execute("SELECT row FROM t").read_all()
        assert sorted(rows_of(snapshot)["row"].to_pylist()) == sorted(pa.table(theirs)["row"].to_pylist())
        check_bounds(snapshot)


def add_of(file: TableFile) -> dict[str, Any]:
    """The add action that gave an entry."""
    entry = file.entry
    fields = made.add(entry.path, entry.values, entry.stats, size=entry.size)["add"]
    if (vector := entry.vector) is not None:
        told = {"storageType": vector.kind, "pathOrInlineDv": vector.text, "sizeInBytes": vector.size}
        fields["deletionVector"] = told | {"cardinality": vector.rows}
        fields["deletionVector"] |= {} if vector.offset is None else {"offset": vector.offset}
    return fields


@pytest.mark.parametrize("seed", [*first_then_more(range(3), 1), *more_then_slow(range(10, 60), 2)])
def test_rows_that_vectors_delete_are_deltalakes(tmp_path, seed):
    check_vectors(tmp_path / "t", seed)


@pytest.mark.parametrize("seed", first_then_more(range(5), 2))
def test_rows_are_deltalakes_and_bounds_hold(tmp_path, seed):
    assert check_walk(tmp_path / "t", seed, 8) > 20, "bounds that nobody gives cannot be wrong"


@pytest.mark.parametrize("seed", more_then_slow(range(100, 160), 2))
def test_rows_are_deltalakes_and_bounds_hold_in_more_tables(tmp_path, seed):
    check_walk(tmp_path / "t", seed, 16)
