"""Google's storage, by an emulator of its API on loopback: folders are names, and nothing marks them."""

from __future__ import annotations

import datetime as dt
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs
from samples import ROW_GROUPS, keys_table, write_keys

import parquet_bloom
from parquet_bloom.spark.listing import list_named
from parquet_bloom.spark.storages import Storages
from parquet_bloom.spark.units import files_of, first_file, look, plan

NAMES = ["year=2025/month=1/a.parquet", "year=2026/month=1/b.parquet", "year=2026/month=2/c.parquet", "top.parquet"]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """In a process of its own: pyarrow waits for some answers of this storage with the GIL held."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=data"]
    server = subprocess.Popen(
        [sys.executable, "-m", "gcp_storage_emulator", "start", *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not answers(port):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def store(endpoint: str, tmp_path: Path) -> Iterator[fs.GcsFileSystem]:
    """Objects as other programs leave them: no object stands for a folder."""
    gcs = fs.GcsFileSystem(
        anonymous=True,
        scheme="http",
        endpoint_override=endpoint,
        project_id="p",
        retry_time_limit=dt.timedelta(seconds=10),
    )
    data = write_keys(tmp_path / "keys.parquet").read_bytes()
    for name in [*NAMES, "year=2026/_temporary/half.parquet", "_delta/x.parquet"]:
        put(gcs, f"data/d/{name}", data)
    assert [info.path for info in gcs.get_file_info(fs.FileSelector("data/d"))] == ["data/d/top.parquet"], (
        "GcsFileSystem shows implicit folders by now: apache/arrow#35993 is closed"
    )
    yield gcs
    for info in gcs.get_file_info(fs.FileSelector("data", recursive=True)):
        if info.is_file:
            gcs.delete_file(info.path)


def put(gcs: fs.GcsFileSystem, path: str, data: bytes) -> None:
    with gcs.open_output_stream(path) as out:
        out.write(data)


def get(gcs: fs.GcsFileSystem, path: str) -> bytes:
    with gcs.open_input_stream(path) as file:
        return bytes(file.read())


def test_into_another_object_in_place_and_out_again(store: fs.GcsFileSystem, tmp_path: Path) -> None:
    """The bytes of a local run, and the old ones after remove."""
    old = get(store, "data/d/top.parquet")
    (tmp_path / "x.parquet").write_bytes(old)
    parquet_bloom.add_filters(tmp_path / "x.parquet", tmp_path / "y.parquet", columns=["id"], sync=False)
    expected = (tmp_path / "y.parquet").read_bytes()
    parquet_bloom.add_filters("data/d/top.parquet", "data/o/new.parquet", columns=["id"], filesystem=store)
    parquet_bloom.add_filters("data/d/top.parquet", columns=["id"], in_place=True, filesystem=store)
    assert get(store, "data/o/new.parquet") == get(store, "data/d/top.parquet") == expected
    assert {f.status for f in parquet_bloom.verify("data/o", filesystem=store).files[0].filters} == {"right"}
    parquet_bloom.remove_filters("data/d/top.parquet", in_place=True, filesystem=store)
    assert get(store, "data/d/top.parquet") == old


@pytest.mark.parametrize(
    ("source", "count"),
    [("data/d", 4), ("data/d/year=2026", 2), ("data/d/year=*", 3), ("data/d/*/month=1", 2), ("data/d/**/c.parquet", 1)],
)
def test_folders_and_patterns(store: fs.GcsFileSystem, source: str, count: int) -> None:
    files = parquet_bloom.inspect(source, filesystem=store).files
    assert len(files) == count
    assert {file.row_groups for file in files} == {ROW_GROUPS}


def test_rows_by_partition_and_filter(store: fs.GcsFileSystem) -> None:
    for name in NAMES[:3]:
        parquet_bloom.add_filters(f"data/d/{name}", columns=["id"], in_place=True, filesystem=store)
    key = keys_table()["id"][500].as_py()
    where = f"id = {key} AND year = 2026"
    verdicts = parquet_bloom.check("data/d/year=*", where, filesystem=store)
    assert sorted((v.path, v.row_group) for v in verdicts if not v.skipped) == [(f"data/d/{n}", 1) for n in NAMES[1:3]]
    assert parquet_bloom.read_table("data/d/year=*", where, filesystem=store)["month"].to_pylist() == [1, 2]


def test_level_by_level_as_tasks_list(store: fs.GcsFileSystem, endpoint: str) -> None:
    """On Spark, where each level is a job, and in its data source: no folder is left out."""
    settings = {"fs.gs.storage.root.url": f"http://{endpoint}/", "fs.gs.auth.type": "UNAUTHENTICATED"}
    where = Storages(settings)
    found = {path: kind for path, _, _, kind, _ in list_named("gs://data/d", where, False)}
    assert found == {
        "gs://data/d/top.parquet": "file", "gs://data/d/year=2025": "folder", "gs://data/d/year=2026": "folder",
    }  # fmt: skip
    expected = sorted(f"gs://data/d/{name}" for name in NAMES)
    assert sorted(piece.path for piece in look(["gs://data/d"], where).files) == expected
    first = first_file(look(["gs://data/d/year=2026"], where, folders=0), where)
    assert first is not None
    assert first.path == "gs://data/d/year=2026/month=1/b.parquet"
    shares = plan(["gs://data/d"], where, partitions=3)
    assert sorted(str(file) for unit in shares for file, _, _ in files_of(unit, where)) == expected
