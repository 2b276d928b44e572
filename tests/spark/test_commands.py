"""The commands as a stranger runs them: by their path, from an environment that nobody activated, relative names.

`python3` is first on PATH and lacks everything; Spark would run its workers with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from clusters import standalone, without_package
from support.samples import ROW_GROUPS, write_keys
from support.spark_needed import need_spark, without_progress

from parquet_bloom.extras import to_install_ourselves

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
FILES = 3
CLUSTER = [
    "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=512m",
    "--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
]  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    need_spark()
    bare = without_package(tmp_path_factory.mktemp("python"), "bare", packages=False)
    return f"{bare.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="module")
def cluster(path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Workers that have no package of ours, but what the tests' caller put on PYTHONPATH is not theirs either."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with standalone(
        tmp_path_factory.mktemp("cluster"), {**environment, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    ) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The current folder of the commands, with some files in data/."""
    (tmp_path / "data" / "year=2026").mkdir(parents=True)
    for i in range(FILES):
        write_keys(tmp_path / "data" / "year=2026" / f"{i}.parquet", compression=["none", "snappy", "zstd"][i])
    return tmp_path


@pytest.fixture
def call(path: str, folder: Path) -> Any:
    program = Path(sys.executable).with_name("parquet-bloom")
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "SPARK_CONF_DIR")}
    environment |= {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}

    def run(*arguments: object, **more: str) -> tuple[int, str, list[str]]:
        done = subprocess.run(
            [program, "spark", *map(str, arguments)], cwd=folder, env={**environment, **more},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        told = [line for line in without_progress(done.stderr) if not line.startswith("WARNING: Using incubator modul")]
        return done.returncode, done.stdout, told

    return run


def some_id(folder: Path) -> int:
    return int(pq.read_table(folder / "data" / "year=2026" / "2.parquet")["id"][500].as_py())


def test_on_this_machine(call: Any, folder: Path) -> None:
    status, out, err = call("add", "data", "-c", "id", "-o", "out", "--report", "report.parquet")
    assert (status, err) == (0, [])
    assert out.startswith(f"{FILES} files: {FILES} done, 0 unchanged, 0 failed; {FILES * ROW_GROUPS} filters, ")
    assert "\nreport: report.parquet\n" in out
    rows = pq.read_table(folder / "report.parquet").to_pylist()
    assert {row["output"] for row in rows} == {str(path) for path in (folder / "out").rglob("*.parquet")}
    assert {Path(row["path"]).parent for row in rows} == {folder / "data" / "year=2026"}
    status, out, err = call("read", "out", "--where", f"id = {some_id(folder)}", "--columns", "id,year", "-o", "rows")
    assert (status, out, err) == (0, "", [])
    assert pq.read_table(folder / "rows").to_pylist() == [{"id": some_id(folder), "year": 2026}] * FILES
    assert sorted(path.name for path in folder.iterdir()) == ["data", "out", "report.parquet", "rows"]


def test_the_users_choice_of_a_python_comes_first(call: Any, folder: Path, tmp_path_factory: Any) -> None:
    """By property and by spark-defaults.conf: each names a Python that has nothing, and is told.

    By variable: test_unactivated.py.
    """
    bare = without_package(tmp_path_factory.mktemp("chosen"), "chosen", packages=False)
    inspect = ("inspect", "data", "--master", "local[1]")
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(f"spark.master local[1]\nspark.pyspark.python {bare}\n")
    for arguments, variables in (
        ((*inspect, "--conf", f"spark.pyspark.python={bare}"), {"PYSPARK_PYTHON": sys.executable}),
        (("inspect", "data"), {"SPARK_CONF_DIR": str(folder / "conf")}),
    ):
        status, out, err = call(*arguments, **variables)
        assert (status, out) == (2, ""), variables
        assert len(err) == 1
        assert err[0].startswith("parquet-bloom: executors lack "), "whichever module is missed first"
        assert f"{to_install_ourselves('spark')}, for the Python that executors run" in err[0]


def test_failed_files_are_told_and_nothing_is_left(call: Any, folder: Path) -> None:
    """With a master from spark-defaults.conf, which nobody knows before Spark has started."""
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text("spark.master local[1]\n")
    for i in range(7):
        (folder / "data" / f"bad{i}.parquet").write_text("x")
    before = sorted(folder.iterdir())
    status, out, err = call("add", "data", "-c", "id", "--in-place", "--json", SPARK_CONF_DIR=str(folder / "conf"))
    assert status == 2
    assert (json.loads(out)["failed"], json.loads(out)["report"], len(json.loads(out)["errors"])) == (7, None, 5)
    assert [line.split(": ")[1] for line in err[:5]] == [str(folder / "data" / f"bad{i}.parquet") for i in range(5)]
    assert err[5:] == [
        f"parquet-bloom: 7 of {7 + FILES} files failed; the first 5 are above, give --report FILE for all of them"
    ]
    assert sorted(folder.iterdir()) == before


def test_on_a_cluster_without_the_package(call: Any, folder: Path, cluster: str) -> None:
    """One line each, with what to do; nothing is written."""
    add = ("add", "data", "-c", "id", "-o", "out", "--master", cluster, *CLUSTER)
    status, out, err = call(*add)
    assert (status, out, err[1:]) == (2, "", [])
    assert err[0].startswith("parquet-bloom: executors lack ")
    assert "spark.pyspark.python=/path/to/python" in err[0]
    status, out, err = call(*add, "--conf", "spark.pyspark.python=/none/python3")
    assert (status, out, err[1:]) == (2, "", [])
    assert err[0].startswith("parquet-bloom: executors cannot run /none/python3 (No such file or directory): ")
    assert not (folder / "out").exists()


@pytest.mark.slow
def test_on_a_cluster_with_another_python(call: Any, folder: Path, cluster: str) -> None:
    """The first of three ways in docs/spark.md is that workers find a `python3` that has the package (test_faults)."""
    status, _, err = call(
        "add", "data", "-c", "id", "-o", "out", "--master", cluster, *CLUSTER,
        "--conf", f"spark.pyspark.python={sys.executable}",
    )  # fmt: skip
    assert (status, err) == (0, [])
    assert len(list((folder / "out" / "year=2026").iterdir())) == FILES


def test_on_a_cluster_with_a_zip(call: Any, folder: Path, cluster: str, tmp_path_factory: Any) -> None:
    """Executors have what the package imports, but not the package; how they say so: test_unactivated.py."""
    status, out, err = call("package", "parquet_bloom.zip")
    assert (status, err) == (0, [])
    assert out.startswith("parquet_bloom.zip: ")
    assert call("package", "parquet_bloom.zip")[2] == [
        "parquet-bloom: parquet_bloom.zip: exists; give --overwrite to replace it"
    ]
    python = without_package(tmp_path_factory.mktemp("python"), "others", packages=True)
    on_cluster = ("--master", cluster, *CLUSTER, "--conf", f"spark.pyspark.python={python}")
    status, out, err = call("check", "data", f"id = {some_id(folder)}", "--py-files", "parquet_bloom.zip", *on_cluster)
    assert (status, err) == (0, [])
    assert f"{FILES} files, {FILES * ROW_GROUPS} row groups, " in out
