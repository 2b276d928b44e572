"""`parquet-bloom repair`: library call parquet_bloom.repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from parquet_bloom.cli.common import (
    all_option,
    commit_options,
    footer_limits,
    json_option,
    memory_option,
    output_options,
    print_json,
    quiet,
    say,
    say_empty,
    say_failed,
    say_table_notes,
    sources_argument,
)
from parquet_bloom.cli.groups import Command
from parquet_bloom.cli.progress import Watch

if TYPE_CHECKING:
    from parquet_bloom.options import RepairOptions


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
def command(
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
