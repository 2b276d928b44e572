"""`parquet-bloom bench`: library call parquet_bloom.bench."""

from __future__ import annotations

import click

from parquet_bloom.cli.common import footer_limits, json_option, none_if_empty, print_json, quiet, raw_files_option, say
from parquet_bloom.cli.groups import FILE, Command
from parquet_bloom.cli.predicate import split
from parquet_bloom.cli.progress import Watch


@click.command("bench", cls=Command)
@click.argument("file", type=FILE, metavar="FILE")
@click.argument("predicate", metavar="PREDICATE")
@click.option("--engine", "names", multiple=True, metavar="NAME", help="This engine; may be repeated.")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="Runs of each file.")
@raw_files_option
@json_option
@footer_limits
def command(file: str, predicate: str, names: tuple[str, ...], runs: int, raw_files: bool, as_json: bool) -> int:
    """Run a query with filters and without, by the engines installed.

    \b
    parquet-bloom bench events.parquet "trace_id = '4bf92f3577b34da6'"

    The file stays as it is: the other one, with filters on the predicate's columns or without any, is a copy in a
    temporary folder. Exit status 1 if an engine finds other rows with filters.
    """
    split((file, predicate), required=True, what="FILE")  # which raises where the second one is a file
    from parquet_bloom.report.advice import print_bench
    from parquet_bloom.trials.ask import installed_engines
    from parquet_bloom.trials.bench import bench

    with Watch("bench", quiet=as_json) as watch:
        told = watch.counting("asking", len(installed_engines(none_if_empty(names))), "engines")
        report = bench(file, predicate, names=none_if_empty(names), runs=runs, raw_files=raw_files, progress=told)
    if as_json:
        print_json("bench", report)
    elif not quiet():
        print_bench(report, say)
    return 1 if report.lost_rows else 0
