"""`parquet-bloom remove`: library call parquet_bloom.remove_filters."""

from __future__ import annotations

from typing import Any

import click

from parquet_bloom.cli.common import (
    columns_options,
    json_option,
    listed,
    output_options,
    print_json,
    say_failed,
    say_travel,
    sources_argument,
    warnings_as_lines,
)  # fmt: skip


@click.command("remove")
@sources_argument
@columns_options
@output_options
@json_option
def command(
    sources: tuple[str, ...], columns: tuple[str, ...], exclude: tuple[str, ...], as_json: bool, **options: Any
) -> int:
    """Take Bloom filters out again, all forms.

    A file that got its filters from `add` and loses them all is byte for byte the file it was.
    """
    from parquet_bloom.files.remove import remove_filters
    from parquet_bloom.report.tables import plural, size

    with warnings_as_lines():
        report = remove_filters(sources, columns=listed(columns), exclude=listed(exclude), **options)
    if as_json:
        print_json({"files": report.files, "failed": report.failed})
    else:
        for file in report.files:
            arrow = file.source if file.source == file.output else f"{file.source} -> {file.output}"
            would = "would remove" if file.dry_run else "removed"
            saved = "" if file.dry_run else f", {size(file.bytes_before - file.bytes_after)} less"
            stay = (
                f"; {file.bytes_stay} left their bytes behind, as nothing could be cut safely"
                if file.bytes_stay
                else ""
            )
            click.echo(f"{arrow}: {would} {plural(file.removed, 'filter')}{saved}{stay}")
            say_travel(file)
    return say_failed(report.failed, len(report.files) + len(report.failed))
