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


@pytest.mark.parametrize("spec", ["final", "parquet-41", "parquet-41-early", "parquet-41-raw"])
def test_the_entry_of_a_rewritten_file_is_not_believed(spec: str, tmp_path: Path) -> None:
    """Programs carry key-values into files they rewrite: the entry of our provenance, without its filters.

    pyarrow does of a file without ARROW:schema, and writes filters of its own. Ours come and go, and the file is as it
    was.
    """
    source = made.write(tmp_path / "source.parquet", [TABLE.select(["random_int64"])], store_schema=False)
    ours, stale = tmp_path / "ours.parquet", tmp_path / "stale.parquet"
    add_filters(source, ours, spec=spec, sync=False, columns=["*"])
    made.write(stale, [pq.read_table(ours)], bloom_filter_options={"random_int64": {"ndv": 160, "fpp": 0.01}})
    assert b"parquet_bloom" in (pq.read_metadata(stale).metadata or {})
    (verdict,) = verify(stale).files[0].filters
    assert (verdict.status, verdict.spec) == ("right", "final")
    for key in TABLE["random_int64"].to_pylist()[:40]:
        assert skipped_by_check(stale, "random_int64", str(key)) == [False]

    bare, again, back = (tmp_path / f"{name}.parquet" for name in ("bare", "again", "back"))
    remove_filters(stale, bare, sync=False)
    add_filters(bare, again, sync=False, columns=["*"])
    assert {v.status for v in verify(again).files[0].filters} == {"right"}
    remove_filters(again, back, sync=False)
    assert back.read_bytes() == bare.read_bytes()
    assert_equal(READERS["pyarrow"](back), READERS["pyarrow"](stale))
