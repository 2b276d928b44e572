"""`parquet-bloom inspect`: library call parquet_bloom.inspect."""

from __future__ import annotations

import dataclasses

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


@click.command("inspect")
@sources_argument
@columns_options
@json_option
def command(sources: tuple[str, ...], columns: tuple[str, ...], exclude: tuple[str, ...], as_json: bool) -> int:
    """Show the Bloom filters of Parquet files and what is wrong with them.

    Reads the filters, not the data; `verify` finds what only the data can show.
    """
    from parquet_bloom.files.inspect import FileInfo, inspect
    from parquet_bloom.report.tables import count, plural, print_table, share, size

    report = inspect(sources, columns=listed(columns), exclude=listed(exclude))
    say_notes(report.notes)
    if as_json:
        files = [
            {**{f.name: getattr(file, f.name) for f in dataclasses.fields(FileInfo)},
             "filter_bytes": file.filter_bytes, "problems": file.problems}
            for file in report.files
        ]  # fmt: skip
        print_json({"files": files, "failed": report.failed})
        return say_failed(report.failed, len(report.files) + len(report.failed))
    headings = ("row group", "column", "spec", "place", "offset", "bytes", "blocks", "bits set", "rate", "distinct")
    for file in report.files:
        of_file = f"{size(file.filter_bytes)} ({share(file.filter_bytes / file.size)} of the file)"
        total = f"{plural(len(file.filters), 'filter')}, {of_file}"
        bad = f", {plural(file.problems, 'problem')}" if file.problems else ""
        click.echo(f"{file.path}: {file.rows:,} rows, {plural(file.row_groups, 'row group')}, {total}{bad}")
        if not file.filters:
            continue
        print_table(
            headings,
            [
                (f.row_group, f.column, f.spec or "?", f.place, "-" if f.offset is None else f.offset, f.num_bytes,
                 f.blocks or "-", share(f.bits_set / (8 * f.num_bytes) if f.num_bytes else None),
                 share(f.rate if f.num_bytes else None), count(f.estimated_ndv))
                for f in file.filters
            ],
            right=(0, 4, 5, 6, 7, 8, 9),
        )  # fmt: skip
        for f in file.filters:
            for what, texts in (("problem", f.problems), ("note", f.notes)):
                for text in texts:
                    click.echo(f"  {what}: row group {f.row_group}, column {f.column}: {text}")
    return say_failed(report.failed, len(report.files) + len(report.failed))
