"""A SparkSession: the Python of its workers, how it starts, how far its jobs are, this package as a zip for it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from parquet_bloom.errors import RequestError, parameter
from parquet_bloom.extras import to_install
from parquet_bloom.output.atomic_file import new_output
from parquet_bloom.spark.failures import one_line

# --- workers --------------------------------------------------------------------------------------
#
# Which Python the workers of a session run our functions with, on a machine where no environment is activated.
#
#    PySpark names a program in each function that it sends (SparkContext.pythonExec): $PYSPARK_PYTHON, else "python3",
#    which is what comes first on the PATH of the machine that runs it
#
# On a local master the workers run on this machine, and sys.executable has all that the driver has: our functions
# name that. Functions of others in the same session keep the program that they had. Executors on other machines, and
# a server of Spark Connect, have a Python of their own.

SETTING = "spark.pyspark.python"
_VARIABLE = "PYSPARK_PYTHON"
_USUAL = "python3"  # PySpark's choice where nobody chooses
_naming = threading.RLock()


def context_of(spark: Any) -> Any:
    """The SparkContext of a session; None on Spark Connect, which has none."""
    try:
        return spark.sparkContext
    except Exception:
        return None


def _is_local(master: str) -> bool:
    """Whether all executors are on this machine."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def _python_for(master: str | None, setting: str | None) -> str | None:
    """The program of the workers; None: as PySpark has it. A master that is not known yet counts as local.

    PySpark takes the setting from spark-submit alone.
    """
    if setting is not None:
        return setting
    if _VARIABLE in os.environ or (master is not None and not _is_local(master)):
        return None
    return sys.executable or None


@contextlib.contextmanager
def environment_for(master: str | None, settings: Mapping[str, str]) -> Iterator[None]:
    """PYSPARK_PYTHON for as long as Spark starts: its JVM keeps the environment that it was started with."""
    python = _python_for(master, settings.get(SETTING))
    if python is None:
        yield
        return
    old = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = python
    try:
        yield
    finally:
        if old is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = old


def settle(spark: Any) -> None:
    """Choose the program for all functions of a session of our own, once it knows the settings of its files too."""
    context = context_of(spark)
    if context is not None:
        chosen = _python_for(context.master, context.getConf().get(SETTING)) or os.environ.get(_VARIABLE)
        context.pythonExec = chosen or _USUAL


def _program(context: Any) -> str:
    """The program that our functions name in a session of somebody else: theirs, if they chose one."""
    named = str(context.pythonExec)
    if named != _USUAL:
        return named
    return _python_for(context.master, context.getConf().get(SETTING)) or named


@contextlib.contextmanager
def own_python(spark: Any) -> Iterator[None]:
    """Name our program in the functions that are made within this; afterwards the session names its own again."""
    context = context_of(spark)
    if context is None:
        yield
        return
    with _naming:
        old = context.pythonExec
        context.pythonExec = _program(context)
        try:
            yield
        finally:
            context.pythonExec = old


def is_own(spark: Any) -> bool:
    """Whether the workers that run our functions are on this machine, and have the Python of this process."""
    context = context_of(spark)
    return context is not None and _is_local(context.master) and _program(context) == sys.executable


def adopt_python() -> None:
    """The same for a session to which a user gives a class of ours by Spark's own functions.

    Nobody says when the session has taken it, so the name stays. Nothing changes where the user chose a program, or
    where executors are on other machines.
    """
    context = getattr(getattr(import_module("pyspark"), "SparkContext", None), "_active_spark_context", None)
    if context is not None:
        context.pythonExec = _program(context)


# --- sessions -------------------------------------------------------------------------------------
#
# The active session, or one that is started here, on a Java that Spark runs on.

LEAST_JAVA = 17
_HOW = f"install one, such as Debian's openjdk-{LEAST_JAVA}-jre-headless, or set JAVA_HOME"


@contextlib.contextmanager
def session(
    master: str | None = None, settings: Mapping[str, str] | None = None, py_files: Sequence[str] = ()
) -> Iterator[Any]:
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
    active = _active_session(sql)
    if active is not None:
        _send(active, py_files)
        yield active
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


def _active_session(sql: Any) -> Any:
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


# --- progress -------------------------------------------------------------------------------------
#
# How far the jobs of a session are, as the driver knows it; the command shows it (`cli.progress`).
#
# Spark's status tracker says how many tasks of the stages that run are done. Where filters are added, executors also
# add the files and bytes they have finished to two accumulators, which Spark brings along when a task ends.
# A task that is repeated counts twice, so these may run ahead a little; they decide nothing.

