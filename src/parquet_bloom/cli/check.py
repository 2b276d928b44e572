"""`parquet-bloom check`: library call parquet_bloom.check."""

from __future__ import annotations

import click

from parquet_bloom.cli.common import json_option, print_json, say_failed, warnings_as_lines


@click.command("check")
@click.argument("sources", nargs=-1, required=True, metavar="FILES...")
@click.argument("predicate", metavar='"COLUMN = LITERAL"')
@json_option
def command(sources: tuple[str, ...], predicate: str, as_json: bool) -> int:
    """Say for each row group whether a row can match: one header and one block read per filter.

    \b
    parquet-bloom check events.parquet "trace_id = '4bf92f3577b34da6'"
    parquet-bloom check data/ "user.id = 42"

    Exit status 1 if no row group of any file can match.
    """
    from parquet_bloom.files.check import check
    from parquet_bloom.report.tables import plural, print_table

    with warnings_as_lines():
        verdicts = check(sources, predicate)
    kept = sum(not v.skipped for v in verdicts)
    if as_json:
        print_json({"verdicts": list(verdicts), "failed": verdicts.failed})
    else:
        many = len({v.path for v in verdicts}) > 1
        rows = []
        for v in verdicts:
            row = (v.row_group, "skip" if v.skipped else "read", v.decided_by or "-", v.bytes_read, v.reason)
            rows.append((v.path, *row) if many else row)
        headings = ("row group", "verdict", "decided by", "bytes read", "why")
        if rows:
            print_table(("file", *headings) if many else headings, rows, right=(1, 4) if many else (0, 3))
        read = sum(v.bytes_read for v in verdicts)
        skipped = f"{len(verdicts) - kept} of {plural(len(verdicts), 'row group')} can be skipped"
        click.echo(f"{skipped} ({read:,} bytes read to decide)")
    failed = say_failed(verdicts.failed, len({v.path for v in verdicts}) + len(verdicts.failed))
    return failed or (0 if kept else 1)
