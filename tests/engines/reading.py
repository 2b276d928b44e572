"""How each engine reads a whole file, and what "equal" means: the same bits, NaN and -0.0 included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

_BITS = {"halffloat": pa.uint16(), "float": pa.uint32(), "double": pa.uint64()}


def with_pyarrow(path: Path) -> pa.Table:
    return pq.read_table(path, page_checksum_verification=True)


def with_duckdb(path: Path) -> pa.Table:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        return connection.sql(f"FROM read_parquet('{path}', file_row_number = true)").to_arrow_table()


def with_polars(path: Path) -> pa.Table:
    return pytest.importorskip("polars").read_parquet(path).to_arrow()


def with_datafusion(path: Path) -> pa.Table:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    return context.read_parquet(str(path)).to_arrow_table()


def with_fastparquet(path: Path, but: Sequence[str] = ()) -> Any:
    """A pandas frame without the columns `but`, by name or as the struct they are in."""
    fastparquet = pytest.importorskip("fastparquet")
    with path.open("rb") as file:  # given a path, fastparquet leaves the file open, and that is a warning
        parquet = fastparquet.ParquetFile(file)
        columns = [name for name in parquet.columns if name not in but and name.partition(".")[0] not in but]
        return parquet.to_pandas(columns=columns)


READERS: dict[str, Callable[[Path], Any]] = {
    "pyarrow": with_pyarrow,
    "duckdb": with_duckdb,
    "polars": with_polars,
    "datafusion": with_datafusion,
    "fastparquet": with_fastparquet,
}


def bits(table: pa.Table) -> pa.Table:
    """Floats as integers of the same bits: Arrow says that NaN differs from itself, and -0.0 is 0.0."""
    columns = [_bits(column) for column in table.columns]
    return pa.table(dict(zip(map(str, range(len(columns))), columns, strict=True)))


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    width = _BITS.get(str(column.type))
    return column if width is None else pa.chunked_array([chunk.view(width) for chunk in column.chunks], width)


def assert_equal(ours: Any, source: Any) -> None:
    """Raise AssertionError unless both readings hold the same columns and the same bits."""
    if isinstance(source, pa.Table):
        assert ours.column_names == source.column_names
        unequal = [
            name
            for name, a, b in zip(source.column_names, bits(ours).columns, bits(source).columns, strict=True)
            if not a.equals(b)
        ]
        assert not unequal
        return
    pandas = pytest.importorskip("pandas")
    pandas.testing.assert_frame_equal(ours, source, check_exact=True)
