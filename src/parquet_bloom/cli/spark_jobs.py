"""`parquet-bloom spark inspect|verify|check|prune|locate|read|index`: they write no filters; options of all."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, Unpack, cast

import click

from parquet_bloom.cli import key_index
from parquet_bloom.cli.common import (
    aside,
    columns_options,
    complain,
    decorated,
    index_option,
    indexed_columns_option,
    json_option,
    none_if_empty,
    print_json,
    range_option,
    raw_files_option,
    say,
    table_options,
)
from parquet_bloom.cli.groups import COLUMN, FILE, Command
from parquet_bloom.cli.key_index import false_places_option, items_option, kind_option, probability_option, root_option
from parquet_bloom.cli.locate import first_that_fits, keys_of, keys_options
from parquet_bloom.cli.progress import watched
from parquet_bloom.errors import RequestError
from parquet_bloom.options import ReadOptions, TableOptions, part
from parquet_bloom.report.text import Column, Table, print_table

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]

# --- the session ----------------------------------------------------------------------------------
#
# Each command gets a session as its first argument, open while it runs.

_SESSION = (
    click.option("--master", metavar="URL", help="Of a session that is started here.  [default: local[*]]"),
    click.option("--conf", multiple=True, metavar="K=V", help="One of Spark's properties; may be repeated."),
    click.option(
        "--py-files",
        multiple=True,
        type=FILE,
        metavar="FILES",
        help="Python code for the executors: .zip, .whl, .py, with commas between; see `spark package`.",
    ),
)
paths_argument = click.argument("paths", nargs=-1, required=True, type=FILE, metavar="PATHS...")


def session_options(function: F) -> F:
    """--master, --conf and --py-files, as the session that these mean."""

    @functools.wraps(function)
    def run(*args: Any, master: str | None, conf: Sequence[str], py_files: Sequence[str], **options: Any) -> Any:
        with _session(master, conf, py_files) as spark:
            return function(spark, *args, **options)

    return cast(F, decorated(run, _SESSION))


def report_options(function: F) -> F:
    """Those of session_options, --report and --json."""
    report = click.option("--report", type=FILE, metavar="FILE", help="Write all rows there, as Parquet.")
    return cast(F, decorated(function, [session_options, report, json_option]))


@contextmanager
def _session(master: str | None, conf: Sequence[str], py_files: Sequence[str]) -> Iterator[Any]:
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


# --- rows that a job gives ------------------------------------------------------------------------
#
# One frame: some of the rows of a job and sums of all are printed, all are written as a report.

FIRST_FAILED = 5  # failed files that are named; --report FILE has them all
rows_option = click.option(
    "--limit", type=click.IntRange(0), default=20, show_default=True, metavar="N", help="Print so many rows."
)


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


@dataclass(frozen=True, slots=True)
class _Printout:
    """The printout of a job's rows.

    columns  of the rows that are printed
    sums     name -> expression over all rows
    worth    which rows are printed, as SQL
    is_no    whether these sums are a "no": exit status 1
    """

    columns: Sequence[str]
    sums: Mapping[str, str]
    worth: str = "true"
    is_no: Callable[[Mapping[str, Any]], bool] = lambda totals: False


def _rows_command(name: str, printout: _Printout, *decorators: Decorator) -> Callable[[F], click.Command]:
    """Make a command of a function that gives the rows of a job: (spark, paths, ...) -> DataFrame."""

    def made(function: F) -> click.Command:
        @functools.wraps(function)
        def run(spark: Any, limit: int, report: str | None, as_json: bool, **options: Any) -> int:
            return _print_rows(spark, functools.partial(function, spark, **options), printout, limit, report, as_json)

        options = [paths_argument, *decorators, rows_option, report_options]
        return click.command(name, cls=Command)(decorated(run, options))

    return made


def _print_rows(
    spark: Any, job: Callable[[], Any], printout: _Printout, limit: int, report: str | None, as_json: bool
) -> int:
    """Print some of the rows that a job gives, and the sums of all; write the report. Returns the exit status."""
    from parquet_bloom.spark.frames import refuse_existing, write_report

    name = f"spark {click.get_current_context().info_name}"
    with watched(spark, name):
        if report is not None:
            refuse_existing(spark, report)
        frame = job().persist()
        named = [f"{expression} `{name}`" for name, expression in printout.sums.items()]
        totals = (
            frame.selectExpr(*named, "count_if(error IS NOT NULL) failed", "count(DISTINCT path) files").head().asDict()
        )
        errors = [row.error for row in frame.filter("error IS NOT NULL").orderBy("path").limit(FIRST_FAILED).collect()]
        worth = frame.filter("error IS NULL").filter(printout.worth)
        rows = worth.select(*printout.columns).limit(limit).collect()
        if report is not None:
            write_report(spark, frame, report)
    if as_json:
        print_json(
            name.replace(" ", "-"),
            {**totals, "rows": [row.asDict(recursive=True) for row in rows], "errors": errors, "report": report},
        )
    else:
        from parquet_bloom.report.text import plural

        if rows:
            say(_table(printout.columns, rows))
        say(", ".join([plural(totals["files"], "file"), *(f"{totals[name]:,} {name}" for name in printout.sums)]))
        if report is not None:
            say(f"report: {report}")
    status = say_failed(totals["failed"], totals["files"], errors, report)
    return status or int(printout.is_no(totals))


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Rows of Spark as a table; NULL is nothing."""
    return Table.of(rows, *(Column(text, partial(_shown, at=at)) for at, text in enumerate(names)))


