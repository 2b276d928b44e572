"""write_table and FilterWriter: new files with filters in one call."""

from __future__ import annotations

import inspect
import os
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.samples import PYARROW, ROWS, digest, keys_table, leftovers

import parquet_bloom
from parquet_bloom.errors import RefusedTypeError, RequestError, StorageError, UnknownColumnError


@pytest.mark.parametrize("spec", ["final", "statistics"])
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


@pytest.mark.smoke
def test_batches(tmp_path: Path) -> None:
    table, path = keys_table(), tmp_path / "batches.parquet"
    with parquet_bloom.FilterWriter(path, table.schema, bloom_filters={"id": 0.001}, use_dictionary=False) as writer:
        for batch in table.to_batches(max_chunksize=250):
            writer.write_batch(batch)
        assert not path.exists(), "nobody sees the file before it has its filters"
    assert pq.read_table(path).equals(table)
    assert {f.column for f in writer.report.filters} == {"id"}
    assert all(f.fpp <= 0.001 for f in writer.report.filters)
    assert all(f.status == "right" for f in parquet_bloom.verify(path).files[0].filters)
    with pytest.raises(RequestError, match="closed"):
        writer.write_table(table)


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    for wanted in (True, False):
        path = tmp_path / f"{wanted}.parquet"
        assert (parquet_bloom.write_table(keys_table(), path, bloom_filters=wanted) is None) == (not wanted)
        assert bool(parquet_bloom.inspect(path).files[0].filters) == wanted
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"precious")
    table = keys_table()
    with pytest.raises(UnknownColumnError, match="no column nope"):
        parquet_bloom.write_table(table, path, bloom_filters=["nope"], overwrite=True)
    with pytest.raises(RefusedTypeError, match="flag"):
        parquet_bloom.write_table(table, path, bloom_filters=["flag"], overwrite=True)
    with pytest.raises(ZeroDivisionError), parquet_bloom.FilterWriter(path, table.schema, overwrite=True) as writer:
        writer.write_table(table)
        _ = 1 / 0
    with (
        pytest.raises(ValueError, match="schema"),
        parquet_bloom.FilterWriter(path, table.schema, overwrite=True) as writer,
    ):
        writer.write_table(table)
        writer.write_table(table.select(["id"]))
    with pytest.raises(pa.ArrowException, match="nonsense"):
        parquet_bloom.write_table(table, path, compression="nonsense", overwrite=True)
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


def test_a_wrong_request_is_told_before_the_data_are_written(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"bloom_filters": ["nope"]}, "x.parquet: no column nope"),
        ({"bloom_filters": {"id": 0.1, "nope": 0.1}}, "no column nope"),
        ({"bloom_filters": ["flag"]}, "BOOLEAN"),
        ({"bloom_filters": {"id": 2.0}}, "not between"),
        ({"fpp": {"nope": 0.1}}, "nope"),
        ({"spec": "finale"}, "unknown spec"),
        ({"spec": "parquet-41", "placement": "footer"}, "not for parquet-41"),
        ({"ndv": 0}, "ndv"),
        ({"max_bytes": 1}, "max_bytes"),
        ({"threads": 0}, "threads"),
    ]
    for options, says in wrong:
        with pytest.raises(RequestError, match=says):
            parquet_bloom.FilterWriter(tmp_path / "x.parquet", keys_table().schema, **options)
    assert os.listdir(tmp_path) == []


def test_looking_at_the_schema_first_collects_no_metadata(tmp_path: Path) -> None:
    collected: list[object] = []
    parquet_bloom.write_table(keys_table(), tmp_path / "x.parquet", metadata_collector=collected)
    assert len(collected) == 1


@pytest.mark.parametrize("filters", [True, False], ids=["filters", "no filters"])
def test_a_file_that_exists_is_replaced_only_if_that_was_said(tmp_path: Path, filters: bool) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"precious")
    path.chmod(0o640)
    with pytest.raises(StorageError, match="x.parquet: exists; give overwrite=True"):
        parquet_bloom.write_table(keys_table(), path, bloom_filters=filters)
    assert path.read_bytes() == b"precious"
    parquet_bloom.write_table(keys_table(), path, bloom_filters=filters, overwrite=True)
    assert pq.read_table(path).equals(keys_table())
    assert stat.S_IMODE(path.stat().st_mode) == 0o640, "as secret as what it replaces"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("filters", [True, False], ids=["filters", "no filters"])
def test_one_that_appears_meanwhile_stays(tmp_path: Path, filters: bool) -> None:
    path = tmp_path / "x.parquet"
    with (
        pytest.raises(StorageError, match="x.parquet: exists"),
        parquet_bloom.FilterWriter(path, keys_table().schema, bloom_filters=filters) as writer,
    ):
        writer.write_table(keys_table())
        path.write_bytes(b"somebody else's")
    assert path.read_bytes() == b"somebody else's"
    assert leftovers(tmp_path) == []