Tasks = Callable[[], tuple[int, int, int]]  # done, of how many, running; of the stages that run
State = Callable[[], tuple[str, float | None]]  # in words, and the share that is done, 0 to 1; None: nobody knows


class JobProgress:
    """Counts for one job. The executors' copies only add.

    report  the rows of the report, where the driver has them; None: they are Spark's
    """

    report: Sequence[Mapping[str, Any]] | None = None

    def __init__(self, spark: Any) -> None:
        context = spark.sparkContext
        self._files = context.accumulator(0)
        self._bytes = context.accumulator(0)
        self.files = self.bytes = 0

    def expect(self, files: int, size: int) -> None:
        """On the driver, once the listing is known."""
        self.files, self.bytes = files, size

    def add(self, size: int) -> None:
        """On an executor: a file of so many bytes is finished."""
        self._files.add(1)
        self._bytes.add(size)

    @property
    def done(self) -> tuple[int, int]:
        """On the driver: files and bytes."""
        return self._files.value, self._bytes.value


@contextlib.contextmanager
def counted(spark: Any) -> Iterator[tuple[JobProgress | None, State]]:
    """The counters of add_filters, and a function that says how far the jobs of a session are.

    The counts are None on Spark Connect, whose server tells tasks alone. The function may be called from any thread.
    """
    job = None
    with _tasks_of(spark) as tasks:
        with contextlib.suppress(Exception):  # Spark Connect
            job = JobProgress(spark)
        yield job, lambda: _state(job, tasks)


def _state(job: JobProgress | None, tasks: Tasks) -> tuple[str, float | None]:
    try:
        done, total, running = tasks()
    except Exception:  # the JVM is gone: the job's own error says what is wrong
        return "", None
    words = []
    share = done / total if total else None
    if job is not None and job.files:
        words.append(f"{job.done[0]:,} of {job.files:,} files")
        share = min(1.0, job.done[1] / job.bytes) if job.bytes else None  # files differ in size
    if total:
        # A cluster without a free executor lets a job wait for ever, and says so in a log that nobody sees.
        waiting = ", waiting for free executors" if not running and done < total else ""
        words.append(f"{done:,} of {total:,} tasks{waiting}")
    return ", ".join(words) or "preparing the next job", share


@contextlib.contextmanager
def _tasks_of(spark: Any) -> Iterator[Tasks]:
    """A function that counts tasks, by the session's status tracker or the server's word."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:  # Spark Connect
        with _tasks_by_server(spark) as tasks_of_server:
            yield tasks_of_server
        return

    def tasks() -> tuple[int, int, int]:
        infos = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
        counts = ((info.numCompletedTasks, info.numTasks, info.numActiveTasks) for info in infos)
        done, total, running = map(sum, zip((0, 0, 0), *counts, strict=True))
        return done, total, running

    yield tasks


@contextlib.contextmanager
def _tasks_by_server(spark: Any) -> Iterator[Tasks]:
    latest = [(0, 0, 0)]

    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        running = [] if done else [stage for stage in stages or () if not stage.done]
        done_of = sum(stage.num_completed_tasks for stage in running), sum(stage.num_tasks for stage in running)
        latest[0] = *done_of, inflight_tasks

    spark.registerProgressHandler(handle)
    try:
        yield lambda: latest[0]
    finally:
        spark.removeProgressHandler(handle)


# --- archive --------------------------------------------------------------------------------------
#
# This package as a zip for executors that do not have it: spark-submit --py-files parquet_bloom.zip.
#
# It holds the modules alone; what they import (pyarrow, numba, ...) has machine code and must be installed there.

_WANTED = (".py", ".json", ".properties", ".typed")
_DATE = (1980, 1, 1, 0, 0, 0)  # the same zip for the same package


def write_archive(path: str, overwrite: bool = False) -> tuple[int, int]:
    """Write the zip; returns how many files are in it and its bytes.

    Raises RequestError for a name that is not *.zip, which PySpark would not put on the path; StorageError.
    """
    if not path.endswith(".zip"):
        raise RequestError(f"{path}: the name must end with .zip, else PySpark does not import from it")
    n = 0
    with new_output(path, overwrite=overwrite) as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for n, (name, module) in enumerate(_modules(files("parquet_bloom"), "parquet_bloom"), 1):  # noqa: B007
            archive.writestr(zipfile.ZipInfo(name, _DATE), module.read_bytes(), zipfile.ZIP_DEFLATED)
    return n, os.path.getsize(path)


def _modules(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _modules(entry, f"{name}/{entry.name}")
        elif entry.name.endswith(_WANTED):
            yield f"{name}/{entry.name}", entry
