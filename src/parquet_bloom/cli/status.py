"""`parquet-bloom status`: library call parquet_bloom.status."""

from __future__ import annotations

from typing import Unpack

import click

from parquet_bloom.cli.common import (
    assert_filters_option,
    columns_options,
    footer_limits,
    format_of,
    github_option,
    json_option,
    none_if_empty,
    print_audit,
    raw_files_option,
    say,
    say_empty,
    sources_argument,
    table_options,
)
from parquet_bloom.cli.groups import Command
from parquet_bloom.cli.progress import Watch
from parquet_bloom.options import ReadOptions


@click.command("status", cls=Command)
@sources_argument
@columns_options
@assert_filters_option
@click.option("--assert-complete", is_flag=True, help="Status 1 if a row group lacks a filter on any column shown.")
@github_option
@json_option
@raw_files_option
@table_options
@footer_limits
def command(
    sources: tuple[str, ...],
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    as_json: bool,
    assert_filters: tuple[str, ...],
    assert_complete: bool,
    output_format: str,
    **options: Unpack[ReadOptions],
) -> int:
    """Say which columns lack filters, and which have lost some.

    \b
    parquet-bloom status data/
    parquet-bloom status delta:lake/events --assert-complete

    Without --column: columns that have a filter in some file, or had one by the table's log. Reads footers, and the
    beginning of each filter. Of a column that lacks some, and that nobody chose, a sample is decoded: where `advise`
    sees no gain, nothing is missing.

    lack: row groups without a filter. lost: those of them whose rows were appended, or written anew, after the
    column had filters in the table; since: the first version with such rows.
    """
    from parquet_bloom.advice.status import status
    from parquet_bloom.report import gates
    from parquet_bloom.report.filters import print_status

    shown = format_of(as_json, output_format)
    with Watch("status", quiet=shown == "json") as watch:
        report = status(
            sources,
            columns=none_if_empty(columns),
            exclude=none_if_empty(exclude),
            assert_filters=none_if_empty(assert_filters),
            progress=watch.files,
            **options,
        )
    asked = gates.status_gates(report, assert_filters, assert_complete)

    def draw() -> None:
        if report.files:
            print_status(report, sources[0] if len(sources) == 1 else f"{len(sources):,} names", say)
        say_empty(sources, report)

    return print_audit("status", shown, report, asked, gates.of_status(report, asked), draw)
