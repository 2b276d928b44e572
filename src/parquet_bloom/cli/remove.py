"""`parquet-bloom remove`: library call parquet_bloom.remove_filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from parquet_bloom.cli.common import (
    all_option,
    columns_options,
    commit_options,
    footer_limits,
    json_option,
    none_if_empty,
    output_options,
    print_json,
    quiet,
    say,
    say_empty,
    say_failed,
    say_table_notes,
    sources_argument,
)
from parquet_bloom.cli.groups import Command
from parquet_bloom.cli.progress import Watch

if TYPE_CHECKING:
    from parquet_bloom.options import RemoveOptions


@click.command("remove", cls=Command)
@sources_argument
@columns_options
@output_options
@commit_options
@click.option("--last", is_flag=True, help="Take off only the last tail.")
@click.option("--all-writers", is_flag=True, help="Also filters of other programs, which stay otherwise.")
@click.option("--append", is_flag=True, help="In place: make the file itself shorter, where all is in tails.")
@all_option
@json_option
@footer_limits
def command(
    sources: tuple[str, ...],
    output: str | None,
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    as_json: bool,
    show_all: bool,
    **options: Unpack[RemoveOptions],
) -> int:
    """Take out the filters that `add` added, or those of some columns.

    \b
    parquet-bloom remove events-bloom.parquet --output plain.parquet
    parquet-bloom remove data/ --column trace_id --in-place
    parquet-bloom remove delta:lake/events

    A file that got its filters from `add` and loses them all is byte for byte the file it was. Filters of other
    programs, and those of which nothing shows who added them, stay unless --column names their columns.
    """
    from parquet_bloom.change import remove_filters
    from parquet_bloom.report.added import print_commits, print_removed

    with Watch("remove", quiet=as_json) as watch:
        report = remove_filters(
            sources,
            output,
            columns=none_if_empty(columns),
            exclude=none_if_empty(exclude),
            progress=watch.files,
            **options,
        )
    say_table_notes(sources, report)
    if as_json:
        print_json("remove", report)
    elif not quiet():
        print_removed(report.files, show_all, say)
        print_commits(report, say)
        say_empty(sources, report)
    return say_failed(report.failed, len(report.files) + len(report.failed))
