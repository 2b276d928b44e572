"""Commands that show and verify filters: status, inspect, verify, report, engines; library calls of the same names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import click

from parquet_bloom.cli.check import explain_last_word, split
from parquet_bloom.cli.common import (
    all_option,
    assert_filters_option,
    columns_options,
    complain,
    footer_limits,
    format_of,
    github_option,
    json_option,
    memory_option,
    none_if_empty,
    print_audit,
    print_json,
    quiet,
    raw_files_option,
    say,
    say_empty,
    say_failed,
    sources_argument,
    table_options,
)
from parquet_bloom.cli.groups import FILE, Command
from parquet_bloom.cli.progress import Watch
from parquet_bloom.options import ReadOptions, several
from parquet_bloom.report.text import COMMAND

if TYPE_CHECKING:
    from parquet_bloom.filters.verify import VerifyReport


@click.command("status", cls=Command)
@sources_argument
@columns_options
@assert_filters_option
@click.option("--assert-complete", is_flag=True, help="Status 1 if a row group lacks a filter on any column shown.")
@github_option
@json_option
@raw_files_option
@table_options
@footer_limits
def status_command(
    sources: tuple[str, ...],
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    as_json: bool,
    assert_filters: tuple[str, ...],
    assert_complete: bool,
    output_format: str,
    **options: Unpack[ReadOptions],
) -> int:
    """Say which columns lack filters, and which have lost some.

    \b
    parquet-bloom status data/
    parquet-bloom status delta:lake/events --assert-complete

    Without --column: columns that have a filter in some file, or had one by the table's log. Reads footers, and the
    beginning of each filter. Of a column that lacks some, and that nobody chose, a sample is decoded: where `advise`
    sees no gain, nothing is missing.

    lack: row groups without a filter. lost: those of them whose rows were appended, or written anew, after the
    column had filters in the table; since: the first version with such rows.
    """
    from parquet_bloom.advice.status import status
    from parquet_bloom.report import gates
    from parquet_bloom.report.filters import print_status

    shown = format_of(as_json, output_format)
    with Watch("status", quiet=shown == "json") as watch:
        report = status(
            sources,
            columns=none_if_empty(columns),
            exclude=none_if_empty(exclude),
            assert_filters=none_if_empty(assert_filters),
            progress=watch.files,
            **options,
        )
    asked = gates.status_gates(report, assert_filters, assert_complete)

    def draw() -> None:
        if report.files:
            print_status(report, sources[0] if len(sources) == 1 else f"{len(sources):,} names", say)
        say_empty(sources, report)

    return print_audit("status", shown, report, asked, gates.of_status(report, asked), draw)


@click.command("inspect", cls=Command)
@sources_argument
@columns_options
@assert_filters_option
@github_option
@all_option
@json_option
@raw_files_option
@table_options
@footer_limits
def inspect_command(
    sources: tuple[str, ...],
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    show_all: bool,
    as_json: bool,
    assert_filters: tuple[str, ...],
    output_format: str,
    **options: Unpack[ReadOptions],
) -> int:
    """Show the filters of Parquet files, and what is wrong with them.

    \b
    parquet-bloom inspect events-bloom.parquet
    parquet-bloom inspect data/ --column trace_id --all
    parquet-bloom inspect delta:lake/events

    Reads the filters, not the data; `verify` finds what only the data can show.
    """
    from parquet_bloom.filters.inspect import inspect
    from parquet_bloom.report import gates
    from parquet_bloom.report.filters import print_inspected

    shown = format_of(as_json, output_format)
    with Watch("inspect", quiet=shown == "json") as watch:
        report = inspect(
            sources,
            columns=none_if_empty(columns),
            exclude=none_if_empty(exclude),
            progress=watch.files,
            assert_filters=none_if_empty(assert_filters),
            **options,
        )
    asked = [gates.assert_filters(report.files, assert_filters)] if assert_filters else []

    def draw() -> None:
        if report.files:
            print_inspected(report.files, show_all, say)
        say_empty(sources, report)

    return print_audit("inspect", shown, report, asked, gates.of_inspect(report, asked), draw)


@click.command("verify", cls=Command)
@sources_argument
@columns_options
@click.option("--sample", type=int, metavar="N", help="Read N row groups a file only, spread evenly.")
@click.option("--statistics", is_flag=True, help="Also min, max, counts and page indexes of all columns.")
@click.option("--all", "show_all", is_flag=True, help="Filters and statistics, and every line of the report.")
@github_option
@json_option
@raw_files_option
@table_options
@footer_limits
@memory_option
def verify_command(
    sources: tuple[str, ...],
    columns: tuple[str, ...],
    exclude: tuple[str, ...],
    sample: int | None,
    statistics: bool,
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
    parquet-bloom verify data/ --statistics
    parquet-bloom verify delta:lake/events --all

    Measures as well how many values are admitted that are not stored. Exit status 1 if a filter is wrong: it costs
    rows in every engine that uses it. So does a wrong statistic, which --statistics finds. With --sample a wrong filter
    or statistic of a row group that was not read stays unnoticed.
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
            statistics=statistics or show_all,
            progress=watch.files,
            **options,
        )
    gate = gates.none_wrong(report.files)

    def draw() -> None:
        print_verified(report.files, show_all, say)
        if not options.get("raw_files"):
            _say_mend(sources, report, options)
        say_empty(sources, report)

    if shown == "text" and quiet() and not gate.holds:
        complain(gate.reason)
    return print_audit("verify", shown, report, [gate], gates.of_verify(report), draw)


def _say_mend(sources: Sequence[str], report: VerifyReport, options: ReadOptions) -> None:
    """Print the commands that build wrong filters anew, and write wrong statistics right."""
    from parquet_bloom.source.names import add_command, named_table, repair_command

    wrong = [one for file in report.files for one in file.wrong]
    table = named_table(sources)
    of_table = options.get("catalog_properties"), [str(root) for root in several(options.get("allow_roots") or ())]
    lying = [file.path for file in report.files if file.wrong_statistics]
    if lying and (table is None or table.version is None):
        say("  to write these statistics right, by a new footer behind each file:")
        say(repair_command(lying if len(lying) == 1 and table is None else sources, *of_table), COMMAND)
    if not wrong or (table is not None and table.version is not None):  # the past does not change
        return
    specs = {one.spec for one in wrong}
    spec = specs.pop() if len(specs) == 1 else None
    say("  to build these filters anew from the values:")
    command = add_command(
        sources,
        sorted({one.column for one in wrong}),
        replace=True,
        spec=spec if spec != "final" else None,
        catalog_properties=of_table[0],
        allow_roots=of_table[1],
    )
    say(command, COMMAND)


@click.command("report", cls=Command)
@click.argument("sources", nargs=-1, required=True, type=FILE, metavar="FILES... [PREDICATE]")
@click.option("--output", "-o", required=True, type=FILE, metavar="FILE", help="Write the page here.")
@click.option("--where", metavar="PREDICATE", help="The predicate, if it is not the last argument.")
@click.option("--count-rows", is_flag=True, help="With a predicate: read what is left, and count the rows that match.")
@click.option("--overwrite", is_flag=True, help="Replace an --output that exists.")
@raw_files_option
@table_options
@json_option
@footer_limits
@memory_option
def report_command(
    sources: tuple[str, ...],
    output: str,
    where: str | None,
    count_rows: bool,
    overwrite: bool,
    as_json: bool,
    **options: Unpack[ReadOptions],
) -> int:
    """Write one HTML page about files and their filters.

    \b
    parquet-bloom report events/ -o report.html
    parquet-bloom report events/ "trace_id = '4bf92f35'" -o report.html
    parquet-bloom report delta:lake/events -o report.html

    It shows what to do, gain and cost, and pictures of the largest file. With a predicate (SQL text, the last
    argument) it shows what folders' names, bounds and filters leave of it. The page is one file that needs no
    network; the data behind its pictures is in it as JSON.
    """
    from parquet_bloom.report.page.page import write_report
    from parquet_bloom.report.text import plural, size

    words = sources
    sources, where = split(words, where)
    with Watch("report", quiet=as_json) as watch, explain_last_word(words, where):
        page = write_report(
            sources,
            output,
            where=where,
            count_rows=count_rows,
            overwrite=overwrite,
            progress=watch.files,
            **options,
        )
    if as_json:
        print_json("report", page)
    else:
        say(f"{page.path}: {size(page.bytes)}, about {plural(page.files, 'file')}")
    return say_failed(page.failed, page.files)


@click.command("engines", cls=Command)
@click.option("--engine", "names", multiple=True, metavar="NAME", help="This engine; may be repeated.")
@click.option("--kind", "kinds", multiple=True, metavar="TYPE", help="This type of column; may be repeated.")
@json_option
def engines_command(names: tuple[str, ...], kinds: tuple[str, ...], as_json: bool) -> int:
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
