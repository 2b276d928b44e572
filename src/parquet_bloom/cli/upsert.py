"""`parquet-bloom upsert`: library call parquet_bloom.upsert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from parquet_bloom.cli.delete import print_report, read_keys, read_rows, row_options
from parquet_bloom.cli.groups import FILE, Command
from parquet_bloom.cli.progress import Watch

if TYPE_CHECKING:
    from parquet_bloom.changes.rows import RowOptions


@click.command("upsert", cls=Command)
@click.argument("table", type=FILE, metavar="TABLE")
@click.option(
    "--rows",
    required=True,
    type=FILE,
    metavar="FILE",
    help="A .parquet, .arrow or .csv with all columns of the table.",
)
@click.option("--deletes", type=FILE, metavar="FILE", help="Keys, as of `delete`, whose rows go in the same commit.")
@click.option("--dry-run", is_flag=True, help="Find and count; write nothing.")
@row_options
def command(
    table: str,
    rows: str,
    deletes: str | None,
    column: tuple[str, ...],
    index: str | None,
    dry_run: bool,
    show_all: bool,
    as_json: bool,
    **options: Unpack[RowOptions],
) -> int:
    """Put rows into a table, in the place of those with their keys.

    \b
    parquet-bloom upsert delta:lake/users -c user_id --rows rows.parquet
    parquet-bloom upsert delta:lake/users -c user_id --rows changed.csv --dry-run

    A new row takes the place of all rows with its key, or is appended. Of the table, delta:PATH or
    iceberg:CATALOG/namespace.table, only files that have a key are read and written again, in one commit. It is refused
    if another one came first.
    """
    from parquet_bloom.changes.rows import upsert

    with Watch("upsert", quiet=as_json) as watch:
        gone = None if deletes is None else read_keys(deletes, column)
        report = upsert(
            table,
            read_rows(rows),
            column,
            deletes=gone,
            index=index,
            dry_run=dry_run,
            progress=watch.files,
            **options,
        )
    return print_report("upsert", report, as_json, show_all)
