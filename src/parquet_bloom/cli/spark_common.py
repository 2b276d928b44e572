"""What the `parquet-bloom spark` commands share: their options, the session, and what they say of files that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from parquet_bloom.cli.common import complain, json_option
from parquet_bloom.cli.groups import FILE
from parquet_bloom.errors import RequestError

F = TypeVar("F", bound=Callable[..., Any])


def session_options(function: F) -> F:
    """--master, --conf and --py-files."""
    function = click.option(
        "--py-files", multiple=True, type=FILE, metavar="FILES",
        help="Python code for the executors: .zip, .whl, .py, with commas between; see `spark package`.",
    )(function)  # fmt: skip
    function = click.option("--conf", multiple=True, metavar="K=V", help="One of Spark's properties; may be repeated.")(
        function
    )
    return click.option("--master", metavar="URL", help="Of a session that is started here.  [default: local[*]]")(
        function
    )


def report_options(function: F) -> F:
    """Those of session_options, --report and --json."""
    function = click.option("--report", type=FILE, metavar="FILE", help="Write all rows there, as Parquet.")(
        json_option(function)
    )
    return session_options(function)


paths_argument = click.argument("paths", nargs=-1, required=True, type=FILE, metavar="PATHS...")


@contextmanager
def open_session(master: str | None, conf: Sequence[str], py_files: Sequence[str] = ()) -> Iterator[Any]:
    """A session, within which errors of Spark's are one line."""
    from parquet_bloom.spark.failures import in_one_line
    from parquet_bloom.spark.sessions import session

    settings = {}
    for text in conf:
        name, equals, value = text.partition("=")
        if not equals:
            raise RequestError(f"--conf {text}: expected NAME=VALUE")
        settings[name] = value
    names = [name for text in py_files for name in text.split(",") if name]
    with in_one_line(), session(master, settings, names) as spark:
        yield spark


def say_failed(failed: int, files: int, first: Sequence[str], written: str | None) -> int:
    """Name the first failed files, then how many there are and where all are; returns the exit status."""
    for error in first:
        complain(error)
    if failed:
        more = ""
        if failed > len(first):
            rest = f"all of them are in {written}" if written is not None else "give --report FILE for all of them"
            more = f"; the first {len(first)} are above, {rest}"
        complain(f"{failed:,} of {files:,} files failed{more}")
    return 2 if failed else 0
