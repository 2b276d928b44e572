"""`parquet-bloom engines`: library call parquet_bloom.engines."""

from __future__ import annotations

import click

from parquet_bloom.cli.common import json_option, none_if_empty, print_json, quiet, say
from parquet_bloom.cli.groups import Command


@click.command("engines", cls=Command)
@click.option("--engine", "names", multiple=True, metavar="NAME", help="This engine; may be repeated.")
@click.option("--kind", "kinds", multiple=True, metavar="TYPE", help="This type of column; may be repeated.")
@json_option
def command(names: tuple[str, ...], kinds: tuple[str, ...], as_json: bool) -> int:
    """Show which engine uses Bloom filters on which type of column.

    \b
    parquet-bloom engines
    parquet-bloom engines --engine duckdb --kind int64

    Shows releases that break on filters, too. All of it was measured with the releases that are named, or read in
    their source; nothing is run.
    """
    from parquet_bloom.facts.report import engines
    from parquet_bloom.report.advice import print_engines

    report = engines(none_if_empty(names), kinds=none_if_empty(kinds))
    if as_json:
        print_json("engines", report)
    elif not quiet():
        print_engines(report, say)
    return 0