def _shown(row: Sequence[object], at: int) -> object:
    return "" if row[at] is None else str(row[at])


_STAGES = ("no rows", "literal", "partition", "bounds", "filter", "index")
_SKIPPED = "count_if(row_group IS NOT NULL AND skipped AND decided_by = '{}')"
_UNOPENED = "coalesce(sum(row_groups), 0)"  # of files that an index excludes
_INSPECT = _Printout(
    ["path", "row_group", "column", "spec", "num_bytes", "fpp", "problems"],
    {"filters": "count_if(error IS NULL)", "with problems": "count_if(size(problems) > 0)"},
)
_VERIFY = _Printout(
    ["path", "row_group", "column", "spec", "status", "missed", "reason"],
    {name: f"count_if(status = '{name}')" for name in ("right", "wrong", "unknown")},
    "status <> 'right'",
    lambda totals: bool(totals["wrong"]),
)
_CHECK = _Printout(
    ["path", "row_group", "rows", "size", "reason"],
    {
        "row groups": f"count(row_group) + {_UNOPENED}",
        "kept": "count_if(NOT skipped)",
        **{f"skipped by {stage}": _SKIPPED.format(stage) for stage in _STAGES},
        "skipped by index": f"{_SKIPPED.format('index')} + {_UNOPENED}",
        "files not opened": "count_if(row_group IS NULL AND error IS NULL)",
    },
    "NOT skipped",
    lambda totals: not totals["kept"],
)
_PRUNE = _Printout(
    ["path", "row_groups", "rows", "size"],
    {"left": "count_if(error IS NULL)", "bytes": "coalesce(sum(size), 0)"},
    is_no=lambda totals: not totals["left"],
)
_LOCATE = _Printout(
    ["key", "path", "row_group", "first_row", "rows"],
    {"places": "count_if(error IS NULL)"},
    is_no=lambda totals: not totals["places"],
)
_PREDICATE = (
    click.argument("predicate", metavar="PREDICATE"),
    index_option,
    raw_files_option,
    table_options,
    range_option,
)
_SAMPLE = click.option("--sample", type=int, metavar="N", help="Look at N row groups a file only, spread evenly.")


@_rows_command("inspect", _INSPECT, columns_options, table_options)
def inspect(
    spark: Any,
    paths: tuple[str, ...],
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    **options: Unpack[TableOptions],
) -> Any:
    """List filters: their places, fill and problems; --report FILE for all of them.

    \b
    parquet-bloom spark inspect events/ --column trace_id --report filters.parquet
    """
    from parquet_bloom.spark import inspect_filters

    return inspect_filters(spark, paths, none_if_empty(columns), none_if_empty(exclude), **options)


@_rows_command("verify", _VERIFY, columns_options, _SAMPLE, table_options)
def verify(
    spark: Any,
    paths: tuple[str, ...],
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    sample: int | None,
    **options: Unpack[TableOptions],
) -> Any:
    """Check that every stored value is admitted by its filter. Prints those that are not right.

    Exit status 1 if a filter is wrong: it costs rows in every engine that uses it.

    \b
    parquet-bloom spark verify events/ --sample 3
    """
    from parquet_bloom.spark import verify_filters

    return verify_filters(spark, paths, none_if_empty(columns), none_if_empty(exclude), sample, **options)


class _SearchOptions(ReadOptions):
    """Options of a search that the library takes as they come."""

    range_values: int
    index: str | None


@_rows_command("check", _CHECK, *_PREDICATE)
def check(
    spark: Any,
    paths: tuple[str, ...],
    predicate: str,
    **options: Unpack[_SearchOptions],
) -> Any:
    """Say which row groups can match, NaN being the largest value; prints those that can.

    Exit status 1 if no row group of any file can match.

    \b
    parquet-bloom spark check events/ "trace_id = '4bf92f3577b34da6'"
    parquet-bloom spark check data/ "id = '4bf92f35'" --index index/
    """
    from parquet_bloom.spark import check as function

    return function(spark, paths, predicate, **options)


@_rows_command("prune", _PRUNE, *_PREDICATE)
def prune(
    spark: Any,
    paths: tuple[str, ...],
    predicate: str,
    **options: Unpack[_SearchOptions],
) -> Any:
    """List the files that may hold a match, and which row groups of them; --report FILE for all of them.

    Exit status 1 if there are none.

    \b
    parquet-bloom spark prune events/ "trace_id = '4bf92f3577b34da6'"
    """
    from parquet_bloom.spark import prune as function

    return function(spark, paths, predicate, **options)


