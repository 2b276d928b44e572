"""Queries find the same rows in the file with our filters as in the source, whatever is asked.

Random tables of keys in several row groups, random layouts; keys that are there, that are elsewhere,
and that are nowhere. Python counts the rows, so that an engine's own error would show as well.
"""

from __future__ import annotations

import tempfile
from collections import Counter
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
@given(data=st.data())
def test_any_key_in_any_table(data: st.DataObject) -> None:
    """Up to four row groups of keys from one small pool, with repetitions and nulls; one key is in none of them."""
    kind, some_key = KEYS[data.draw(st.sampled_from(sorted(KEYS)))]
    pool = data.draw(st.lists(some_key, min_size=2, max_size=30, unique=True))
    stored = st.lists(st.sampled_from([*pool[1:], None]), min_size=1, max_size=40)
    groups = [pa.array(group, kind) for group in data.draw(st.lists(stored, min_size=1, max_size=4))]
    codec, page_version = data.draw(st.sampled_from(made.CODECS)), data.draw(st.sampled_from(["1.0", "2.0"]))
    layout = made.Layout(codec, data.draw(st.booleans()), page_version, data.draw(st.booleans()))
    options = {"placement": data.draw(st.sampled_from(made.PLACEMENTS)), "fpp": data.draw(st.sampled_from([0.3, 1e-4]))}
    keys = pa.array(pool, kind).unique()
    chosen = data.draw(st.lists(st.sampled_from(range(len(keys))), min_size=1, max_size=4, unique=True))
    rows = Counter(key for group in groups for key in group.to_pylist())
    with tempfile.TemporaryDirectory() as folder, duckdb() as asked:
        tables = [pa.table({"key": group, "other": range(len(group))}) for group in groups]
        source, ours = made.write(Path(folder) / "source.parquet", tables, layout), Path(folder) / "ours.parquet"
        add_filters(source, ours, columns=["key"], sync=False, **options)
        for wanted in [[keys[i]] for i in chosen] + [[keys[i] for i in chosen]]:
            found = ask_all(asked, ours, wanted)
            assert found == ask_all(asked, source, wanted), wanted
            assert set(found.values()) == {sum(rows[key] for key in {one.as_py() for one in wanted})}, wanted


ROW_GROUPS, ROWS = 8, 4000


@pytest.mark.parametrize("placement", made.PLACEMENTS)
def test_random_keys_in_many_row_groups(placement: str, tmp_path: Path) -> None:
    """Keys that are there once, twice and nowhere; DuckDB and DataFusion read one row group of eight."""
    random = np.random.default_rng(2)
    keys = random.integers(-(2**63), 2**63 - 1, (ROW_GROUPS, ROWS))
    keys[1:, 0] = keys[:-1, 1]
    tables = [pa.table({"key": group, "text": [f"{key:016x}" for key in group.tolist()]}) for group in keys]
    source, ours = tmp_path / "source.parquet", tmp_path / "ours.parquet"
    made.write(source, tables, data_page_size=8192)
    add_filters(source, ours, placement=placement, sync=False, columns=["*"])
    absent = np.setdiff1d(random.integers(-(2**63), 2**63 - 1, 8), keys)
    stored = [keys[at] for at in [(0, 0), (0, 1), (3, 0), (3, 1), (4, 77), (7, 0), (7, ROWS - 1)]]
    with duckdb() as asked:
        for key in [*stored, *absent]:
            found = ask_all(asked, ours, [pa.scalar(int(key))])
            assert found == ask_all(asked, source, [pa.scalar(int(key))])
            assert set(found.values()) == {int((keys == key).sum())}
        for key in keys[:, 5].tolist():
            assert asked.count(ours, f"text = '{key:016x}'") == 1
            assert asked.count(ours, f"text = '{key:016x}' AND key = {key}") == 1
            assert asked.count(ours, f"text = '{key:016x}' OR key = {keys[0, 9]}") == 2
            assert polars_count(ours, "text", [pa.scalar(f"{key:016x}")]) == 1
        one = int(keys[5, 123])
        assert asked.scanned(source, f"key = {one}") == (ROW_GROUPS, ROW_GROUPS)
        assert asked.scanned(ours, f"key = {one}") == (1, ROW_GROUPS)
    assert DataFusion().ask(source, "key", pa.scalar(one)) == (1, 0, 0)
    assert DataFusion().ask(ours, "key", pa.scalar(one)) == (1, 0, ROW_GROUPS - 1)
