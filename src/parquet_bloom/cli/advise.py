"""`parquet-bloom advise`: library call parquet_bloom.advise."""

from __future__ import annotations

from typing import Unpack

import click

from parquet_bloom.cli.common import (
    all_option,
    footer_limits,
    json_option,
    memory_option,
    print_json,
    quiet,
    raw_files_option,
    say,
    say_failed,
    sources_argument,
    table_options,
)
from parquet_bloom.cli.groups import FILE, Command
from parquet_bloom.cli.progress import Watch
from parquet_bloom.options import ReadOptions


@click.command("advise", cls=Command)
@sources_argument
@click.option(
    "--queries", type=FILE, metavar="FILE", help="WHERE clauses or SQL statements of your queries, one a line."
)
@click.option("--engine", metavar="NAME", help="Advise for this engine alone, as duckdb or clickhouse@26.3.")
@raw_files_option
@table_options
@all_option
@json_option
@footer_limits
@memory_option
def command(
    sources: tuple[str, ...],
    queries: str | None,
    engine: str | None,
    show_all: bool,
    as_json: bool,
    **options: Unpack[ReadOptions],
) -> int:
    """Say which columns should have filters, what they gain and cost.

    \b
    parquet-bloom advise events/
    parquet-bloom advise events/ --queries queries.sql --engine duckdb
    parquet-bloom advise delta:lake/events

    Reads footers, and a sample of each column in four row groups or more; nothing is written. Figures are intervals
    that they are likely to lie in. The last lines are commands to paste, with the rates of the table.
    """
    from parquet_bloom.advice.advise import advise
    from parquet_bloom.report.advice import print_advice

    with Watch("advise", quiet=as_json) as watch:
        advice = advise(
            sources,
            queries=queries,
            engine=engine,
            progress=watch.files,
            **options,
        )
    if as_json:
        print_json("advise", advice)
    elif not quiet():
        print_advice(advice, show_all, say)
    return say_failed(advice.failed, advice.files)
