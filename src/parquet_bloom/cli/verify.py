"""`parquet-bloom verify`: library call parquet_bloom.verify."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import click

from parquet_bloom.cli.common import (
    columns_options,
    complain,
    footer_limits,
    format_of,
    github_option,
    json_option,
    memory_option,
    none_if_empty,
    print_audit,
    quiet,
    raw_files_option,
    say,
    say_empty,
    sources_argument,
    table_options,
)
from parquet_bloom.cli.groups import Command
from parquet_bloom.cli.progress import Watch
from parquet_bloom.options import ReadOptions, several
from parquet_bloom.report.text import COMMAND

if TYPE_CHECKING:
    from parquet_bloom.filters.verify import VerifyReport


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
def command(
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
