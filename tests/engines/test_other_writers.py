"""Sources that other engines wrote: where they put offsets, indexes and empty row groups differs.

DuckDB, DataFusion, Polars and fastparquet each write a file without filters; ours is read as it is
by all of them, its filters are right, and removing them gives the source back byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines import made
from engines.asking import DataFusion, duckdb, skipped_by_check
from engines.reading import READERS, assert_equal
from parquet_bloom import FilterWriter, add_filters, inspect, remove_filters, verify, write_table

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


@pytest.fixture(scope="module", params=WRITERS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / f"{request.param}.parquet"
    WRITERS[request.param](path)
    assert not made.filters(path), "the writer made filters, though it was not asked to"
    return path


@pytest.fixture(scope="module", params=made.PLACEMENTS)
def ours(request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours") / source.name
    add_filters(source, path, columns=made.leaves(source), placement=request.param, sync=False)
    return path


@pytest.mark.parametrize("engine", READERS)
def test_is_read_as_the_source(ours: Path, source: Path, engine: str) -> None:
    if engine == "fastparquet" and source.stem == "by_datafusion_v2":
        pytest.skip("fastparquet crashes the process on DELTA_BINARY_PACKED INT64")
    assert_equal(READERS[engine](ours), READERS[engine](source))


def test_every_chunk_with_values_has_a_right_filter(ours: Path, source: Path) -> None:
    file = verify(ours, columns=["random_int64", "utf8", "both_zeros", "some_nan"]).files[0]
    with pq.ParquetFile(source) as parquet:
        groups = [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)]
    assert len(file.filters) == 4 * sum(1 for rows in groups if rows)
    assert {verdict.status for verdict in file.filters} <= {"right"}
    assert inspect(ours).files[0].problems == 0


def test_comes_back_byte_for_byte(ours: Path, source: Path, tmp_path: Path) -> None:
    remove_filters(ours, tmp_path / "back.parquet", sync=False)
    assert (tmp_path / "back.parquet").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("placement", made.PLACEMENTS)
def test_new_files_of_ours(placement: str, tmp_path: Path) -> None:
    """write_table and FilterWriter: what pyarrow writes, with filters that DataFusion prunes by."""
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    plain, ours, batched = (tmp_path / f"{name}.parquet" for name in ("plain", "ours", "batched"))
    pq.write_table(TABLE, plain, row_group_size=40, **options)
    write_table(TABLE, ours, row_group_size=40, bloom_filters=["*"], placement=placement, **options)
    with FilterWriter(batched, TABLE.schema, bloom_filters=["random_int64"], placement=placement, **options) as writer:
        for batch in TABLE.to_batches(max_chunksize=40):
            writer.write_batch(batch)
    for read in READERS.values():
        assert_equal(read(ours), read(plain))
        assert_equal(read(batched), read(plain))
    key = TABLE["random_int64"][100]
    assert DataFusion().ask(plain, "random_int64", key) == (1, 0, 0)
    for path in (ours, batched):
        rows, by_statistics, by_filters = DataFusion().ask(path, "random_int64", key)
        assert (rows, by_statistics) == (1, 0)
        assert by_filters >= 3, "one row group holds the key, of the others nearly all are pruned"


class TestRewritten:
    """Programs carry key-values into files they rewrite: the entry of our provenance, without its filters."""

    @pytest.fixture(params=["final", "parquet-41", "parquet-41-early", "parquet-41-raw"])
    def stale(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        """pyarrow keeps the key-values of a file without ARROW:schema, and writes filters of its own."""
        source = made.write(tmp_path / "source.parquet", [TABLE.select(["random_int64"])], store_schema=False)
        add_filters(source, tmp_path / "ours.parquet", spec=request.param, sync=False, columns=["*"])
        options = {"random_int64": {"ndv": 160, "fpp": 0.01}}
        table = pq.read_table(tmp_path / "ours.parquet")
        made.write(tmp_path / "stale.parquet", [table], bloom_filter_options=options)
        assert b"parquet_bloom" in (pq.read_metadata(tmp_path / "stale.parquet").metadata or {})
        return tmp_path / "stale.parquet"

    def test_the_entry_is_not_believed(self, stale: Path) -> None:
        (verdict,) = verify(stale).files[0].filters
        assert (verdict.status, verdict.spec) == ("right", "final")
        for key in TABLE["random_int64"].to_pylist()[:40]:
            assert skipped_by_check(stale, "random_int64", str(key)) == [False]

    def test_add_and_remove(self, stale: Path, tmp_path: Path) -> None:
        """The stale entry is no hindrance: filters come and go, and the file is as it was."""
        remove_filters(stale, tmp_path / "bare.parquet", sync=False)
        add_filters(tmp_path / "bare.parquet", tmp_path / "again.parquet", sync=False, columns=["*"])
        assert {v.status for v in verify(tmp_path / "again.parquet").files[0].filters} == {"right"}
        remove_filters(tmp_path / "again.parquet", tmp_path / "back.parquet", sync=False)
        assert (tmp_path / "back.parquet").read_bytes() == (tmp_path / "bare.parquet").read_bytes()
        assert_equal(READERS["pyarrow"](tmp_path / "back.parquet"), READERS["pyarrow"](stale))
