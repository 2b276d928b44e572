"""Which columns get a filter when nobody names one, held against what DuckDB and DataFusion gain by it.

Each case is a column of ten row groups. Filters on all of them are put into a copy; then values that are
stored in one row group are looked up in both files. A column belongs in if that saves row groups, and is left
out if it saves (nearly) none, in every engine that can use such filters at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.repeats import first_then_more
from support.samples import random_bytes

from engines.asking import DataFusion, DuckDB, duckdb
from parquet_bloom import add_filters

GROUPS, ROWS = 10, 4000
N = GROUPS * ROWS
BOTH = ("duckdb", "datafusion")


@dataclass(frozen=True)
class Case:
    """A column, whether it gets a filter, and a word of the reason why not.

    engines   those that use filters over its type (docs/engines.md)
    encoding  pyarrow's name; "" for a dictionary
    """

    name: str
    values: pa.Array
    chosen: bool
    reason: str = ""
    engines: tuple[str, ...] = BOTH
    encoding: str = "PLAIN"


def _cases() -> list[Case]:
    rng = np.random.default_rng(11)
    row = np.arange(N)
    group = row // ROWS
    ids = rng.integers(-(2**63), 2**63 - 1, N)
    texts = pa.array([f"{i & (2**64 - 1):016x}" for i in ids.tolist()])
    micros = 1_790_000_000_000_000 + row * 1_000_000 + rng.integers(0, 60_000_000, N)  # a minute late at most
    return [
        Case("random_plain", pa.array(ids), True),
        Case("random_dictionary", pa.array(ids), True, encoding=""),
        Case("random_delta", pa.array(ids), True, encoding="DELTA_BINARY_PACKED"),
        Case("random_stream_split", pa.array(ids), True, encoding="BYTE_STREAM_SPLIT"),
        Case("trace_id_plain", texts, True),
        Case("trace_id_dictionary", texts, True, encoding=""),
        Case("trace_id_delta", texts, True, encoding="DELTA_BYTE_ARRAY"),
        Case("uuid_bytes", random_bytes(rng, N, 16).cast(pa.binary(16)), True, engines=("datafusion",)),
        Case("shuffled_numbers", pa.array(rng.permutation(N)), True),
        Case("half_null_ids", pa.array(ids, mask=row % 2 == 0), True),
        Case("ids_that_pandas_made_floats", pa.array(rng.integers(0, 2**50, N).astype(float)), True),
        Case("few_frequent_users", pa.array(rng.zipf(1.4, N) % 1_000_003 * 7919), True),
        Case("tenants_by_row_group", pa.array((group * 700 + rng.integers(0, 500, N)) * 997 % 100_003), True),
        Case("at", pa.array(micros, pa.timestamp("us")), False, "min and max", ("duckdb",)),
        Case("sequence", pa.array(row * 3), False, "min and max"),
        Case("snowflake", pa.array((micros - 1_790_000_000_000_000 << 20) + row % 4096), False, "min and max"),
        Case("ulid", pa.array([f"{m:012x}{i % 65536:04x}" for m, i in zip(micros.tolist(), ids.tolist(), strict=True)]),
             False, "min and max"),
        Case("constant", pa.array(np.full(N, 7)), False, "one value", ("datafusion",)),  # DuckDB needs no scan to count
        Case("status", pa.array(rng.integers(0, 5, N)), False, "few distinct", encoding=""),
        Case("country_plain", pa.array([f"c{i}" for i in rng.integers(0, 200, N)]), False, "few distinct"),
        Case("country_dictionary", pa.array([f"c{i}" for i in rng.integers(0, 200, N)]), False, "few distinct",
             encoding=""),
        Case("birthday", pa.array(rng.integers(0, 365, N, np.int32), pa.date32()), False, "few distinct", ("duckdb",)),
    ]  # fmt: skip


CASES = _cases()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """All cases in one file, and a copy of it with a filter on every column."""
    folder = tmp_path_factory.mktemp("default_columns")
    plain, all_of_them = folder / "plain.parquet", folder / "all.parquet"
    pq.write_table(
        pa.table({case.name: case.values for case in CASES}),
        plain,
        row_group_size=ROWS,
        use_dictionary=[case.name for case in CASES if not case.encoding],
        column_encoding={case.name: case.encoding for case in CASES if case.encoding},
    )
    add_filters(plain, all_of_them, columns=["*"], sync=False)
    return plain, all_of_them


def test_the_default_takes_ids_in_any_encoding_and_leaves_out_the_rest(files: tuple[Path, Path]) -> None:
    report = add_filters(files[0], files[0].with_name("default.parquet"), sync=False).files[0]
    assert report.columns == [case.name for case in CASES if case.chosen]
    assert len(report.filters) == GROUPS * len(report.columns)
    reasons = {skipped.column: skipped.reason for skipped in report.skipped}
    assert reasons.keys() == {case.name for case in CASES if not case.chosen}
    for case in CASES:
        assert case.reason in reasons.get(case.name, ""), case.name


@pytest.mark.parametrize("first", first_then_more(range(3), 1))
def test_it_is_what_engines_gain(files: tuple[Path, Path], first: int) -> None:
    """A filter saves at least half of the row groups that are read without it, or less than a tenth of all."""
    for case in CASES[first::3]:
        for engine in case.engines:
            before, after = _row_groups_read(files[0], case, engine), _row_groups_read(files[1], case, engine)
            if case.chosen:
                assert after <= before / 2, f"{engine} must gain from a filter on {case.name}: {before} -> {after}"
            else:
                assert before - after < 0.1 * GROUPS, f"{engine} gains by {case.name}: {before} -> {after}"


def _row_groups_read(path: Path, case: Case, engine: str) -> float:
    """Row groups that the engine reads for one value, on average over some that are stored."""
    stored = case.values.drop_null().unique()
    values = [stored[len(stored) // 3], stored[len(stored) - 1]]
    if engine == "datafusion":
        asked = DataFusion()
        return sum(GROUPS - sum(asked.ask(path, case.name, value)[1:]) for value in values) / len(values)
    with duckdb() as asked_duckdb:
        return sum(_scanned(asked_duckdb, path, case.name, value) for value in values) / len(values)


def _scanned(asked: DuckDB, path: Path, column: str, value: pa.Scalar) -> int:
    text = str(value.as_py())
    quoted = text if pa.types.is_integer(value.type) or pa.types.is_floating(value.type) else f"'{text}'"
    return asked.scanned(path, f'"{column}" = {quoted}')[0]
