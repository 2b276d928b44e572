"""`parquet-bloom spark ...`: library calls of parquet_bloom.spark, with a session of our own if there is none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

import click

from parquet_bloom._version import __version__
from parquet_bloom.cli.common import (
    columns_options,
    commit_options,
    decorated,
    filter_options,
    no_sync_option,
    none_if_empty,
    print_json,
    raw_outputs_option,
    say,
)
from parquet_bloom.cli.groups import FILE, Commands
from parquet_bloom.cli.progress import watched
from parquet_bloom.cli.spark_jobs import COMMANDS, FIRST_FAILED, paths_argument, report_options, say_failed

if TYPE_CHECKING:
    from parquet_bloom.format.forms import Rate
    from parquet_bloom.options import Form, SparkAddOptions, SparkRepairOptions

    class _AddCommandOptions(SparkAddOptions, total=False):
        output: str | None

    class _RepairCommandOptions(SparkRepairOptions, total=False):
        output: str | None
        undo: bool


F = TypeVar("F", bound=Callable[..., Any])


class _Commands(Commands):
    """Beside its own the commands that change no file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["add", "repair", *COMMANDS, "package"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return COMMANDS.get(name) or super().get_command(ctx, name)


@click.group("spark", cls=_Commands)
def spark_command() -> None:
    """The same on Spark, for data sets of any size.

    Needs the extra `spark` and Java 17 or later. PATHS are named as Spark names them: plain, file:, hdfs:, s3a:,
    abfss:, gs:. Without a session (spark-submit, a notebook) one is started, and stopped at the end. Executors on
    other machines need this package, too.

    \b
    parquet-bloom spark add s3a://bucket/events --column trace_id --in-place
    """


_PLACE = (
    paths_argument,
    commit_options,
    click.option("--output", "-o", type=FILE, metavar="DIR", help="A folder for the new files; the tree is kept."),
    click.option("--in-place", is_flag=True, help="Replace each file by its new version, atomically."),
    click.option("--overwrite", is_flag=True, help="Replace files in --output that exist."),
    click.option("--force", is_flag=True, help="Also in a table's folder, and in place on HDFS."),
    raw_outputs_option,
    no_sync_option,
    report_options,
)


def _place_options(function: F) -> F:
    """Options for the place of new versions, and of their job's report."""
    return cast(F, decorated(function, _PLACE))


@spark_command.command("add")
@columns_options
@filter_options
@click.option("--threads", type=int, default=1, show_default=True, metavar="N", help="Of one task.")
@_place_options
def add(
    spark: Any,
    paths: tuple[str, ...],
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    form: Form,
    fpp: Rate | Mapping[str, Rate] | None,
    report: str | None,
    as_json: bool,
    **options: Unpack[_AddCommandOptions],
) -> int:
    """Add Bloom filters to the files of folders; a file is either old or new and whole at any time.

    \b
    parquet-bloom spark add s3a://bucket/events --column trace_id --in-place
    parquet-bloom spark add events/ --column '*_id' --output events-bloom/
    parquet-bloom spark add events/ --page-index --page-bounds ts --in-place

    Running it again does only what is missing. Exit status 2 if a file failed; --report FILE has all of their errors.
    """
    from parquet_bloom.spark.add import add_filters

    chosen, others = none_if_empty(columns), none_if_empty(exclude)
    job = functools.partial(add_filters, spark, paths, columns=chosen, exclude=others, form=form, fpp=fpp, **options)
    sums = ("filters", "filter_bytes", "offset_indexes", "column_indexes", "index_bytes")
    return _run(spark, "add", job, dict(zip(sums, sums, strict=True)), _added, report, as_json)[0]


@spark_command.command("repair")
@_place_options
@click.option("--undo", is_flag=True, help="Take repairs off; a file is what it was, byte for byte.")
@click.option("--dry-run", is_flag=True, help="Compare, and say what would be done; write nothing.")
def repair(
    spark: Any, paths: tuple[str, ...], report: str | None, as_json: bool, **options: Unpack[_RepairCommandOptions]
) -> int:
    """Write wrong min, max and null counts right, in new footers; `repair` does the same on one machine.

    \b
    parquet-bloom spark repair s3a://bucket/events --in-place
    parquet-bloom spark repair delta:lake/events --dry-run

    Running it again does only what is missing. Exit status 2 if a file failed; 1 if a dry run finds a wrong statistic.
    --report FILE has each of them.
    """
    from parquet_bloom.spark.repairing import repair

    sums = {"wrong": "wrong", "mended": "mended", "mended_log": "mended_log"}
    job = functools.partial(repair, spark, paths, **options)
    failed, found = _run(spark, "repair", job, sums, _repaired, report, as_json)
    return failed or int(bool(options.get("dry_run")) and found["wrong"] > 0)


@spark_command.command("package")
@click.argument("output", type=FILE, metavar="OUT.zip")
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
def package(output: str, overwrite: bool) -> int:
    """Write this package as a zip for --py-files, for executors that do not have it.

    \b
    parquet-bloom spark package parquet_bloom.zip
    parquet-bloom spark add /shared/events --in-place --py-files parquet_bloom.zip

    What it imports (pyarrow, pandas, numba, numpy, thrift, xxhash, mmh3, sqlglot) must be there, as zips hold no
    machine code.
    """
    from parquet_bloom.report.text import size
    from parquet_bloom.spark.sessions import write_archive

    n_files, n_bytes = write_archive(output, overwrite)
    say(f"{output}: {n_files} files of parquet-bloom {__version__}, {size(n_bytes)}")
    return 0


# --- sums of a report -----------------------------------------------------------------------------


def _run(
    spark: Any,
    name: str,
    job: Callable[..., Any],
    sums_of: Mapping[str, str],
    line: Callable[[Mapping[str, Any]], str],
    report: str | None,
    as_json: bool,
) -> tuple[int, dict[str, Any]]:
    """Run a job that changes files, print sums over its report, or write it whole; the exit status and the sums.

    sums_of  name -> column of numbers, or of lists, whose elements count
    line     says what is done
    """
    from parquet_bloom.spark.frames import refuse_existing, write_report

    columns = {**sums_of, "bytes": "bytes_before"}
    with watched(spark, f"spark {name}") as progress:
        if report is not None:
            refuse_existing(spark, report)
        rows = job(progress=progress)
        known = None if progress is None else progress.report
        sums, first = _sums(rows, columns) if known is None else _own_sums(known, columns)
        if report is not None:
            write_report(spark, rows, report)
    if as_json:
        print_json(f"spark-{name}", {**sums, "errors": first, "report": report})
    else:
        from parquet_bloom.report.text import plural

        counts = ", ".join(f"{sums[status]:,} {status}" for status in _STATUSES)
        say(f"{plural(sums['files'], 'file')}: {counts}; {line(sums)}")
        if report is not None:
            say(f"report: {report}")
    return say_failed(sums["failed"], sums["files"], first, report), sums


_STATUSES = ("done", "unchanged", "failed")


def _sums(rows: Any, columns: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Sums over a report, and its first errors, by Spark."""
    numbers = {name: "array_size(wrong)" if column == "wrong" else column for name, column in columns.items()}
    sums = (
        rows.selectExpr(
            "count(1) files",
            *(f"count_if(status = '{status}') {status}" for status in _STATUSES),
            *(f"coalesce(sum({number}), 0) {name}" for name, number in numbers.items()),
        )
        .head()
        .asDict()
    )
    return sums, [row.error for row in rows.filter("status = 'failed'").orderBy("path").limit(FIRST_FAILED).collect()]


def _own_sums(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The same of rows that are here."""
    sums: dict[str, Any] = {"files": len(rows)}
    sums |= {status: sum(row["status"] == status for row in rows) for status in _STATUSES}
    for name, column in columns.items():
        found = [row.get(column) or 0 for row in rows]
        sums[name] = sum(len(one) if isinstance(one, list) else one for one in found)
    failed = sorted((row["path"], row["error"]) for row in rows if row["status"] == "failed")
    return sums, [error for _, error in failed[:FIRST_FAILED]]


def _added(sums: Mapping[str, Any]) -> str:
    from parquet_bloom.report.added import indexes_text
    from parquet_bloom.report.text import growth, plural, size

    taken = sums["filter_bytes"] + sums["index_bytes"]
    more = f" (files {growth(sums['bytes'], sums['bytes'] + taken)})" if sums["bytes"] else ""
    indexes = indexes_text(sums["offset_indexes"], sums["column_indexes"], sums["index_bytes"])
    found = f"{plural(sums['filters'], 'filter')}, {size(sums['filter_bytes'])}"
    return (f"{found}; {indexes}" if indexes else found) + more


def _repaired(sums: Mapping[str, Any]) -> str:
    from parquet_bloom.report.text import plural

    logged = f" and {plural(sums['mended_log'], 'column')} in the table's log" if sums["mended_log"] else ""
    return f"{sums['wrong']:,} statistics wrong, in {plural(sums['mended'], 'column chunk')}{logged}"
