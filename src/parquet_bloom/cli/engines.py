"""`parquet-bloom engines`: library call parquet_bloom.engines."""

from __future__ import annotations

import click

from parquet_bloom.cli.common import json_option, none_if_empty, print_json, quiet, say
from parquet_bloom.cli.groups import Command
from parquet_bloom.cli.progress import Watch


@click.command("engines", cls=Command)
@click.option("--test", is_flag=True, help="Ask the engines that are installed here, over files made for it.")
@click.option("--engine", "names", multiple=True, metavar="NAME", help="This engine; may be repeated.")
@click.option("--kind", "kinds", multiple=True, metavar="TYPE", help="This type of column; may be repeated.")
@json_option
def command(test: bool, names: tuple[str, ...], kinds: tuple[str, ...], as_json: bool) -> int:
    """Show which engine uses Bloom filters on which type of column.

    \b
    parquet-bloom engines
    parquet-bloom engines --test --engine duckdb --kind int64

    Shows releases that break on filters, too. With --test each engine is asked for stored values over files whose
    filters deny everything: one that does not find a row has used the filter. Exit status 1 if an engine crashed or
    hung.
    """
    from parquet_bloom.report.advice import print_engines
    from parquet_bloom.trials.ask import LOST, engines, installed_engines

    with Watch("engines", quiet=as_json) as watch:
        told = watch.counting("asking", len(installed_engines(none_if_empty(names))) if test else 0, "engines")
        report = engines(none_if_empty(names), test=test, kinds=none_if_empty(kinds), progress=told)
    if as_json:
        print_json("engines", report)
    elif not quiet():
        print_engines(report, say)
    return 1 if any(answer.answer == LOST for answer in report.answers) else 0
