"""A client of Spark Connect, without a JVM: python connect_job.py URL FOLDER OUTPUT KEY S3; prints what it got."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")


def main() -> None:
    from support.object_store import REGION

    from parquet_bloom import spark as bloom
    from parquet_bloom.errors import TableFormatError
    from parquet_bloom.spark.sessions import session

    url, folder, output, key, endpoint = sys.argv[1:]
    where = f"id = {key} AND year = 2026"
    with session(url) as spark:
        for name, value in (("endpoint", endpoint), ("endpoint.region", REGION), ("path.style.access", "true")):
            spark.conf.set(f"spark.hadoop.fs.s3a.{name}", value)
        bloom.register(spark)
        source = spark.read.format("parquet_bloom").option("where", where)
        told = {
            "client": type(spark).__module__,
            "add": bloom.add_filters(spark, [folder], columns=["id"], output=f"{output}/small").select("status"),
            "split": bloom.add_filters(spark, [folder], columns=["id"], output=f"{output}/large", split_bytes=1)
            .select("status"),
            "again": bloom.add_filters(spark, [folder], columns=["id"], output=f"{output}/large").select("status"),
            "inspect": bloom.inspect_filters(spark, [f"{output}/small"]).select("column"),
            "verify": bloom.verify_filters(spark, [f"{output}/small"]).select("status"),
            "check": bloom.check(spark, [f"{output}/small"], where).where("not skipped").select("row_group"),
            "prune": bloom.prune(spark, [f"{output}/small"], where).select("row_groups"),
            "s3": bloom.prune(spark, ["s3a://data/year=2026"], f"id = {key}").select("path", "row_groups", "error"),
            "read": bloom.read(spark, [f"{output}/small"], where).select("id", "year"),
            "source": source.load(f"{output}/small").select("id", "year"),
            "keys": str([one.entries for one in bloom.build_index(spark, folder, "id", f"{output}/keys").columns]),
            "asked": bloom.prune(spark, [folder], where, index=f"{output}/keys").select("row_groups"),
            "index": bloom.build_zone_index(spark, [folder], ["id"], f"{output}/index").select("column", "zones"),
        }  # fmt: skip
        told = {name: got if isinstance(got, str) else list(map(list, got.collect())) for name, got in told.items()}
        (Path(output) / "small" / "_delta_log").mkdir()
        (Path(output) / "small" / "_delta_log" / "0.json").write_text("{}")
        try:
            bloom.check(spark, [f"{output}/small/year=2026"], where)
        except TableFormatError as error:
            told["table"] = str(error).partition(",")[0].removeprefix(output)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