class _LocateOptions(ReadOptions):
    """Options of `locate` that the library takes as they come."""

    index: str | None


@_rows_command("locate", _LOCATE, *keys_options, index_option, raw_files_option, table_options)
def locate(
    spark: Any,
    paths: tuple[str, ...],
    column: str,
    keys: str,
    keys_column: str | None,
    **options: Unpack[_LocateOptions],
) -> Any:
    """List the row groups that may hold each of many keys; --report FILE for all of them.

    Exit status 1 if there are none.

    \b
    parquet-bloom spark locate events/ -c id --keys keys.txt --report out.parquet
    """
    from parquet_bloom.spark import locate as job

    found = first_that_fits(
        keys_of(keys, keys_column, column), lambda wanted: job(spark, paths, column, wanted, **options)
    )
    return found.withColumnRenamed("file", "path")


# --- rows of the files, and their index -----------------------------------------------------------
#
# Commands that print something else than rows of a report.


@click.command("read", cls=Command)
@paths_argument
@click.option("--where", required=True, metavar="PREDICATE", help="SQL text: the rows that match.")
@click.option("--columns", type=COLUMN, metavar="A,B", help="Only these columns.")
@click.option("--output", "-o", type=FILE, metavar="DIR", help="Write the rows there, as Spark writes Parquet.")
@index_option
@raw_files_option
@table_options
@range_option
@rows_option
@session_options
def read(
    spark: Any,
    paths: tuple[str, ...],
    where: str,
    columns: str | None,
    output: str | None,
    limit: int,
    **options: Unpack[_SearchOptions],
) -> int:
    """Rows that match, from the row groups that filters of any form leave. NaN is the largest value.

    Of a table (delta:, iceberg:, ducklake:) the rows that live, read as `parquet-bloom read` does.

    \b
    parquet-bloom spark read events/ --where "trace_id = '4bf92f3577b34da6'"
    """
    from parquet_bloom.spark import read as job
    from parquet_bloom.spark.storages import storages

    names = [name.strip() for name in columns.split(",")] if columns else None
    with watched(spark, "spark read"):
        frame = job(spark, paths, where, names, **options)
        if output is not None:
            frame.write.parquet(storages(spark, (), output).absolute(output))
            return 0
        rows = frame.limit(limit + 1).collect()
    print_table(_table(frame.columns, rows[:limit]), sys.stdout)  # with --quiet too: they are what was asked for
    if len(rows) > limit:
        aside(f"... the first {limit}; give --limit, or --output for all")
    return 0


class _IndexOptions(ReadOptions):
    """Options of `spark index` that are of one kind of index, and those of reading."""

    false_places: float | None
    root: str | None
    items: int | None
    probability: float | None


@click.command("index", cls=Command)
@paths_argument
@indexed_columns_option
@kind_option
@click.option("--output", "-o", required=True, type=FILE, metavar="DIR", help="A folder that the executors share.")
@false_places_option
@root_option
@items_option
@probability_option
@click.option("--overwrite", is_flag=True, help="Replace an index that is there.")
@raw_files_option
@table_options
@session_options
def index(
    spark: Any,
    paths: tuple[str, ...],
    columns: tuple[str, ...],
    kind: str,
    output: str,
    overwrite: bool,
    **options: Unpack[_IndexOptions],
) -> int:
    """Build an index over columns, as `index build` does on one machine.

    \b
    parquet-bloom spark index events/ --column trace_id -o events-index/
    parquet-bloom spark index delta:lake/events -c trace_id -o events-index/
    parquet-bloom spark index events/ --kind lance -c trace_id -o events-zones/

    Executors read, hash and sort. A key index that was built here is updated by `parquet-bloom index update`.
    """
    reading = part(ReadOptions, options)
    false_places, root = options["false_places"], options["root"]
    items, probability = options["items"], options["probability"]
    if kind == "keys":
        key_index.only_for("lance", {"--items": items is not None, "--probability": probability is not None})
        from parquet_bloom.spark import build_index

        rate = key_index.FALSE_PLACES if false_places is None else false_places
        with watched(spark, "spark index"):
            report = build_index(
                spark, paths, list(columns), output, root=root, false_places=rate, overwrite=overwrite, **reading
            )
        key_index.print_report(report)
        return 0
    key_index.only_for("keys", {"--false-places": false_places is not None, "--root": root is not None})
    from parquet_bloom.report.text import size
    from parquet_bloom.spark import build_zone_index

    with watched(spark, "spark index"):
        rows = build_zone_index(
            spark,
            paths,
            list(columns),
            output,
            **key_index.zone_sizes(items, probability),
            overwrite=overwrite,
            **reading,
        ).collect()
    for row in rows:
        say(f"{row['path']}: {row['zones']:,} zones of {row['column']} ({row['type']}), {size(row['bytes'])}")
    return 0


COMMANDS: dict[str, click.Command] = {
    "inspect": inspect,
    "verify": verify,
    "check": check,
    "prune": prune,
    "locate": locate,
    "read": read,
    "index": index,
}
