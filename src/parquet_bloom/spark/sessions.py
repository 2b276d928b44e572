"""A SparkSession: the one there is, or one of our own, with the reason in one line where neither can be."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from parquet_bloom.errors import RequestError

LEAST_JAVA = 17
_HOW = f"install one, such as Debian's openjdk-{LEAST_JAVA}-jre-headless, or set JAVA_HOME"


@contextlib.contextmanager
def session(master: str | None = None, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Give the active session; where there is none, start one and stop it at the end.

    master    "local[*]" unless given here, by spark-submit or by the settings in SPARK_CONF_DIR; sc://HOST:PORT
              is a server for Spark Connect
    settings  Spark's properties, for a session that is started here
    Raises RequestError without pyspark or Java.
    """
    with warnings.catch_warnings():
        # Of pyspark's own, about the pandas beside it; nothing here gives Spark a pandas frame.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
        sql = _pyspark()
        active = sql.SparkSession.getActiveSession()
        if active is not None:
            yield active
            return
        started = _start(sql, master, settings or {})
        try:
            yield started
        except BaseException:
            with contextlib.suppress(Exception):  # what stopped us may have stopped the JVM
                started.stop()
            raise
        started.stop()


def _pyspark() -> Any:
    try:
        from pyspark import sql
    except ImportError as error:
        raise RequestError(f"Spark needs the extra spark: pip install 'parquet-bloom[spark]' ({error})") from error
    return sql


def _without_py4j(record: logging.LogRecord) -> bool:
    return "while sending command" not in str(record.msg)


def _start(sql: Any, master: str | None, settings: Mapping[str, str]) -> Any:
    # Else py4j prints tracebacks when the JVM is gone, and by the root logger when a signal ends the wait for it.
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    logging.getLogger().addFilter(_without_py4j)
    # spark-submit has started the JVM by now, and a remote session needs none here.
    remote = master is not None and master.startswith("sc://")
    submitted = remote or "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ
    builder = sql.SparkSession.builder.appName("parquet-bloom")
    if not submitted:
        check_java()
        quiet = Path(__file__).with_name("log4j2.properties")
        # JVM options only count before the JVM starts, which is now.
        if quiet.is_file() and "spark.driver.extraJavaOptions" not in settings:
            builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet.as_uri()}")
        builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.ui.enabled", "false")
        if master is None and "spark.master" not in settings and "SPARK_CONF_DIR" not in os.environ:
            master = "local[*]"
    if master is not None:
        builder = builder.remote(master) if remote else builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RequestError(f"Spark did not start: {lines[0]}") from error


def check_java() -> None:
    """Raise RequestError, in one line with what to do, where there is no Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "here"
        raise RequestError(f"Spark needs Java {LEAST_JAVA} or later, and there is none {where}: {_HOW}")
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestError(
            f"Spark needs Java {LEAST_JAVA} or later, and {java} does not run ({error}): {_HOW}"
        ) from error
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found is not None and int(found[1]) < LEAST_JAVA:
        raise RequestError(f"Spark needs Java {LEAST_JAVA} or later, and {java} is Java {found[1]}: {_HOW}")
