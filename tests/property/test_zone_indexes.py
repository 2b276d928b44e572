"""Random predicates over every type: a zone index never loses a row, and reading by it gives the very rows.

One table, in which few values make up each stretch of rows, so that zones differ; truth is pyarrow's own
arithmetic over every row, and a read without an index.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from support.tables import KINDS, LISTS, NESTED, trees

import parquet_bloom
import parquet_bloom.lance as zones
from parquet_bloom.errors import RequestError
from parquet_bloom.format.schema import join_path
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.rows import matching
from parquet_bloom.zones.query import IndexedScan

ROWS, ZONE, FILES = 600, 7, 3
REFUSED = {"f16", "d5", "d38", "fixed", "uuid", "flag"}
INDEXED = [(name,) for name in KINDS if name not in REFUSED] + list(NESTED)
Made = tuple[Path, pa.Table]


def _values(rng: Random, kind: pa.DataType, values: list[object]) -> pa.Array:
    """A few values for each stretch of ten rows, nulls in some."""
    chosen: list[object] = []
    while len(chosen) < ROWS:
        few = [rng.choice(values) for _ in range(rng.randint(1, 2))] + [None] * (rng.random() < 0.3)
        chosen += [rng.choice(few) for _ in range(10)]
    if pa.types.is_dictionary(kind):
        return pa.array(chosen, kind.value_type).cast(kind)
    if pa.types.is_float16(kind):
        return pa.array(chosen, pa.float64()).cast(pa.float32()).cast(kind)
    return pa.array(chosen, kind)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("zones")
    (folder / "data").mkdir()
    rng = Random(4)
    columns = {"row": pa.array(range(ROWS))}
    for name, kind in KINDS.items():
        columns[name] = _values(rng, kind[0], kind[1])
    for path, kind in NESTED.items():
        inner = _values(rng, kind[0], kind[1])
        if len(path) > 1:
            missing = pa.array([rng.random() < 0.1 for _ in range(ROWS)])
            columns[path[0]] = pa.StructArray.from_arrays([inner], [path[1]], mask=missing)
        else:
            columns[path[0]] = inner
    for path, kind in LISTS.items():
        size = 2 if pa.types.is_fixed_size_list(kind[0]) else None
        lists = [[rng.choice(kind[1]) for _ in range(size or rng.randint(0, 2))] for _ in range(ROWS)]
        columns[path[0]] = pa.array(lists, kind[0])
    table = pa.table(columns)
    each = ROWS // FILES
    for i in range(FILES):
        pq.write_table(
            table.slice(i * each, each), folder / f"data/{i}.parquet", row_group_size=75, use_dictionary=i == 1,
            data_page_size=40, write_batch_size=10, write_page_index=True, compression="none",
            write_statistics=i != 2,
        )  # fmt: skip
    names = [join_path(path) for path in INDEXED]
    zones.build_index(folder / "data", names, folder / "out", items=ZONE, probability=1e-5)
    return folder, pq.read_table(folder / "data")


@pytest.fixture(autouse=True)
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups as small as these are read by pages, as large ones are."""
    monkeypatch.setattr(matching, "_LEAST", 0)
    monkeypatch.setattr(matching.Reading, "_page_rows", lambda self, piece: 8)


@pytest.mark.parametrize(
    "examples", [pytest.param(10, marks=pytest.mark.smoke), pytest.param(25, marks=pytest.mark.more)]
)
def test_no_row_is_lost_and_none_is_added(made: Made, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(tree=trees(depth=2))
    def hold(tree: object) -> None:
        rows_are_those_of_brute_force(made, tree)

    hold()


def rows_are_those_of_brute_force(made: Made, tree: object) -> None:
    folder, table = made
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mask = row_filter(tree, table.schema).mask(table.combine_chunks().to_batches()[0])
    except RequestError:
        assume(False)
    truth = mask.fill_null(False).to_numpy(zero_copy_only=False)
    kept = np.zeros(ROWS, bool)
    for zone in zones.query_index(folder / "out", tree, check=False).zones:
        at = zone.fragment * (ROWS // FILES) + zone.start
        kept[at : at + zone.length] = True
    assert not np.any(truth & ~kept), str(tree)
    scan = IndexedScan(folder / "data", tree, folder / "out")
    assert scan.to_table(["row"])["row"].to_pylist() == np.flatnonzero(truth).tolist(), str(tree)
    assert parquet_bloom.count(folder / "data", tree, index=folder / "out") == int(truth.sum())


def test_they_tell_something(made: Made) -> None:
    """Of each column some value that is in few zones leaves few zones, and few pages."""
    folder, table = made
    left = 0
    for path in INDEXED:
        found = zones.query_index(folder / "out" / join_path(path), f"{join_path(path)} IS NULL")
        assert 0 < len(found.zones) < found.total_zones
    for i in range(0, ROWS, 120):
        value = table["i64"][i].as_py()
        if value is not None:
            scan = IndexedScan(folder / "data", f"i64 = {value}", folder / "out/i64")
            assert scan.to_table().num_rows
            left += scan.pages.left
    assert left
