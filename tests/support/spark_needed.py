"""Whether Spark can run here; where it must, as in CI, its absence is a failure."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil

import pytest


def without_progress(stderr: str) -> list[str]:
    """The lines of stderr but those that a slow machine sees: how far a command is, every ten seconds."""
    progress = re.compile(r"spark \w+: (preparing the next job|[\d,]+ of )")
    return [line for line in stderr.splitlines() if not progress.match(line)]


def need_spark(connect: bool = False) -> None:
    """Skip with the reason, or fail where PARQUET_BLOOM_REQUIRE_SPARK is set."""
    missing = None
    if importlib.util.find_spec("pyspark") is None:
        missing = "pyspark is not installed (extra `spark`)"
    elif shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        missing = "Spark needs Java 17, and there is no java"
    elif connect and importlib.util.find_spec("grpc") is None:
        missing = "Spark Connect needs pyspark[connect]"
    if missing is None:
        return
    if os.environ.get("PARQUET_BLOOM_REQUIRE_SPARK"):
        pytest.fail(missing)
    pytest.skip(missing)
