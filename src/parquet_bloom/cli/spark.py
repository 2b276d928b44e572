"""`parquet-bloom spark ...`: library calls of parquet_bloom.spark, with a session of our own if there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import click

from parquet_bloom._version import __version__
from parquet_bloom.cli.common import (
    columns_options,
    commit_options,
    filter_options,
    none_if_empty,
    print_json,
    say,
)
from parquet_bloom.cli.groups import FILE, Commands
from parquet_bloom.cli.progress import watched
from parquet_bloom.cli.spark_jobs import COMMANDS, FIRST_FAILED, paths_argument, report_options, say_failed

if TYPE_CHECKING:
    from parquet_bloom.format.forms import Rate
    from parquet_bloom.options import Form, SparkAddOptions


class _Commands(Commands):
    """Beside its own the commands that write no filters."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["add", *COMMANDS, "package"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return COMMANDS.get(name) or super().get_command(ctx, name)


@click.group("spark", cls=_Commands)
def command() -> None:
    """The same on Spark, for data sets of any size.

    Needs the extra `spark` and Java 17 or later. PATHS are named as Spark names them: plain, file:, hdfs:, s3a:,
    abfss:, gs:. Without a session (spark-submit, a notebook) one is started, and stopped at the end. Executors on
    other machines need this package, too.

    \b
    parquet-bloom spark add s3a://bucket/events --column trace_id --in-place
    """


@command.command("add")
@paths_argument
@columns_options
@commit_options
@click.option("--output", "-o", type=FILE, metavar="DIR", help="A folder for the new files; the tree is kept.")
@click.option("--in-place", is_flag=True, help="Replace each file by its new version, atomically.")
@click.option("--overwrite", is_flag=True, help="Replace files in --output that exist.")
@click.option("--force", is_flag=True, help="Also in a table's folder, and in place on HDFS.")
@click.option("--raw-files", is_flag=True, help="With --output: a table's files too, also dead ones.")
@click.option("--no-sync", "sync", is_flag=True, flag_value=False, default=True, help="Do not wait for the disk.")
@filter_options
@click.option("--threads", type=int, default=1, show_default=True, metavar="N", help="Of one task.")
@report_options
def add(
    spark: Any,
    paths: tuple[str, ...],
    output: str | None,
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    form: Form,
    fpp: Rate | Mapping[str, Rate] | None,
    report: str | None,
    as_json: bool,
    **options: Unpack[SparkAddOptions],
) -> int:
    """Add Bloom filters to the files of folders; a file is either old or new and whole at any time.

    \b
    parquet-bloom spark add s3a://bucket/events --column trace_id --in-place
    parquet-bloom spark add events/ --column '*_id' --output events-bloom/

    Running it again does only what is missing. Exit status 2 if a file failed; --report FILE has all of their errors.
    """
    from parquet_bloom.spark.add import add_filters
    from parquet_bloom.spark.frames import refuse_existing, write_report

    with watched(spark, "spark add") as progress:
        if report is not None:
            refuse_existing(spark, report)
        rows = add_filters(
            spark,
            paths,
            columns=none_if_empty(columns),
            exclude=none_if_empty(exclude),
            form=form,
            fpp=fpp,
            output=output,
            progress=progress,
            **options,
        )
        sums, first = _sums(rows) if progress is None or progress.report is None else _own_sums(progress.report)
        if report is not None:
            write_report(spark, rows, report)
    if as_json:
        print_json("spark-add", {**sums, "errors": first, "report": report})
    else:
        _print_sums(sums, report)
    return say_failed(sums["failed"], sums["files"], first, report)


@command.command("package")
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


def _sums(rows: Any) -> tuple[dict[str, Any], list[str]]:
    """Sums over a report, and its first errors, by Spark."""
    sums = (
        rows.selectExpr(
            "count(1) files",
            "count_if(status = 'done') done",
            "count_if(status = 'unchanged') unchanged",
            "count_if(status = 'failed') failed",
            "coalesce(sum(filters), 0) filters",
            "coalesce(sum(filter_bytes), 0) filter_bytes",
            "coalesce(sum(bytes_before), 0) bytes",
        )
        .head()
        .asDict()
    )
    return sums, [row.error for row in rows.filter("status = 'failed'").orderBy("path").limit(FIRST_FAILED).collect()]


def _own_sums(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """The same of rows that are here."""
    sums: dict[str, Any] = {"files": len(rows)}
    sums |= {status: sum(row["status"] == status for row in rows) for status in ("done", "unchanged", "failed")}
    for name, column in (("filters", "filters"), ("filter_bytes", "filter_bytes"), ("bytes", "bytes_before")):
        sums[name] = sum(row[column] or 0 for row in rows)
    failed = sorted((row["path"], row["error"]) for row in rows if row["status"] == "failed")
    return sums, [error for _, error in failed[:FIRST_FAILED]]


def _print_sums(sums: dict[str, Any], written: str | None) -> None:
    from parquet_bloom.report.text import growth, plural, size

    more = f" (files {growth(sums['bytes'], sums['bytes'] + sums['filter_bytes'])})" if sums["bytes"] else ""
    say(
        f"{plural(sums['files'], 'file')}: {sums['done']:,} done, {sums['unchanged']:,} unchanged, {sums['failed']:,} "
        f"failed; {plural(sums['filters'], 'filter')}, {size(sums['filter_bytes'])}{more}"
    )
    if written is not None:
        say(f"report: {written}")
