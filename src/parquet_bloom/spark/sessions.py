"""A SparkSession: the one there is, or one of our own, with the reason in one line where neither can be."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from parquet_bloom.errors import RequestError, parameter
from parquet_bloom.extras import to_install
from parquet_bloom.spark.failures import one_line
from parquet_bloom.spark.workers import context_of, environment_for, settle

LEAST_JAVA = 17
_HOW = f"install one, such as Debian's openjdk-{LEAST_JAVA}-jre-headless, or set JAVA_HOME"


@contextlib.contextmanager
def session(
    master: str | None = None, settings: Mapping[str, str] | None = None, py_files: Sequence[str] = ()
) -> Iterator[Any]:  # fmt: skip
    """Give the active session; where there is none, start one and stop it at the end.

    master    "local[*]" unless given here, by spark-submit or by the settings in SPARK_CONF_DIR; sc://HOST:PORT
              is a server for Spark Connect
    settings  Spark's properties, for a session that is started here
    py_files  .zip, .whl and .py files that the executors get, of any session

    A session that is started here on a local master runs its Python workers with sys.executable; the setting
    spark.pyspark.python and the variable PYSPARK_PYTHON come first, on every master.
    Raises RequestError without pyspark or Java.
    """
    sql = _pyspark()
    for name in py_files:
        if "://" not in name and not os.path.isfile(name):
            raise RequestError(
                parameter("py_files") + f" {name}: no such file; parquet-bloom spark package OUT.zip makes one"
            )
    given = _given(sql)
    if given is not None:
        _send(given, py_files)
        yield given
        return
    started = _start(sql, master, settings or {})
    try:
        _send(started, py_files)
        yield started
    except BaseException:
        with contextlib.suppress(Exception):  # what stopped us may have stopped the JVM
            started.stop()
        raise
    started.stop()


def _given(sql: Any) -> Any:
    """The session that others started, if there is one; also one of another thread."""
    active = sql.SparkSession.getActiveSession()
    if active is None:
        context = getattr(import_module("pyspark"), "SparkContext", None)
        if getattr(context, "_active_spark_context", None) is not None:
            active = sql.SparkSession.builder.getOrCreate()
    return active


def _send(spark: Any, py_files: Sequence[str]) -> None:
    """Give executors files with Python code. Raises RequestError."""
    for name in py_files:
        context = context_of(spark)
        try:
            if context is None:
                spark.addArtifacts(name, pyfile=True)
            else:
                context.addPyFile(name)
        except Exception as error:
            raise RequestError(parameter("py_files") + f" {name}: {one_line(error)}") from error


def _pyspark() -> Any:
    try:
        from pyspark import sql
    except ImportError as error:
        raise RequestError(f"Spark needs pyspark and pandas: {to_install('spark')} ({error})") from error
    if find_spec("pandas") is None:  # PySpark wants it beside pyarrow
        raise RequestError(f"Spark needs pyspark and pandas: {to_install('spark')} (No module named 'pandas')")
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
        _check_master(master or settings.get("spark.master"))
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
        if remote:
            return builder.getOrCreate()
        with environment_for(master or settings.get("spark.master"), settings):
            started = builder.getOrCreate()
    except Exception as error:
        message = one_line(error)
        if master is not None and master.startswith("spark://") and "stopped SparkContext" in message:
            message = f"no master answers at {master}"
        raise RequestError(f"Spark did not start: {message}") from error
    settle(started)
    return started


# --- Java -----------------------------------------------------------------------------------------


def _check_master(master: str | None) -> None:
    """Spark says in 12 lines what it takes for a master."""
    if master is not None and not master.startswith(("local", "spark://", "yarn", "k8s://")):
        raise RequestError(f"master {master}: expected local[N], spark://HOST:PORT, yarn, k8s://URL or sc://HOST:PORT")


def check_java() -> None:
    """Raise RequestError, in one line with what to do, where there is no Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "here"
        raise RequestError(f"Spark needs Java {LEAST_JAVA} or later, and there is none {where}: {_HOW}")
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestError(
            f"Spark needs Java {LEAST_JAVA} or later, and {java} does not run ({error}): {_HOW}"
        ) from error
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    if found is not None and int(found[1]) < LEAST_JAVA:
        raise RequestError(f"Spark needs Java {LEAST_JAVA} or later, and {java} is Java {found[1]}: {_HOW}")
