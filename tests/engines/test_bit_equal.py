"""Our filters and those that other programs make of the same data are equal bit for bit.

A filter of z blocks folds to the one that building at z/2 would have given, so filters of two sizes
are compared at the smaller. Left out are columns with zeros, NaN and FLOAT16, for which we insert
more than others do; their filters must hold all the bits of the other program's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from engines import made
from engines.asking import DataFusion, duckdb, skipped_by_check
from parquet_bloom import add_filters
from parquet_bloom.kernels.split_block import Blocks, fold

DISTINCT = (300, 300, 150)  # values a row group
ROWS = (2048, 2048, 1024)  # 2048 is the smallest row group that DuckDB writes
FPPS = (0.2, 0.01, 0.0005)
INSERT_MORE = ("float16", "only_negative_zero", "only_negative_zero_float", "both_zeros", "some_nan")
COUNTED = [name for name in INSERT_MORE if name != "float16"]
WITHOUT = (*INSERT_MORE, "boolean", "all_nulls", "null_type")
FLAT = [name for name in made.flat(made.row_groups()[0]) if name not in WITHOUT]
IN_DUCKDB = [
    name
    for name in FLAT
    # DuckDB makes an INTERVAL of a duration and microseconds of all times, and leaves large decimals without a filter.
    if name not in ("duration_us", "time_ms", "decimal_38")
]


Key = tuple[int, str]  # row group, column


def bitsets(path: Path, keys: Iterable[Key]) -> dict[Key, Blocks]:
    """Blocks of filters, uint32[n_blocks, 8], by pyarrow's view of where they lie, each behind 15 to 17 bytes."""
    data, places, found = path.read_bytes(), made.filters(path), {}
    for key in keys:
        offset, length = places[key]
        size = 1 << (length.bit_length() - 1)
        assert 12 < length - size < 24, f"{key}: {length} bytes are no power of two and a header"
        found[key] = np.frombuffer(data[offset + length - size : offset + length], "<u4").reshape(-1, 8)
    return found


def in_groups(columns: Sequence[str]) -> list[Key]:
    return [(group, made.quoted(column)) for column in columns for group in range(3)]


def at_equal_size(*filters: Blocks) -> list[bytes]:
    """Fold all to the smallest."""
    smallest = min(map(len, filters))
    folded = []
    for blocks in filters:
        while len(blocks) > smallest:
            blocks = fold(blocks)
        folded.append(blocks.tobytes())
    return folded


def assert_same_bits(ours: Path, theirs: Path, keys: list[Key]) -> None:
    mine, others = bitsets(ours, keys), bitsets(theirs, keys)
    for key in keys:
        one, other = at_equal_size(mine[key], others[key])
        assert one == other, (theirs, key)


