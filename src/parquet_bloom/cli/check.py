"""`parquet-bloom check`: library call parquet_bloom.check."""

from __future__ import annotations

import click

from parquet_bloom.cli.common import (
    json_option,
    print_json,
    range_option,
    raw_files_option,
    say_failed,
    say_notes,
    say_unused,
    warnings_as_lines,
)  # fmt: skip


@click.command("check")
@click.argument("sources", nargs=-1, required=True, metavar="PATH...")
@click.argument("predicate", metavar="PREDICATE")
@click.option("--explain", is_flag=True, help="One line a row group: what it fell to.")
@raw_files_option
@range_option
@json_option
def command(
    sources: tuple[str, ...], predicate: str, explain: bool, range_values: int, raw_files: bool, as_json: bool
) -> int:
    """Say which row groups can match, from footers and a block of each filter; no data is read.

    \b
    parquet-bloom check events.parquet "trace_id = '4bf92f3577b34da6'"
    parquet-bloom check data/ "user.id IN (42, 43) AND at >= TIMESTAMP '2026-01-31 00:00:00+00:00'" --explain

    Exit status 1 if no row group of any file can match.
    """
    from parquet_bloom.files.check import check
    from parquet_bloom.report import skipping

    with warnings_as_lines():
        verdicts = check(sources, predicate, range_values=range_values, raw_files=raw_files)
    kept = len(verdicts) - verdicts.skipped
    if as_json:
        unused = [{"part": part, "reason": reason} for part, reason in verdicts.unused]
        document = {"verdicts": list(verdicts), "totals": skipping.totals(verdicts), "unused": unused}
        print_json({**document, "failed": verdicts.failed})
    else:
        if explain:
            skipping.print_verdicts(verdicts)
        else:
            for text in skipping.kept_lines(verdicts):
                click.echo(text)
        click.echo(skipping.line(verdicts))
    say_unused(verdicts.unused)
    say_notes(verdicts.notes)
    failed = say_failed(verdicts.failed, len({v.path for v in verdicts}) + len(verdicts.failed))
    return failed or (0 if kept else 1)
