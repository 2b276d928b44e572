"""Source files without filters that engines write: where they put offsets, indexes and empty row groups differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines import made
from engines.asking import duckdb

TABLE = pa.concat_tables(made.row_groups()).select(
    [
        "random_int64", "uint32", "boolean", "random_double", "both_zeros", "some_nan", "half_null", "utf8", "binary",
        "decimal_18", "date", "timestamp_us", "dotted.name", "list_of_int64", "struct_members", "map_keys_values",
    ]
)  # fmt: skip
FLAT = TABLE.drop_columns(["half_null", "decimal_18", "date", *made.nested(TABLE)])  # what pandas takes without loss


def by_duckdb(path: Path) -> None:
    with duckdb() as asked:
        asked.connection.register("source", TABLE)
        asked.connection.execute(f"COPY (FROM source) TO '{path}' (FORMAT parquet, WRITE_BLOOM_FILTER false)")


def by_datafusion(path: Path, version: str = "1.0") -> None:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    context.register_record_batches("source", [TABLE.to_batches()])
    options = datafusion.ParquetWriterOptions(
        writer_version=version, max_row_group_size=60, dictionary_enabled=False, bloom_filter_on_write=False
    )
    context.table("source").write_parquet_with_options(path, options)


def by_datafusion_v2(path: Path) -> None:
    by_datafusion(path, "2.0")


def by_polars(path: Path) -> None:
    # Polars does not write maps.
    frame = pytest.importorskip("polars").from_arrow(TABLE.drop_columns(["map_keys_values"]))
    frame.write_parquet(path, row_group_size=60)


def by_fastparquet(path: Path) -> None:
    fastparquet = pytest.importorskip("fastparquet")
    fastparquet.write(str(path), FLAT.to_pandas(), compression="ZSTD", row_group_offsets=60)


def by_pyarrow_with_empty_row_groups(path: Path) -> None:
    made.write(path, [TABLE[:0], TABLE[:50], TABLE[:0], TABLE[50:], TABLE[:0]], made.Layout(page_index=True))


def by_pyarrow_without_row_groups(path: Path) -> None:
    pq.ParquetWriter(path, TABLE.schema).close()


WRITERS: dict[str, Callable[[Path], None]] = {
    writer.__name__: writer
    for writer in (
        by_duckdb, by_datafusion, by_datafusion_v2, by_polars, by_fastparquet, by_pyarrow_with_empty_row_groups,
        by_pyarrow_without_row_groups,
    )
}  # fmt: skip
