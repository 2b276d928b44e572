"""`parquet-bloom check`: library call parquet_bloom.check."""

from __future__ import annotations

from typing import Unpack

import click

from parquet_bloom.cli.common import (
    IndexKeywords,
    all_option,
    footer_limits,
    format_of,
    gate_status,
    github_option,
    index_option,
    json_option,
    key_index_options,
    print_json,
    print_lines,
    quiet,
    range_option,
    raw_files_option,
    say,
    say_failed,
    say_notes,
    say_unused,
    table_options,
)
from parquet_bloom.cli.groups import FILE, Command
from parquet_bloom.cli.predicate import explain_last_word, split
from parquet_bloom.cli.progress import Watch

_SHORT = 60  # characters of names in a line of text


@click.command("check", cls=Command)
@click.argument("sources", nargs=-1, required=True, type=FILE, metavar="FILES... PREDICATE")
@click.option("--explain", is_flag=True, help="What is read and why, then the rest by reason; --all: a line each.")
@index_option
@key_index_options
@raw_files_option
@table_options
@range_option
@click.option("--min-skipped", type=click.FloatRange(0, 100), metavar="PERCENT", help="Status 1 if fewer are skipped.")
@github_option
@all_option
@json_option
@footer_limits
def command(
    sources: tuple[str, ...],
    explain: bool,
    index: str | None,
    range_values: int,
    min_skipped: float | None,
    output_format: str,
    show_all: bool,
    as_json: bool,
    **options: Unpack[IndexKeywords],
) -> int:
    """Say which row groups can match a predicate; no data is read.

    \b
    parquet-bloom check events.parquet "trace_id = '4bf92f3577b34da6'"
    parquet-bloom check data/ "user.id IN (42, 43) AND day = DATE '2026-01-31'"
    parquet-bloom check delta:lake/events "trace_id = '4bf92f3577b34da6'"

    Reads footers, and a block of each filter. Exit status 1 if no row group of any file can match; with --min-skipped,
    only if fewer are skipped.
    """
    from parquet_bloom.report import gates, skipping
    from parquet_bloom.search.check import check
    from parquet_bloom.source.names import named_table

    words = sources
    sources, predicate = split(words, required=True)
    shown = format_of(as_json, output_format)
    with Watch("check", quiet=shown == "json") as watch, explain_last_word(words, predicate):
        verdicts = check(
            sources,
            predicate,
            index=index,
            range_values=range_values,
            progress=watch.files,
            **options,
        )
    skipping.log_read(lambda: verdicts)
    kept = len(verdicts) - verdicts.skipped
    asked = [] if min_skipped is None else [gates.min_skipped(verdicts, min_skipped)]
    if shown == "json":
        print_json("check", {**verdicts.to_dict(), **({"gates": asked} if asked else {})})
    elif shown == "github":
        print_lines(gates.of_check(verdicts, asked), as_it_is=True)
    elif not quiet():
        skipping.print_checked(verdicts, explain, show_all, say, lambda: say_unused(verdicts.unused))
        short = sources if sum(map(len, sources)) <= _SHORT or named_table(sources) else ("FILES",)
        command = skipping.adding(verdicts.columns, short, options.get("catalog_properties"))
        *lines, last = skipping.unfiltered_lines(verdicts.columns) or [""]
        for text in lines:
            say(text, "magenta")
        if command is not None and len(command) <= _SHORT:
            say(f"{last} {command}", "magenta")
        elif command is not None:  # it is pasted, and so not folded
            say(last, "magenta")
            print_lines([command])
    if shown != "text" or quiet():
        say_unused(verdicts.unused)
    say_notes(verdicts.notes)
    paths = {v.path for v in verdicts} | {one.path for one in verdicts.excluded}
    failed = say_failed(verdicts.failed, len(paths) + len(verdicts.failed))
    return failed or gate_status(asked, 0 if kept else 1)
