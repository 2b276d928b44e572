"""New files of ours are what pyarrow writes, with filters; files that others rewrite keep a stale entry of ours."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from engines import made
from engines.asking import DataFusion, skipped_by_check
from engines.reading import READERS, assert_equal
from engines.written import TABLE
from parquet_bloom import FilterWriter, add_filters, remove_filters, verify, write_table


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
