"""`parquet-bloom verify`: library call parquet_bloom.verify."""

from __future__ import annotations

from typing import Unpack

import click

from parquet_bloom.cli.common import (
    all_option,
    columns_options,
    complain,
    footer_limits,
    format_of,
    github_option,
    json_option,
    memory_option,
    none_if_empty,
    print_json,
    print_lines,
    quiet,
    raw_files_option,
    say,
    say_empty,
    say_failed,
    say_notes,
    sources_argument,
    table_options,
)
from parquet_bloom.cli.groups import Command
from parquet_bloom.cli.progress import Watch
from parquet_bloom.options import ReadOptions


@click.command("verify", cls=Command)
@sources_argument
@columns_options
@click.option("--sample", type=int, metavar="N", help="Look at N row groups a file only, spread evenly.")
@github_option
@all_option
@json_option
@raw_files_option
@table_options
@footer_limits
@memory_option
def command(
    sources: tuple[str, ...],
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    sample: int | None,
    show_all: bool,
    as_json: bool,
    output_format: str,
    **options: Unpack[ReadOptions],
) -> int:
    """Check that each filter admits every stored value of its column.

    \b
    parquet-bloom verify events-bloom.parquet
    parquet-bloom verify data/ --sample 3
    parquet-bloom verify delta:lake/events --sample 3

    Measures as well how many values are admitted that are not stored. Exit status 1 if a filter is wrong: it costs
    rows in every engine that uses it.
    """
    from parquet_bloom.filters.verify import verify
    from parquet_bloom.report import gates
    from parquet_bloom.report.filters import print_verified

    shown = format_of(as_json, output_format)
    with Watch("verify", quiet=shown == "json") as watch:
        report = verify(
            sources,
            columns=none_if_empty(columns),
            exclude=none_if_empty(exclude),
            sample=sample,
            progress=watch.files,
            **options,
        )
    say_notes(report.notes)
    gate = gates.none_wrong(report.files)
    if shown == "json":
        print_json("verify", {**report.to_dict(), "gates": [gate]})
    elif shown == "github":
        print_lines(gates.of_verify(report), as_it_is=True)
    elif not quiet():
        print_verified(report.files, show_all, say)
        say_empty(sources, report)
    elif not gate.holds:
        complain(gate.reason)
    failed = say_failed(report.failed, len(report.files) + len(report.failed))
    return failed or int(not gate.holds)
