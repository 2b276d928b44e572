"""Every way into Spark, in a session of the script's own: python unactivated_job.py FOLDER KEY WAY,.. [URL].

Prints what each of these ways got, or its error as type and text.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

warnings.simplefilter("ignore")


def main() -> None:
    from pyspark.sql import SparkSession

    from parquet_bloom import spark as bloom

    folder, key, named, *server = sys.argv[1:]
    builder = SparkSession.builder
    if server:
        spark = builder.remote(server[0]).getOrCreate()
    else:
        spark = builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
    where, table = f"id = {key}", f"delta:{folder}-table"

    def source() -> Any:
        return spark.read.format("parquet_bloom").option("where", where).load(folder).select("id")

    def registered() -> Any:
        bloom.register(spark)
        return source()

    def by_hand() -> Any:
        spark.dataSource.register(bloom.ParquetBloomSource)
        return source()

    ways: dict[str, Callable[[], Any]] = {
        "add": lambda: bloom.add_filters(spark, folder, columns="id", output=f"{folder}-new").select("status"),
        "inspect": lambda: bloom.inspect_filters(spark, folder).select("column"),
        "check": lambda: bloom.check(spark, folder, where).where("not skipped").select("row_group"),
        "read": lambda: bloom.read(spark, folder, where, "id"),
        "add to a table": lambda: bloom.add_filters(spark, table, columns="id").select("status"),
        "check a table": lambda: bloom.check(spark, table, where).where("not skipped").select("row_group"),
        "read a table": lambda: bloom.read(spark, table, where, "id"),
        "register": registered,
    }
    told = {name: _outcome(ways[name]) for name in named.split(",")}
    if not server:
        told["program"] = spark.sparkContext.pythonExec  # before the one way that has to change it
        told["by hand"] = _outcome(by_hand)
    print(json.dumps(told))


def _outcome(way: Callable[[], Any]) -> Any:
    try:
        return [list(row) for row in way().collect()]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