def test_what_is_no_place_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is a folder; name a file in it"):
        parquet_bloom.write_table(keys_table(), tmp_path, overwrite=True)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="pipe: is not a regular file"):
        parquet_bloom.write_table(keys_table(), tmp_path / "pipe", overwrite=True)
    for name in ("s3://bucket/x.parquet", "s3:/bucket/x.parquet", "file://host/x.parquet"):
        with pytest.raises(RequestError, match="to a local disk only|names no other machine"):
            parquet_bloom.write_table(keys_table(), name)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_file_uri_is_a_path(tmp_path: Path) -> None:
    for number, start in enumerate(("file://", "file:")):
        parquet_bloom.write_table(keys_table(), f"{start}{tmp_path}/a%20{number}.parquet")
        assert pq.read_metadata(tmp_path / f"a {number}.parquet").num_row_groups == 1


def test_the_data_are_on_the_disk_with_filters_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file itself, its folder, and every folder that was made for it."""
    synced: list[str] = []
    plain = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), plain(fd))[1])
    for wanted in (True, False):
        synced.clear()
        folder = tmp_path / str(wanted)
        parquet_bloom.write_table(keys_table(), folder / "b" / "x.parquet", bloom_filters=wanted)
        assert [name for name in synced if name.endswith(".parquet-bloom")], "the bytes, before they get their name"
        # The last file's folders: some are asked for twice where data and filters are two files.
        assert {str(folder / "b"), str(folder), str(tmp_path)} <= set(synced)


def test_over_a_secret_file_nothing_is_ever_public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"precious")
    path.chmod(0o600)
    plain, modes = os.open, []

    def look(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        fd = plain(name, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT:
            modes.append(stat.S_IMODE(os.fstat(fd).st_mode))
        return fd

    monkeypatch.setattr(os, "open", look)
    for wanted in (True, False):
        parquet_bloom.write_table(keys_table(), path, bloom_filters=wanted, overwrite=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(modes) == {0o600}


@pytest.mark.parametrize("kind", ["pandas", "polars", "duckdb", "reader", "batch"])
def test_takes_whatever_speaks_arrow(tmp_path: Path, kind: str) -> None:
    table = pa.table({"id": range(3000), "name": [f"n{i * 7919 % 3000}" for i in range(3000)]})
    made = {
        "pandas": lambda: table.to_pandas(),
        "polars": lambda: pytest.importorskip("polars").from_arrow(table),
        "duckdb": lambda: pytest.importorskip("duckdb").from_arrow(table),
        "reader": lambda: table.to_reader(max_chunksize=7),
        "batch": lambda: table.combine_chunks().to_batches()[0],
    }
    path = tmp_path / "x.parquet"
    report = parquet_bloom.write_table(made[kind](), path, bloom_filters=["name"], row_group_size=800)
    assert report is not None
    assert [f.row_group for f in report.filters] == [0, 1, 2, 3], "row groups of the size asked for, whatever batches"
    assert pq.read_metadata(path).row_group(3).num_rows == 600
    assert pq.read_table(path).cast(table.schema).equals(table)
    assert parquet_bloom.count(path, "name = 'n14'") == 1
    with pytest.raises(RequestError, match="table is a dict; give a table or frame"):
        parquet_bloom.write_table({"id": [1]}, path)


@pytest.mark.skipif(PYARROW < 26, reason="older ones have fewer options")
def test_the_typed_options_are_those_of_pyarrow_s_writer(tmp_path: Path) -> None:
    """Names that pyarrow hides behind **options are known by its documentation; all go through, with its defaults."""
    signatures = [inspect.signature(function).parameters for function in (pq.ParquetWriter.__init__, pq.write_table)]
    taken = {name: one.default for them in signatures for name, one in them.items() if one.kind is not one.VAR_KEYWORD}
    ours = {"self", "where", "schema", "table", "row_group_size"}  # what our functions name themselves
    options = {name: default for name, default in taken.items() if name not in ours | {"writer_engine_version"}}
    options |= {"memory_pool": None, "metadata_collector": []}
    assert parquet_bloom.WriterOptions.__annotations__.keys() == options.keys(), "pyarrow takes others by now"
    table = keys_table()
    parquet_bloom.write_table(table, tmp_path / "plain.parquet", bloom_filters=["id"], sync=False)
    parquet_bloom.write_table(table, tmp_path / "told.parquet", bloom_filters=["id"], sync=False, **options)
    assert digest(tmp_path / "told.parquet") == digest(tmp_path / "plain.parquet")
    assert len(options["metadata_collector"]) == 1
