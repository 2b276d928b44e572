"""`parquet-bloom inspect`: library call parquet_bloom.inspect."""

from __future__ import annotations

import click

from parquet_bloom.cli.common import (
    all_option,
    catalog_option,
    columns_options,
    footer_limits,
    json_option,
    listed,
    print_json,
    raw_files_option,
    say,
    say_failed,
    say_notes,
    sources_argument,
)  # fmt: skip
from parquet_bloom.cli.groups import Command
from parquet_bloom.cli.progress import Watch


@click.command("inspect", cls=Command)
@sources_argument
@columns_options
@all_option
@json_option
@raw_files_option
@catalog_option
@footer_limits
def command(
    sources: tuple[str, ...], columns: tuple[str, ...], exclude: tuple[str, ...], show_all: bool, as_json: bool,
    raw_files: bool, catalog_properties: dict[str, str] | None,
) -> int:  # fmt: skip
    """Show the Bloom filters of Parquet files and what is wrong with them.

    \b
    parquet-bloom inspect events-bloom.parquet
    parquet-bloom inspect data/ --column trace_id --all
    parquet-bloom inspect ducklake:lake.ducklake/main.events

    Reads the filters, not the data; `verify` finds what only the data can show.
    """
    from parquet_bloom.audit.inspect import inspect
    from parquet_bloom.report.filters import print_inspected

    with Watch("inspect", quiet=as_json) as watch:
        report = inspect(
            sources, columns=listed(columns), exclude=listed(exclude), progress=watch.files, raw_files=raw_files,
            catalog_properties=catalog_properties,
        )  # fmt: skip
    say_notes(report.notes)
    if as_json:
        print_json(report)
    elif report.files:
        print_inspected(report.files, show_all, say)
    return say_failed(report.failed, len(report.files) + len(report.failed))
