"""Tables whose columns were renamed, dropped, added again and promoted: rows and counts against brute force."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from support.evolving_tables import Evolving, a_tree, evolved
from support.kleene import answers, stored
from support.repeats import more_then_slow

import parquet_bloom
from parquet_bloom.errors import RequestError
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.source import source


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the name delta:made mean a table made by hand."""

    def name(table: Evolving) -> str:
        class Made:
            name = "delta:made"

            def snapshot(self, stored_only: bool = False) -> Any:
                return snapshot

        snapshot = table.snapshot()
        monkeypatch.setattr(source, "open_table", lambda *_: Made())
        return "delta:made"

    return name


def types_of(table: Evolving) -> dict[tuple[str, ...], pa.DataType]:
    types = {(one.name,): one.arrow for one in table.columns}
    return types | {(one.name, child.name): child.type for one in table.columns for child in one.children}


def expected(table: Evolving, tree: Predicate) -> pa.Table:
    """The rows for which a predicate is TRUE, one by one."""
    whole = table.table()
    rows = [{name: stored(whole[name][i]) for name in whole.column_names} for i in range(whole.num_rows)]
    types = types_of(table)
    kept = [i for i, row in enumerate(rows) if answers(tree, row, types) == frozenset((True,))]
    return whole.take(kept) if kept else whole.slice(0, 0)


def check_table(seed: int, folder: Path, opened: Any, predicates: int) -> None:
    table = evolved(seed, folder)
    name = opened(table)
    whole = table.table()
    read = parquet_bloom.read_table(name)
    assert read.schema.equals(whole.schema), seed
    assert shown(read) == shown(whole), f"seed {seed}: all rows, in the order of the log"
    assert parquet_bloom.count(name) == whole.num_rows
    rng = Random(seed)
    for nth in range(predicates):
        tree = a_tree(table, rng)
        rows = expected(table, tree)
        found = parquet_bloom.read_table(name, tree)
        assert shown(found) == shown(rows), f"seed {seed}, predicate {nth}: {tree}"
        assert parquet_bloom.count(name, tree) == rows.num_rows, f"seed {seed}, predicate {nth}: {tree}"
        batches = list(parquet_bloom.read_batches(name, tree, [table.columns[0].name], None, 5))
        assert sum(map(len, batches)) == rows.num_rows
        assert all(len(batch) <= 5 for batch in batches)


def shown(table: pa.Table) -> list[str]:
    """Rows as texts: NaN is like itself, and zeros have a sign."""
    return [repr(row) for row in table.to_pylist()]


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_table_that_changed(seed: int, tmp_path: Path, opened: Any) -> None:
    check_table(seed, tmp_path, opened, 6)


@pytest.mark.parametrize("seed", more_then_slow(range(1000, 1400), 2))
def test_rows_of_many_tables_that_changed(seed: int, tmp_path: Path, opened: Any) -> None:
    check_table(seed, tmp_path, opened, 40)


@pytest.mark.parametrize("by_id", [True, False])
def test_defaults_of_added_columns_are_evidence_as_well(by_id: bool, tmp_path: Path, opened: Any) -> None:
    """A file that lacks a column is not one whose column is NULL."""
    table = Evolving(tmp_path, Random(1), by_id)
    table.start()
    table.append()
    place = next(one for one in table.columns if one.children)
    inner, outer = table.new("z", pa.int64()), table.new("added", pa.string())
    inner.default, outer.default = 5, "ab"
    place.children.append(inner)
    table.columns.append(outer)
    name, whole = opened(table), table.table()
    assert parquet_bloom.count(name, "added = 'ab'") == whole.num_rows > 0
    assert parquet_bloom.count(name, "added <> 'ab' OR added IS NULL") == 0
    assert parquet_bloom.count(name, "added = 'zz'") == 0
    placed = sum(place is not None for place in whole["place"].to_pylist())
    assert parquet_bloom.count(name, "place.z = 5") == placed > 0
    assert parquet_bloom.count(name, "place.z = 6") == 0
    assert len(parquet_bloom.prune(name, column="added", values=["ab"])) == 1
    assert parquet_bloom.prune(name, column="added", values=["zz"]) == []


@pytest.mark.parametrize("default", [None, 5])
def test_a_data_set_cannot_tell_the_default_of_a_nested_field(default: Any, tmp_path: Path, opened: Any) -> None:
    """pyarrow gives NULL for what a struct lacks."""
    table = Evolving(tmp_path, Random(2), by_id=True)
    table.start()
    table.append()
    place, inner = next(one for one in table.columns if one.children), table.new("z", pa.int64())
    inner.default = default
    place.children.append(inner)
    table.files = [(file, rows, [False] * len(rows)) for file, rows, _ in table.files]
    name = opened(table)
    if default is None:
        assert shown(parquet_bloom.dataset(name).to_table()) == shown(table.table())
    else:
        with pytest.raises(RequestError, match=r"0\.parquet lacks place\.z, which has a default"):
            parquet_bloom.dataset(name)
