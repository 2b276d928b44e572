"""`parquet-bloom verify`: library call parquet_bloom.verify."""

from __future__ import annotations

import click

from parquet_bloom.cli.common import (
    columns_options,
    json_option,
    listed,
    print_json,
    say_failed,
    say_notes,
    sources_argument,
)  # fmt: skip


@click.command("verify")
@sources_argument
@columns_options
@click.option("--sample", type=int, metavar="N", help="Look at N row groups a file only, spread evenly.")
@json_option
def command(
    sources: tuple[str, ...], columns: tuple[str, ...], exclude: tuple[str, ...], sample: int | None, as_json: bool
) -> int:
    """Check that every stored value is admitted by its filter; measure how many absent ones are.

    Exit status 1 if a filter is wrong: it costs rows in every engine that uses it.
    """
    from parquet_bloom.files.verify import verify
    from parquet_bloom.report.tables import plural, print_table, share

    report = verify(sources, columns=listed(columns), exclude=listed(exclude), sample=sample)
    say_notes(report.notes)
    wrong = sum(len(file.wrong) for file in report.files)
    if as_json:
        print_json({"files": report.files, "failed": report.failed})
    else:
        for file in report.files:
            rows = []
            for f in file.filters:
                counts = (f"{f.values:,}", f"{f.missed:,}", share(f.measured_rate))
                rows.append((f.row_group, f.column, f.spec or "?", *counts, f.status, f.reason))
            some = (
                f", {file.sampled} of {file.row_groups} row groups looked at" if file.sampled < file.row_groups else ""
            )
            bad = f"{len(file.wrong)} wrong" if file.wrong else "none wrong" if file.filters else "nothing to verify"
            click.echo(f"{file.path}: {plural(len(file.filters), 'filter')}, {bad}{some}")
            if rows:
                headings = ("row group", "column", "spec", "values", "missed", "measured rate", "verdict", "")
                print_table(headings, rows, right=(0, 3, 4, 5))
    failed = say_failed(report.failed, len(report.files) + len(report.failed))
    return failed or (1 if wrong else 0)
