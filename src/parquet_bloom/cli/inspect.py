"""`parquet-bloom inspect`: library call parquet_bloom.inspect."""

from __future__ import annotations

from typing import Unpack

import click

from parquet_bloom.cli.common import (
    all_option,
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


@click.command("inspect", cls=Command)
@sources_argument
@columns_options
@assert_filters_option
@github_option
@all_option
@json_option
@raw_files_option
@table_options
@footer_limits
def command(
    sources: tuple[str, ...],
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    show_all: bool,
    as_json: bool,
    assert_filters: tuple[str, ...],
    output_format: str,
    **options: Unpack[ReadOptions],
) -> int:
    """Show the filters of Parquet files, and what is wrong with them.

    \b
    parquet-bloom inspect events-bloom.parquet
    parquet-bloom inspect data/ --column trace_id --all
    parquet-bloom inspect delta:lake/events

    Reads the filters, not the data; `verify` finds what only the data can show.
    """
    from parquet_bloom.filters.inspect import inspect
    from parquet_bloom.report import gates
    from parquet_bloom.report.filters import print_inspected

    shown = format_of(as_json, output_format)
    with Watch("inspect", quiet=shown == "json") as watch:
        report = inspect(
            sources,
            columns=none_if_empty(columns),
            exclude=none_if_empty(exclude),
            progress=watch.files,
            assert_filters=none_if_empty(assert_filters),
            **options,
        )
    asked = [gates.assert_filters(report.files, assert_filters)] if assert_filters else []

    def draw() -> None:
        if report.files:
            print_inspected(report.files, show_all, say)
        say_empty(sources, report)

    return print_audit("inspect", shown, report, asked, gates.of_inspect(report, asked), draw)
