"""`parquet-bloom add`: library call parquet_bloom.add_filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

import click

from parquet_bloom.cli.common import (
    all_option,
    columns_options,
    commit_options,
    filter_options,
    footer_limits,
    json_option,
    memory_option,
    none_if_empty,
    note,
    output_options,
    print_json,
    quiet,
    say,
    say_empty,
    say_failed,
    say_notes,
    say_table_notes,
    sources_argument,
)
from parquet_bloom.cli.groups import Command
from parquet_bloom.cli.progress import Watch
from parquet_bloom.report.text import COMMAND
from parquet_bloom.storage.display import quantity

if TYPE_CHECKING:
    from parquet_bloom.edit.reports import AddReport
    from parquet_bloom.format.forms import Rate
    from parquet_bloom.options import AddOptions, Form


@click.command("add", cls=Command)
@sources_argument
@columns_options
@output_options
@commit_options
@filter_options
@click.option("--append", is_flag=True, help="With tail, in place: write behind the file itself, with a journal.")
@click.option(
    "--engine", metavar="NAME", help="Leave out what it breaks on, say what it does not use: duckdb, clickhouse@26.3."
)
@click.option("--threads", type=int, metavar="N", help="How many decode and hash at a time.")
@all_option
@json_option
@footer_limits
@memory_option
def command(
    sources: tuple[str, ...],
    output: str | None,
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    form: Form,
    fpp: Rate | Mapping[str, Rate] | None,
    as_json: bool,
    show_all: bool,
    **options: Unpack[AddOptions],
) -> int:
    """Add Bloom filters to Parquet files; no other byte changes.

    \b
    parquet-bloom add events.parquet --column trace_id --output bloom.parquet
    parquet-bloom add data/ --column 'user.*' --in-place
    parquet-bloom add delta:lake/events --column trace_id

    Without --column: every column that a filter can help. Row groups that lack a filter are
    filled; filters that are there stay, unless --replace.

    A table (delta:PATH, iceberg:CATALOG/namespace.table, ducklake:CATALOG/schema.table) gets one commit, which
    changes no row; neither --output nor --in-place is given.
    """
    from parquet_bloom.change import add_filters
    from parquet_bloom.format.forms import form_of
    from parquet_bloom.report.added import print_added, print_commits

    with Watch("add", quiet=as_json) as watch:
        report = add_filters(
            sources,
            output,
            columns=none_if_empty(columns),
            exclude=none_if_empty(exclude),
            form=form,
            fpp=fpp,
            progress=watch.files,
            **options,
        )
    built = form_of(form)
    if built.breaks and any(f.filters for f in report.files):
        note(f"warning: {built.breaks} fail on files with {built.name} filters")
    for warning in dict.fromkeys(one for file in report.files for one in file.warnings):
        note(f"warning: {warning}")
    say_table_notes(sources, report)
    say_notes(list(dict.fromkeys(note for file in report.files for note in file.engine_notes)))
    if as_json:
        print_json("add", report)
    elif not quiet():
        print_added(report.files, show_all, say)
        print_commits(report, say)
        _say_wrong(sources if output is None else [output], report)
        say_empty(sources, report)
    return say_failed(report.failed, len(report.files) + len(report.failed))


def _say_wrong(files: Sequence[str], report: AddReport) -> None:
    """Print that statistics are wrong, and the command that writes them right.

    files  names of the new versions, or of their table
    """
    from parquet_bloom.source.names import named_table, repair_command

    wrong = [(file, one) for file in report.files for one in file.wrong_statistics]
    if not wrong:
        return
    first = f"{wrong[0][0].output}, {wrong[0][1].text}"
    say(f"  {quantity(len(wrong), 'statistics')} of these columns wrong, by which engines lose rows: {first}", "red")
    if named_table(files) is None:
        say("  to write all of them right, by a new footer behind each file:")
        say(repair_command(files), COMMAND)
