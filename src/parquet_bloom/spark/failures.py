"""Spark's errors in one line: what executors lack to run our code and how they get it, or the line that matters.

    Job aborted due to stage failure: ... Lost task 0.3 in stage 0.0 (TID 3) (host executor 1): java.io.IOException: ...
    An exception was thrown from the Python worker:\nTraceback ...\nModuleNotFoundError: No module named 'parquet_bloom'

Spark hands on a worker's traceback, and a JVM's, as one text; only its words tell what happened.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from parquet_bloom import errors
from parquet_bloom.errors import FileError, Parameter, ParquetBloomError, SparkJobError, worded
from parquet_bloom.extras import to_install_ourselves

P = ParamSpec("P")
T = TypeVar("T")
_MOST = 600  # characters of a line
_LONGEST = 4000  # of one that is searched
_INSTALL = f"{to_install_ourselves('spark')}, for the Python that executors run"
_NAME = "name another Python of theirs with spark.pyspark.python=/path/to/python"
_SEND = "send it along with --py-files parquet_bloom.zip (parquet-bloom spark package parquet_bloom.zip)"
_OTHER = f"executors have another version of parquet-bloom: {_INSTALL} again, or {_SEND}"
_TRACEBACK = "Traceback (most recent call last):"
_STACK = re.compile(r"\s+at [\w.$<>/]+\(|\s*\.\.\. \d+ more|Driver stacktrace:|JVM stacktrace:|\s*SQLSTATE: ")
_BEFORE_CAUSE = re.compile(r".*?\(TID \d+\) \([^()]*\): ", re.DOTALL)
_JAVA_CLASS = re.compile(r"(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)(?:: |$)")
_PYTHON_ERROR = re.compile(r"(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Interrupt))(?:: (.*))?")
_OURS = re.compile(r"^parquet_bloom\.errors\.(\w+): ([^\n]+)", re.MULTILINE)
_GONE = "Spark's JVM is gone: it was killed, or ran out of memory; files that were not finished are as they were"


def _with_short_lines(text: str) -> str:
    """A text whose lines are cut: names of columns and files stand in it, and searches in a line are not all linear."""
    return "\n".join(line[:_LONGEST] for line in text.splitlines())


def is_of_spark(error: BaseException) -> bool:
    """Whether PySpark, py4j or gRPC raised it."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j", "grpc") or isinstance(
        error, ConnectionRefusedError | ConnectionResetError
    )


def lacking(error: BaseException) -> SparkJobError | None:
    """The error for something that executors lack to run this package, with advice; None for all other errors."""
    text = _with_short_lines(str(error)) if is_of_spark(error) else ""
    for pattern, advice in _LACKING:
        if found := re.search(pattern, text):
            return SparkJobError(advice(found))
    return None


def _without(found: re.Match[str]) -> str:
    """The advice for a module that is not there."""
    package, _, inside = found[1].partition(".")
    if package != "parquet_bloom":
        return f"executors lack {found[1]}, which parquet-bloom needs: {_INSTALL}, or {_NAME}"
    return _OTHER if inside else f"executors lack the package parquet-bloom: {_INSTALL}, {_NAME}, or {_SEND}"


def _without_python(found: re.Match[str]) -> str:
    reason = f" ({found[1].strip()})" if found[1] else ""
    return f"the Python of the executors cannot run PySpark{reason}: {_NAME}"


# What Spark says, and what is to be done.
_LACKING: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (
        r'Cannot run program "([^"]+)"(?:[^\n]*?error=\d+, ([^\n]+))?',
        lambda m: f"executors cannot run {m[1]} ({m[2] or 'it does not run'}): {_NAME}, or set PYSPARK_PYTHON",
    ),
    (
        r"PYTHON_VERSION_MISMATCH\][^\n]*?version: ([\d.]+)[^\n]*?driver: ([\d.]+)",
        lambda m: f"executors run Python {m[1]}, and this is Python {m[2]}; both must be the same: {_NAME}",
    ),
    (r"Error from python worker:\s*([^\n]+)|reading the port number from pyspark.daemon", _without_python),
    (r"PACKAGE_NOT_INSTALLED\] ([^\n]+?) must be installed", _without),
    (r"(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'", _without),
    (r"(?:Can't get attribute|cannot import name|has no attribute)[^\n]*'parquet_bloom", lambda _: _OTHER),
)


