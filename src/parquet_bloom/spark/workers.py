"""Which Python the workers of a session run our functions with, on a machine where no environment is activated.

    PySpark names a program in each function that it sends (SparkContext.pythonExec): $PYSPARK_PYTHON, else "python3",
    which is what comes first on the PATH of the machine that runs it

On a local master the workers run on this machine, and sys.executable has all that the driver has: our functions name
that. Functions of others in the same session keep the program that they had. Executors on other machines, and a server
of Spark Connect, have a Python of their own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

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
