"""What the commands share: options, JSON, warnings, progress, the closing count of failures."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from parquet_bloom.errors import FilterWarning, RequestError, StorageError, TableWarning

F = TypeVar("F", bound=Callable[..., Any])


def columns_options(function: F) -> F:
    """--column and --exclude, names or patterns."""
    function = click.option(
        "--exclude", "-x", multiple=True, metavar="C", help="Leave out a column, by name or pattern."
    )(function)
    return click.option("--column", "-c", "columns", multiple=True, metavar="C", help="A column, by name or pattern.")(
        function
    )


def output_options(function: F) -> F:
    """Where a new version of a file goes, and how."""
    for option in reversed(
        (
            click.option("--output", "-o", metavar="FILE_OR_DIR", help="Write here; several sources need a folder."),
            click.option("--in-place", is_flag=True, help="Replace each source by its new version, atomically."),
            click.option("--overwrite", is_flag=True, help="Replace an --output that exists."),
            click.option("--force", is_flag=True, help="Also in a table's folder, hard-linked and read-only files."),
            click.option("--raw-files", is_flag=True, help="With --output: a table's files too, also dead ones."),
            click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing."),
            click.option(
                "--no-sync", "sync", is_flag=True, flag_value=False, default=True, help="Do not wait for the disk."
            ),
        )
    ):
        function = option(function)
    return function


raw_files_option = click.option(
    "--raw-files", is_flag=True, help="Read files of an Iceberg, Delta or Hudi table as they are, dead ones too."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
range_option = click.option(
    "--range-values", type=click.IntRange(0), default=1000, show_default=True, metavar="N",
    help="Ask filters for each value of a range of so many integers or dates.",
)  # fmt: skip
sources_argument = click.argument("sources", nargs=-1, required=True, metavar="FILES...")


def listed(values: Sequence[str]) -> list[str] | None:
    return list(values) or None


def column_rates(fpp: float | None, column_fpp: Sequence[str]) -> float | Mapping[str, float] | None:
    """--fpp and --column-fpp C=RATE as the library takes them."""
    if not column_fpp:
        return fpp
    rates: dict[str, float] = {} if fpp is None else {"*": fpp}
    for text in column_fpp:
        name, equals, rate = text.rpartition("=")
        try:
            rates[name] = float(rate)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise RequestError(f"--column-fpp {text}: expected COLUMN=RATE, as in id=0.001")
    return rates


def guava_files(texts: Sequence[str]) -> dict[tuple[int, str], bytes] | None:
    """--guava C:N=FILE as the library takes it: (row group, column) -> bytes. Raises RequestError, StorageError."""
    given = {}
    for text in texts:
        matched = re.fullmatch(r"(.+?):([0-9]+)=(.+)", text, re.DOTALL)
        if matched is None:
            raise RequestError(f"--guava {text}: expected COLUMN:ROW_GROUP=FILE, as in id:0=id.guava")
        try:
            with open(matched[3], "rb") as file:
                given[int(matched[2]), matched[1]] = file.read()
        except OSError as error:
            raise StorageError(matched[3], error.strerror or str(error)) from error
    return given or None


def print_json(value: Any) -> None:
    """One JSON document; what is not finite becomes null."""
    click.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Flag):
        return list(getattr(value, "names", []))
    if isinstance(value, BaseException):
        return str(value)
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def say_unused(unused: Sequence[tuple[str, str]]) -> None:
    """Name the parts of a predicate that could tell nothing."""
    for part, reason in unused:
        click.echo(f"parquet-bloom: not used to skip: {part}: {reason}", err=True)


def say_notes(notes: Sequence[str]) -> None:
    """Tell what is known of tables that files belong to."""
    for note in notes:
        click.echo(f"parquet-bloom: note: {note}", err=True)


def say_travel(file: Any) -> None:
    """For a file on another storage: what went over the wire, and why it had to."""
    if not file.remote or file.dry_run:
        return
    from parquet_bloom.report.tables import size

    copied = f", {size(file.bytes_copied)} copied inside the store" if file.bytes_copied else ""
    why = f": {file.why_travelled}" if file.why_travelled else ""
    click.echo(f"  {size(file.bytes_travelled)} travelled{copied}{why}")


def say_failed(failed: Sequence[Any], total: int) -> int:
    """Name each file that failed, then how many; returns the exit status they make."""
    for one in failed:
        click.echo(f"parquet-bloom: {one.error}", err=True)
    if failed:
        click.echo(f"parquet-bloom: {len(failed)} of {total} files failed", err=True)
    return 2 if failed else 0


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show each FilterWarning and TableWarning once, as one line on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("once", FilterWarning)
        warnings.simplefilter("once", TableWarning)
        plain = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **options: Any) -> None:
            if issubclass(category, FilterWarning | TableWarning):
                click.echo(f"parquet-bloom: warning: {message}", err=True)
            else:
                plain(message, category, *rest, **options)

        warnings.showwarning = show
        yield


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar on stderr while a person watches; nothing otherwise."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("filters"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def step(path: str, done: int, total: int) -> None:
            if path not in tasks:
                for old in tasks.values():
                    bar.remove_task(old)
                tasks.clear()
                tasks[path] = bar.add_task(path if len(path) <= 40 else "..." + path[-37:], total=total)
            bar.update(tasks[path], completed=done)

        yield step