def one_line(error: BaseException) -> str:
    """The line that matters of whatever Spark raised, without a traceback or a JVM's stack."""
    known = lacking(error)
    if known is not None:
        return str(known)
    text = _with_short_lines(str(error))
    if type(error).__name__ == "Py4JNetworkError" or isinstance(error, ConnectionError):
        return _GONE
    java = getattr(error, "java_exception", None)
    if java is not None:
        try:
            text = _with_short_lines(str(java.toString()))
        except Exception:  # the JVM is gone
            return _GONE
    if _TRACEBACK in text:
        message = _of_python(text.rpartition(_TRACEBACK)[2])
    else:
        message = _of_java(text)
    message = message or type(error).__name__
    return message if len(message) <= _MOST else f"{message[:_MOST]}..."


def _of_python(text: str) -> str:
    """The last line of a traceback, with the lines that its message has more; errors of ours without their names."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        found = _PYTHON_ERROR.fullmatch(line)
        if found is None:
            continue
        more = []
        for following in lines[at + 1 :]:
            if not following.strip() or _STACK.match(following):
                break
            more.append(following.strip())
        message = " ".join([found[2] or "", *more]).strip()
        return message if message and "parquet_bloom.errors." in line else f"{found[1]}: {message}".rstrip(": ")
    return ""


def _of_java(text: str) -> str:
    """The message before the stack, and the deepest cause behind it where that is another one."""
    lines: list[str] = []
    for line in text.splitlines():
        if _STACK.match(line) and lines:
            break
        if line.strip() and not line.startswith("An error occurred while calling"):
            lines.append(line.strip().removeprefix(": "))
    message = _BEFORE_CAUSE.sub("", " ".join(lines[:3]), count=1)
    while (shorter := _JAVA_CLASS.sub("", message, count=1)) and _JAVA_CLASS.match(message):
        message = shorter
    message = re.sub(r"\s*SQLSTATE: \w+$", "", message)
    causes = re.findall(r"^Caused by: (.+)$", text, re.MULTILINE)
    if causes:
        cause = _JAVA_CLASS.sub("", causes[-1], count=1) or causes[-1]
        if cause not in message:
            message = f"{message}: {cause}"
    return message


@contextmanager
def in_one_line() -> Iterator[None]:
    """Turn every error of Spark's into a SparkJobError."""
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise SparkJobError(one_line(error)) from error


def of_ours(error: BaseException) -> ParquetBloomError | None:
    """The error of ours that a task raised, by Spark's text of it; None for all others."""
    found = _OURS.findall(str(error)) if is_of_spark(error) else []
    kind = getattr(errors, found[-1][0], None) if found else None
    if not isinstance(kind, type) or not issubclass(kind, ParquetBloomError):
        return None
    message = found[-1][1]
    try:
        return kind(*message.split(": ", 1)) if issubclass(kind, FileError) else kind(message)
    except TypeError:
        return SparkJobError(message)


@contextmanager
def raising_ours() -> Iterator[None]:
    """Raise the error of ours that a task raised in the place of Spark's error of it."""
    try:
        yield
    except Exception as error:
        if (own := of_ours(error)) is None:
            raise
        raise own from error


_OPTIONS = {"columns": "columns", "raw_files": "rawFiles"}  # of the data source, by the parameters that errors advise


@contextmanager
def naming_options() -> Iterator[None]:
    """Have errors advise options of the data source, where functions have parameters of another name."""

    def named(one: Parameter) -> str:
        value = "..." if one.value is None else f'"{one.value}"'.lower()
        return f'.option("{_OPTIONS[one.name]}", {value})' if one.name in _OPTIONS else str(one)

    try:
        yield
    except ParquetBloomError as error:
        error.args = (worded(error.message, named),)
        raise


def short(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function that Spark calls raise errors of ours without their frames: Spark prints all of a traceback."""

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            with naming_options():
                return function(*arguments, **options)
        except ParquetBloomError as error:
            raise error.with_traceback(None) from None

    return call


def explained(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function that runs jobs raise SparkJobError where executors lack something; other errors pass."""

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except Exception as error:
            known = lacking(error)
            if known is None:
                raise
            raise known from error

    return call
