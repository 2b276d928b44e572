"""Spark Connect, as Databricks and other shared sessions have it: a client without a JVM, and a server elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from clusters import activated, connect_server
from support.commands import command
from support.object_store import KEY, SECRET, serving
from support.samples import ROW_GROUPS, write_keys
from support.spark_needed import need_spark, without_progress

import parquet_bloom

pytestmark = pytest.mark.spark
HERE = Path(__file__).resolve().parent
FILES = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need_spark(connect=True)
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
    env = {**activated(), **keys}
    with connect_server(tmp_path_factory.mktemp("connect"), env) as url:
        yield url


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "year=2026"
    folder.mkdir(parents=True)
    for i in range(FILES):
        write_keys(folder / f"{i}.parquet", compression=["none", "snappy", "zstd", "gzip"][i])
    return folder.parent


def test_every_function(server: str, data: Path, tmp_path: Path) -> None:
    """Of the store, the session's settings say where it is; a client of Connect is not told its keys."""
    parquet_bloom.add_filters(data, tmp_path / "expected", columns=["id"], sync=False)
    entries = str([one.entries for one in parquet_bloom.build_index(data, "id", tmp_path / "one").columns])
    key = pq.read_table(data / "year=2026" / "2.parquet")["id"][500].as_py()
    with serving() as store:
        store.client.create_bucket(Bucket="data")
        store.put("data/year=2026/x.parquet", (tmp_path / "expected" / "year=2026" / "2.parquet").read_bytes())
        job = [sys.executable, HERE / "connect_job.py", server, data, tmp_path, key, store.endpoint]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE.parent)])}
        done = subprocess.run([*map(str, job)], capture_output=True, text=True, timeout=280, check=False, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("client").startswith("pyspark.sql.connect.")
    assert told == {
        "add": [["done"]] * FILES, "split": [["done"]] * FILES, "again": [["unchanged"]] * FILES,
        "inspect": [["id"]] * FILES * ROW_GROUPS, "verify": [["right"]] * FILES * ROW_GROUPS,
        "check": [[1]] * FILES, "prune": [[[1]]] * FILES,
        "s3": [["s3a://data/year=2026/x.parquet", [1], None]],
        "read": [[key, 2026]] * FILES, "source": [[key, 2026]] * FILES,
        "keys": entries, "asked": [[[1]]] * FILES, "index": [["id", FILES]],
        "table": f"/small/year=2026: lies in the Delta table {tmp_path}/small",
    }  # fmt: skip
    for path in (tmp_path / "expected").rglob("*.parquet"):
        for way in ("small", "large"):
            assert (tmp_path / way / path.relative_to(tmp_path / "expected")).read_bytes() == path.read_bytes()


def test_the_command_with_the_url_as_its_master(server: str, data: Path) -> None:
    """No Java on this side."""
    environment = {"JAVA_HOME": "/none", "PYTHONPATH": str(HERE.parents[1] / "src"), "PYTHONWARNINGS": "ignore"}
    done = command("spark", "add", data, "-c", "id", "--in-place", "--master", server, **environment)
    assert (done.returncode, without_progress(done.stderr)) == (0, [])
    assert done.stdout.startswith("4 files: 4 done, 0 unchanged, 0 failed; 12 filters, ")
    assert {f.status for file in parquet_bloom.verify(data).files for f in file.filters} == {"right"}