def in_runs(table: pa.Table, rows: int) -> pa.Table:
    """The same values, each repeated in a run, so that DuckDB takes a dictionary, and so writes a filter."""
    return table.take(pa.array(np.arange(rows) * len(table) // rows))


@pytest.fixture(scope="module")
def tables() -> list[pa.Table]:
    groups = made.row_groups(DISTINCT)
    return [in_runs(table, rows) for table, rows in zip(groups, ROWS, strict=True)]


@pytest.fixture(scope="module")
def source(tables: list[pa.Table], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "source.parquet"
    return made.with_decimals_as_integers(path, tables, data_page_size=2**20, write_batch_size=1024)


@pytest.fixture(scope="module", params=FPPS)
def ours(request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours") / "ours.parquet"
    add_filters(source, path, columns=made.leaves(source), fpp=request.param, sync=False)
    return path


@pytest.fixture(scope="module")
def of_pyarrow(source: Path, tables: list[pa.Table], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyarrow") / "pyarrow.parquet"
    leaves = [leaf.replace('"', "") for leaf in made.leaves(source)]
    options = {leaf: {"ndv": 300, "fpp": 0.01} for leaf in leaves}
    return made.with_decimals_as_integers(path, tables, bloom_filter_options=options)


@pytest.fixture(scope="module")
def of_duckdb(tables: list[pa.Table], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("duckdb") / "duckdb.parquet"
    table = pa.concat_tables(tables).select(IN_DUCKDB)
    with duckdb() as asked:
        asked.connection.execute("SET threads = 1")  # rows and row groups in the order given
        asked.connection.register("source", table)
        asked.connection.execute(f"COPY (FROM source) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    return path


class TestSameData:
    def test_pyarrow(self, ours: Path, of_pyarrow: Path) -> None:
        """Columns of structs, lists and maps too."""
        nested = [key for key in made.filters(ours) if key[1].split(".")[0] in made.nested(made.row_groups()[0])]
        assert len(nested) == 3 * 10
        assert_same_bits(ours, of_pyarrow, in_groups(FLAT) + nested)

    def test_duckdb(self, ours: Path, of_duckdb: Path) -> None:
        assert_same_bits(ours, of_duckdb, in_groups(IN_DUCKDB))

    def test_zeros_and_nan_only_add_bits(self, ours: Path, of_pyarrow: Path) -> None:
        keys = in_groups(COUNTED)
        of_ours, of_others = bitsets(ours, keys), bitsets(of_pyarrow, keys)
        for key in keys:
            mine, theirs = (np.frombuffer(b, np.uint8) for b in at_equal_size(of_ours[key], of_others[key]))
            assert not (theirs & ~mine).any(), f"{key}: a bit that pyarrow set is not set in ours"
            added = int(np.bitwise_count(mine & ~theirs).sum())
            assert added <= 8, f"{key}: one value, the other zero or NaN, sets eight bits"


@pytest.mark.smoke
def test_several_sizes_were_compared(source: Path, of_pyarrow: Path, of_duckdb: Path, tmp_path: Path) -> None:
    """Ours are smaller than the others', as large, and larger: 300 values, three rates."""
    key, sizes = (0, "random_int64"), []
    for fpp in FPPS:
        add_filters(source, tmp_path / "ours.parquet", columns=[key[1]], fpp=fpp, overwrite=True, sync=False)
        sizes.append(len(bitsets(tmp_path / "ours.parquet", [key])[key]))
    of_others = {len(bitsets(path, [key])[key]) for path in (of_pyarrow, of_duckdb)}
    assert sizes[0] < sizes[1] < sizes[2]
    assert of_others == {sizes[1]}


KEYS = np.unique(np.random.default_rng(4).integers(-(2**63), 2**63 - 1, 400_000))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One row group of 400,000 keys with our filter, and with pyarrow's."""
    folder, table = tmp_path_factory.mktemp("large"), pa.table({"key": KEYS})
    source = made.write(folder / "source.parquet", [table], data_page_size=2**20, write_batch_size=1024)
    options = {"key": {"ndv": 3_000_000, "fpp": 0.001}}
    theirs = made.write(folder / "pyarrow.parquet", [table], data_page_size=2**20, bloom_filter_options=options)
    add_filters(source, folder / "ours.parquet", columns=["key"], sync=False)
    return folder / "ours.parquet", theirs


class TestLarge:
    """A filter of a megabyte: its header is longer, and the index of a block takes 15 bits."""

    def test_pyarrow_makes_the_same(self, large: tuple[Path, Path]) -> None:
        key = (0, "key")
        assert bitsets(large[0], [key])[key].nbytes == 2**20
        assert_same_bits(*large, [key])

    def test_engines_find_the_right_block(self, large: tuple[Path, Path]) -> None:
        absent = np.setdiff1d(np.random.default_rng(5).integers(-(2**63), 2**63 - 1, 40), KEYS)
        with duckdb() as asked:
            for key in KEYS[::40_000].tolist():
                assert asked.excludes(large[0], "key", str(key)) == [False]
                assert skipped_by_check(large[0], "key", str(key)) == [False]
                assert DataFusion().ask(large[0], "key", pa.scalar(key)) == (1, 0, 0)
            answers = []
            for key in absent.tolist():
                answers.append(skipped_by_check(large[0], "key", str(key)))
                assert asked.excludes(large[0], "key", str(key)) == answers[-1]
        assert answers.count([True]) >= 0.9 * len(absent)


def test_replaced_filters_of_four_programs_hold_the_same_bits(tmp_path: Path) -> None:
    compared = set()
    for name in (name for name in made.fixtures() if made.filters(made.fixture(name))):
        theirs, ours = made.fixture(name), tmp_path / "ours.parquet"
        add_filters(theirs, ours, columns=made.leaves(theirs), replace=True, sync=False, overwrite=True)
        leaves = set(made.leaves(theirs)) - {*WITHOUT, "hugeint"}  # a DOUBLE in the file, from 0 on
        keys = [key for key in made.filters(theirs) if key[1] in leaves]
        assert keys or name in ("duckdb/interval_and_variant", "spark/int96"), "types that get no filter of ours"
        assert_same_bits(ours, theirs, keys)
        compared |= {name.partition("/")[0]} if keys else set()
    assert len(compared) == 4
