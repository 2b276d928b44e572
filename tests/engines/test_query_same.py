"""Queries find the same rows in the file with our filters as in the source, whatever is asked.

Random tables of keys in several row groups, random layouts; keys that are there, that are elsewhere,
and that are nowhere. Python counts the rows, so that an engine's own error would show as well.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines import made
from engines.asking import DataFusion, DuckDB, duckdb, polars_count
from engines.spelling import spelled
from parquet_bloom import add_filters

INT64 = st.integers(-(2**63), 2**63 - 1)
KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), INT64),
    "uint32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "string": (pa.string(), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)),
    "binary": (pa.binary(), st.binary(max_size=9)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "decimal": (pa.decimal128(18, 2), st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-2))),
    "date": (pa.date32(), st.integers(-700_000, 2_900_000)),
    "timestamp": (pa.timestamp("us"), st.integers(-(6 * 10**16), 25 * 10**16)),
}


@dataclass(frozen=True)
class Case:
    kind: pa.DataType
    row_groups: list[list[Any]]
    absent: list[Any]
    layout: made.Layout
    placement: str
    fpp: float

    def scalars(self) -> pa.Array:
        """Every key, stored or not, once."""
        keys = [key for group in self.row_groups for key in group if key is not None] + self.absent
        return pa.array(keys, self.kind).unique()

    def rows(self, wanted: list[pa.Scalar]) -> int:
        stored = Counter(key for group in self.row_groups for key in pa.array(group, self.kind).to_pylist())
        return sum(stored[key] for key in {scalar.as_py() for scalar in wanted})


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Up to four row groups of keys from one small pool, with repetitions and nulls."""
    kind, keys = KEYS[draw(st.sampled_from(sorted(KEYS)))]
    pool = draw(st.lists(keys, min_size=2, max_size=30, unique=True))
    stored = st.sampled_from([*pool[1:], None])
    row_groups = draw(st.lists(st.lists(stored, min_size=1, max_size=40), min_size=1, max_size=4))
    layout = made.Layout(
        codec=draw(st.sampled_from(made.CODECS)),
        page_index=draw(st.booleans()),
        page_version=draw(st.sampled_from(["1.0", "2.0"])),
        dictionary=draw(st.booleans()),
    )
    fpp = draw(st.sampled_from([0.3, 0.01, 0.0001]))
    return Case(kind, row_groups, pool[:1], layout, draw(st.sampled_from(made.PLACEMENTS)), fpp)


def files(case: Case, folder: Path) -> tuple[Path, Path]:
    tables = [pa.table({"key": pa.array(group, case.kind), "other": range(len(group))}) for group in case.row_groups]
    source = made.write(folder / "source.parquet", tables, case.layout)
    add_filters(source, folder / "ours.parquet", columns=["key"], placement=case.placement, fpp=case.fpp, sync=False)
    return source, folder / "ours.parquet"


def ask_all(asked: DuckDB, path: Path, wanted: list[pa.Scalar]) -> dict[str, int]:
    """Rows equal to one of the keys, by three engines; DataFusion is asked for a single one only."""
    literals = [spelled(pa.array([scalar], scalar.type))[0].duckdb for scalar in wanted]
    found = {
        "duckdb": asked.count(path, f"key IN ({', '.join(literals)})" if len(wanted) > 1 else f"key = {literals[0]}"),
        "polars": polars_count(path, "key", wanted),
    }
    if len(wanted) == 1:
        found["datafusion"] = DataFusion().count(path, "key", wanted[0])
    return found


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(case=cases(), data=st.data())
def test_any_key_in_any_table(case: Case, data: st.DataObject) -> None:
    keys = case.scalars()
    chosen = data.draw(st.lists(st.sampled_from(range(len(keys))), min_size=1, max_size=4, unique=True))
    questions = [[keys[i]] for i in chosen] + [[keys[i] for i in chosen]]
    with tempfile.TemporaryDirectory() as folder, duckdb() as asked:
        source, ours = files(case, Path(folder))
        for wanted in questions:
            found = ask_all(asked, ours, wanted)
            assert found == ask_all(asked, source, wanted), wanted
            assert set(found.values()) == {case.rows(wanted)}, wanted


# --- random keys, many row groups -------------------------------------------------------------------

ROW_GROUPS, ROWS = 8, 4000


@pytest.fixture(scope="module")
def keys() -> np.ndarray:
    """int64[8, 4000], each with its like in the next row group's first place, to be found twice."""
    drawn = np.random.default_rng(2).integers(-(2**63), 2**63 - 1, (ROW_GROUPS, ROWS))
    drawn[1:, 0] = drawn[:-1, 1]
    return drawn


@pytest.fixture(scope="module", params=made.PLACEMENTS)
def pair(
    request: pytest.FixtureRequest, keys: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    tables = [pa.table({"key": group, "text": [f"{key:016x}" for key in group.tolist()]}) for group in keys]
    source = made.write(folder / "source.parquet", tables, data_page_size=8192)
    add_filters(source, folder / "ours.parquet", placement=request.param, sync=False, columns=["*"])
    return source, folder / "ours.parquet"


class TestRandomKeys:
    def test_keys_that_are_there(self, pair: tuple[Path, Path], keys: np.ndarray) -> None:
        source, ours = pair
        with duckdb() as asked:
            for group, row in [(0, 0), (0, 1), (3, 0), (3, 1), (4, 77), (7, 0), (7, ROWS - 1)]:
                wanted = [pa.scalar(int(keys[group, row]))]
                found = ask_all(asked, ours, wanted)
                assert found == ask_all(asked, source, wanted)
                assert set(found.values()) == {int((keys == keys[group, row]).sum())}

    def test_keys_that_are_nowhere(self, pair: tuple[Path, Path], keys: np.ndarray) -> None:
        absent = np.setdiff1d(np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 20), keys)
        with duckdb() as asked:
            for key in absent.tolist():
                assert set(ask_all(asked, pair[1], [pa.scalar(key)]).values()) == {0}

    def test_texts(self, pair: tuple[Path, Path], keys: np.ndarray) -> None:
        with duckdb() as asked:
            for key in keys[:, 5].tolist():
                assert asked.count(pair[1], f"text = '{key:016x}'") == 1
                assert asked.count(pair[1], f"text = '{key:016x}' AND key = {key}") == 1
                assert asked.count(pair[1], f"text = '{key:016x}' OR key = {keys[0, 9]}") == 2
                assert polars_count(pair[1], "text", [pa.scalar(f"{key:016x}")]) == 1

    def test_row_groups_are_skipped(self, pair: tuple[Path, Path], keys: np.ndarray) -> None:
        """DuckDB reads all of the source and one row group of ours; DataFusion prunes the others."""
        source, ours = pair
        key = int(keys[5, 123])
        with duckdb() as asked:
            assert asked.scanned(source, f"key = {key}") == (ROW_GROUPS, ROW_GROUPS)
            assert asked.scanned(ours, f"key = {key}") == (1, ROW_GROUPS)
        assert DataFusion().ask(source, "key", pa.scalar(key)) == (1, 0, 0)
        assert DataFusion().ask(ours, "key", pa.scalar(key)) == (1, 0, ROW_GROUPS - 1)
