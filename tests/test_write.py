"""write_table and FilterWriter: new files with filters in one call."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import ROWS, digest, keys_table, leftovers

import parquet_bloom
from parquet_bloom.errors import RefusedTypeError, RequestError, StorageError, UnknownColumnError
from parquet_bloom.formats.filters import FORMATS


@pytest.mark.parametrize("spec", list(FORMATS))
def test_equals_writing_and_adding(tmp_path: Path, spec: str) -> None:
    options = {"row_group_size": ROWS, "compression": "zstd", "use_dictionary": False, "write_page_index": True}
    plain, added, direct = (tmp_path / f"{n}.parquet" for n in ("plain", "added", "direct"))
    pq.write_table(keys_table(), plain, **options)
    parquet_bloom.add_filters(plain, added, columns=["id", "user.*"], spec=spec, sync=False)
    report = parquet_bloom.write_table(keys_table(), direct, bloom_filters=["id", "user.*"], spec=spec, **options)
    assert digest(added) == digest(direct)
    assert {f.column for f in report.filters} == {"id", "user.id", "user.mail"}
    assert report.output == str(direct)
    assert leftovers(tmp_path) == []


def test_batches(tmp_path: Path) -> None:
    table, path = keys_table(), tmp_path / "batches.parquet"
    with parquet_bloom.FilterWriter(path, table.schema, bloom_filters={"id": 0.001}, use_dictionary=False) as writer:
        for batch in table.to_batches(max_chunksize=250):
            writer.write_batch(batch)
        assert not path.exists(), "nobody sees the file before it has its filters"
    assert pq.read_table(path).equals(table)
    assert {f.column for f in writer.report.filters} == {"id"}
    assert all(f.rate <= 0.001 for f in writer.report.filters)
    assert all(f.status == "right" for f in parquet_bloom.verify(path).files[0].filters)
    with pytest.raises(RequestError, match="closed"):
        writer.write_table(table)


def test_no_filters_wanted(tmp_path: Path) -> None:
    assert parquet_bloom.write_table(keys_table(), tmp_path / "x.parquet", bloom_filters=False) is None
    assert parquet_bloom.inspect(tmp_path / "x.parquet").files[0].filters == []


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    for wanted in (True, False):
        path = tmp_path / f"{wanted}.parquet"
        parquet_bloom.write_table(keys_table(), path, bloom_filters=wanted)
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"precious")
    table = keys_table()
    with pytest.raises(UnknownColumnError, match="no column nope"):
        parquet_bloom.write_table(table, path, bloom_filters=["nope"])
    with pytest.raises(RefusedTypeError, match="flag"):
        parquet_bloom.write_table(table, path, bloom_filters=["flag"])
    with pytest.raises(ZeroDivisionError), parquet_bloom.FilterWriter(path, table.schema) as writer:
        writer.write_table(table)
        _ = 1 / 0
    with pytest.raises(ValueError, match="schema"), parquet_bloom.FilterWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.write_table(table.select(["id"]))
    with pytest.raises(pa.ArrowException, match="nonsense"):
        parquet_bloom.write_table(table, path, compression="nonsense")
    assert path.read_bytes() == b"precious"
    assert leftovers(tmp_path) == []


def test_requests_that_make_no_sense(tmp_path: Path) -> None:
    table, path = keys_table(), tmp_path / "x.parquet"
    with pytest.raises(RequestError, match="not one text"):
        parquet_bloom.write_table(table, path, bloom_filters="id")
    with pytest.raises(RequestError, match="not in both"):
        parquet_bloom.write_table(table, path, bloom_filters={"id": 0.1}, fpp={"id": 0.2})
    with pytest.raises(StorageError, match="nowhere"):
        parquet_bloom.write_table(table, "/proc/nowhere/x.parquet")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bloom_filters": ["nope"]}, "x.parquet: no column nope"),
        ({"bloom_filters": {"id": 0.1, "nope": 0.1}}, "no column nope"),
        ({"bloom_filters": ["flag"]}, "BOOLEAN"),
        ({"bloom_filters": {"id": 2.0}}, "not between"),
        ({"fpp": {"nope": 0.1}}, "nope"),
        ({"spec": "finale"}, "unknown spec"),
        ({"spec": "parquet-41", "placement": "footer"}, "not for parquet-41"),
        ({"ndv": 0}, "ndv"),
        ({"max_bytes": 1}, "max-bytes"),
        ({"threads": 0}, "threads"),
    ],
)
def test_a_wrong_request_is_told_before_the_data_are_written(
    tmp_path: Path, options: dict[str, object], says: str
) -> None:
    with pytest.raises(RequestError, match=says):
        parquet_bloom.FilterWriter(tmp_path / "x.parquet", keys_table().schema, **options)
    assert os.listdir(tmp_path) == []


def test_looking_at_the_schema_first_collects_no_metadata(tmp_path: Path) -> None:
    collected: list[object] = []
    parquet_bloom.write_table(keys_table(), tmp_path / "x.parquet", metadata_collector=collected)
    assert len(collected) == 1
