"""One local Spark for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.spark_needed import need_spark

from parquet_bloom.spark.sessions import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Started as the commands start theirs; its workers also import modules of tests, by name."""
    need_spark()
    tests = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])  # for Java, where it starts
    settings = {
        "spark.executorEnv.PYTHONPATH": tests,  # where Java runs since an older session, as of tests/engines
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.default.parallelism": "1",  # few tasks: most of what is here are small files
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # these tests are over before C2 pays
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    with session("local[2]", settings) as started:
        started.sparkContext.setLogLevel("ERROR")
        yield started
