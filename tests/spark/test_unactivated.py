"""Scripts that run with the Python of an environment that is not activated: each way in works, or all say one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from clusters import connect_server, without_package
from support.samples import write_keys
from support.spark_needed import need_spark

import parquet_bloom

pytestmark = pytest.mark.spark
HERE = Path(__file__).resolve().parent
WAYS = ("add", "inspect", "check", "read", "add to a table", "check a table", "read a table", "register")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A python3 that can import nothing but Python's own modules, not what Spark puts in PYTHONPATH either."""
    need_spark()
    program = tmp_path_factory.mktemp("bare") / "python3"
    program.write_text(f'#!/bin/sh\nexec "{os.path.realpath(sys.executable)}" -I "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, int]:
    """A folder with a file that has filters, and a key of its second row group."""
    folder = tmp_path / "data"
    folder.mkdir()
    write_keys(folder / "keys.parquet")
    key = pq.read_table(folder / "keys.parquet")["id"][500].as_py()
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (extra `delta`)")
    deltalake.write_deltalake(f"{folder}-table", pq.read_table(folder / "keys.parquet", columns=["id"]))
    parquet_bloom.add_filters(folder, in_place=True, columns="id", sync=False)
    return folder, key


def environment(first: Path, **more: str) -> dict[str, str]:
    """That of a shell in which `first` is the python3 of PATH, and nothing names another."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "VIRTUAL"))}
    path = os.pathsep.join([str(first.parent), usual["PATH"]])
    return {**usual, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", **more}


def told_by(data: tuple[Path, int], env: dict[str, str], *server: str, ways: Sequence[str] = WAYS) -> dict[str, Any]:
    job = [sys.executable, HERE / "unactivated_job.py", *data, ",".join(ways), *server]
    done = subprocess.run([*map(str, job)], capture_output=True, text=True, timeout=280, check=False, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_on_this_machine_every_way_works(data: tuple[Path, int], bare: Path) -> None:
    told = told_by(data, environment(bare))
    key = data[1]
    assert told == {
        "add": [["done"]], "inspect": [["id"]] * len(told["inspect"]), "check": [[1]], "read": [[key]],
        "add to a table": [["done"]], "check a table": [[0]], "read a table": [[key]],
        "register": [[key]], "program": "python3", "by hand": [[key]],
    }  # fmt: skip
    assert told["inspect"]


def test_where_the_user_names_a_python_without_the_package_every_way_says_so(
    data: tuple[Path, int], bare: Path, tmp_path: Path
) -> None:
    other = without_package(tmp_path, "other", packages=True)
    for python, text, ways in (
        (bare, "the Python of the executors cannot run PySpark", WAYS[::2]),
        (other, "executors lack the package parquet-bloom", WAYS[1::2]),  # all of them: a server's, below
    ):
        told = told_by(data, environment(bare, PYSPARK_PYTHON=str(python)), ways=ways)
        [line] = {told[name] for name in ways}
        assert line.startswith(f"SparkJobError: {text}")
        assert "\n" not in line
        assert "spark.pyspark.python=/path/to/python" in line
        assert told["program"] == str(python), "the user's choice stays"


def test_the_first_script_of_the_page(bare: Path, tmp_path: Path) -> None:
    page = (HERE.parents[1] / "docs" / "spark.md").read_text()
    (tmp_path / "first.py").write_text(page.split("```python\n")[1].split("```")[0])
    shutil.copytree(HERE.parents[1] / "fixtures" / "pyarrow", tmp_path / "fixtures" / "pyarrow")
    done = subprocess.run(
        [sys.executable, "first.py"],
        capture_output=True, text=True, timeout=280, check=False, cwd=tmp_path, env=environment(bare),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    report, verdicts, rows = done.stdout.split("\n\n")[:3]
    assert report.count("|  done|") == 1
    assert (verdicts.count("true|    filter|"), verdicts.count("false|      NULL|")) == (4, 1)
    assert rows.count("4611686018427387904") == 1


def test_a_server_whose_python_lacks_the_package(data: tuple[Path, int], bare: Path, tmp_path: Path) -> None:
    need_spark(connect=True)
    python = without_package(tmp_path, "others", packages=True)
    with connect_server(tmp_path, environment(python)) as url:
        told = told_by(data, environment(bare), url)
    [line] = {told[name] for name in WAYS}
    assert line.startswith("SparkJobError: executors lack the package parquet-bloom: ")
    assert line.endswith("--py-files parquet_bloom.zip (parquet-bloom spark package parquet_bloom.zip)")
    assert "\n" not in line
