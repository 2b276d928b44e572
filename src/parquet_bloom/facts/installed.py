"""The engines that can be asked, and which of them are installed here, in which version. Imports none of them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine that is asked in a process of its own.

    name     as --engine and JSON have it; title as people write it
    package  the distribution that has its version; module, what is imported
    adapter  module and class in worth.adapters
    seconds  that one question may take; the first one starts the engine
    counted  whether it reads files by read calls of its own process: the JVM's and mapped memory are not counted
    """

    name: str
    title: str
    package: str
    module: str
    adapter: str
    seconds: int = 60
    counted: bool = True


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("duckdb", "DuckDB", "duckdb", "duckdb", "in_duckdb:DuckDB"),
        Engine("datafusion", "DataFusion", "datafusion", "datafusion", "in_datafusion:DataFusion"),
        Engine("spark", "Spark", "pyspark", "pyspark", "in_spark:Spark", 240, counted=False),
        Engine("clickhouse", "ClickHouse", "chdb-core", "chdb", "in_chdb:ClickHouse", counted=False),
        Engine("polars", "Polars", "polars", "polars", "in_polars:Polars"),
        Engine("pyarrow", "pyarrow", "pyarrow", "pyarrow", "in_pyarrow:PyArrow"),
        Engine("daft", "Daft", "daft", "daft", "in_daft:Daft"),
        Engine("fastparquet", "fastparquet", "fastparquet", "fastparquet", "in_fastparquet:FastParquet"),
        Engine("parquet_bloom", "parquet_bloom", "parquet-bloom", "parquet_bloom", "in_parquet_bloom:ParquetBloom"),
    )
}


def version_of(engine: Engine) -> str | None:
    """The version that is installed; None if it is not, or cannot run (Spark without Java)."""
    from importlib import metadata
    from importlib.util import find_spec

    if engine.name == "parquet_bloom":
        from parquet_bloom._version import __version__

        return __version__
    try:
        if find_spec(engine.module) is None:
            return None
        version = metadata.version(engine.package)
    except (ImportError, ValueError, metadata.PackageNotFoundError):
        return None
    java = shutil.which("java") is not None or "JAVA_HOME" in os.environ
    return version if engine.name != "spark" or java else None
