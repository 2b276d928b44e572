"""Commands that make filters: advise, add, remove, repair; library calls of the same names, `add_filters` and so on."""

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
    raw_files_option,
    say,
    say_empty,
    say_failed,
    say_notes,
    say_table_notes,
    sources_argument,
    table_options,
)
from parquet_bloom.cli.groups import FILE, Command
from parquet_bloom.cli.progress import Watch
from parquet_bloom.options import ReadOptions
from parquet_bloom.report.text import COMMAND
from parquet_bloom.storage.display import quantity

if TYPE_CHECKING:
    from parquet_bloom.edit.reports import AddReport
    from parquet_bloom.format.forms import Rate
    from parquet_bloom.options import AddOptions, Form, RemoveOptions, RepairOptions


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
def advise_command(
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
def add_command(
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
def remove_command(
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


@click.command("repair", cls=Command)
@sources_argument
@output_options
@commit_options
@click.option("--undo", is_flag=True, help="Take a repair off; the file is what it was, byte for byte.")
@click.option("--append", is_flag=True, help="In place: write behind the file itself, with a journal.")
@all_option
@json_option
@footer_limits
@memory_option
def repair_command(
    sources: tuple[str, ...],
    output: str | None,
    undo: bool,
    show_all: bool,
    as_json: bool,
    **options: Unpack[RepairOptions],
) -> int:
    """Write wrong min, max and null counts right, in a new footer.

    \b
    parquet-bloom repair events.parquet --in-place
    parquet-bloom repair data/ --output repaired/
    parquet-bloom repair delta:lake/events
    parquet-bloom repair data/ --in-place --dry-run
    parquet-bloom repair events.parquet --undo --in-place

    Every column that has statistics is decoded; none is written again. A file without a wrong statistic stays as it is.
    Of a table a commit names the new files, and states right statistics of them. `remove` keeps repaired statistics.
    With --dry-run, exit status 1 if a statistic is wrong, as `verify --statistics`.
    """
    from parquet_bloom.change import repair
    from parquet_bloom.report.added import print_commits
    from parquet_bloom.report.filters import print_repaired

    with Watch("repair", quiet=as_json) as watch:
        report = repair(sources, output, undo=undo, progress=watch.files, **options)
    say_table_notes(sources, report)
    if as_json:
        print_json("repair", report)
    elif not quiet():
        print_repaired(report.files, undo, show_all, say)
        print_commits(report, say)
        say_empty(sources, report)
    failed = say_failed(report.failed, len(report.files) + len(report.failed))
    return failed or int(bool(options.get("dry_run")) and any(file.wrong for file in report.files))
