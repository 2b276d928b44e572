"""Commands that change rows: delete and upsert; library calls parquet_bloom.delete_keys and upsert."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Unpack

import click

from parquet_bloom.cli.common import (
    all_option,
    decorated,
    footer_limits,
    json_option,
    memory_option,
    output_options,
    print_json,
    quiet,
    say,
    say_failed,
    say_notes,
    sources_argument,
    table_options,
)
from parquet_bloom.cli.groups import COLUMN, FILE, Command
from parquet_bloom.cli.locate import keys_of, unreadable
from parquet_bloom.cli.progress import Watch
from parquet_bloom.errors import RequestError

if TYPE_CHECKING:
    from parquet_bloom.changes.rows import DeleteOptions, RowOptions
    from parquet_bloom.changes.values import KeyChanges


_TABLES = (".parquet", ".pq", ".parq", ".csv", ".arrow", ".feather")
_OPTIONS = (
    click.option(
        "--column", "-c", required=True, multiple=True, type=COLUMN, metavar="C", help="Of the keys; may be repeated."
    ),
    click.option("--index", type=FILE, metavar="DIR", help="A key index; of a table it is updated afterwards."),
    click.option("--threads", type=int, metavar="N", help="How many build filters at a time."),
    all_option,
    table_options,
    json_option,
    memory_option,
    footer_limits,
)


def row_options(function: Any) -> Any:
    """Options of `delete` and `upsert`."""
    return decorated(function, _OPTIONS)


@click.command("delete", cls=Command)
@sources_argument
@click.option(
    "--keys",
    required=True,
    type=FILE,
    metavar="FILE",
    help="A .parquet, .arrow or .csv with these columns, or a text, a key a line; - is stdin.",
)
@output_options
@row_options
def delete_command(
    sources: tuple[str, ...],
    keys: str,
    output: str | None,
    column: tuple[str, ...],
    index: str | None,
    show_all: bool,
    as_json: bool,
    **options: Unpack[DeleteOptions],
) -> int:
    """Delete rows by their keys, from a table or from files.

    \b
    parquet-bloom delete delta:lake/users -c user_id --keys users.txt --dry-run
    parquet-bloom delete delta:lake/users -c tenant -c user_id --keys keys.csv
    parquet-bloom delete users/ -c user_id --keys users.txt --in-place

    Of a table, delta:PATH or iceberg:CATALOG/namespace.table, only files that have a key are read and written again, in
    one commit. It is refused if another one came first. Of other files the row groups without such rows stay as they
    are, to the byte.
    """
    from parquet_bloom.changes.rows import delete_keys

    with Watch("delete", quiet=as_json) as watch:
        wanted = read_keys(keys, column)
        report = delete_keys(sources, column, wanted, output, index=index, progress=watch.files, **options)
    return print_report("delete", report, as_json, show_all)


def print_report(name: str, report: KeyChanges, as_json: bool, show_all: bool) -> int:
    """Print the report of a command; its exit status."""
    from parquet_bloom.report.added import print_changes

    if as_json:
        print_json(name, report)
    elif not quiet():
        print_changes(report, show_all, say)
        say_notes(report.notes)
    return say_failed(report.failed, report.files)


def read_keys(path: str, columns: tuple[str, ...]) -> Any:
    """Keys of a file. Texts stay texts: the table's column says what they mean. Raises RequestError, StorageError."""
    if os.path.splitext(path)[1].lower() not in _TABLES:
        if len(columns) > 1:
            raise RequestError(f"{path}: keys of several columns are in a .parquet, .arrow or .csv with their names")
        return keys_of(path, None, columns[0])[-1]
    from parquet_bloom.changes.keys import plain_name

    found, names = read_rows(path), list(map(plain_name, columns))
    if len(columns) == 1 and names[0] not in found.column_names and found.num_columns == 1:
        return found.column(0)
    if missing := [name for name in names if found.column_names.count(name) != 1]:
        reason = "two columns" if missing[0] in found.column_names else "no column"
        raise RequestError(f"{path}: has {reason} {missing[0]}; there are: {', '.join(found.column_names)}")
    return found.select(names)


def read_rows(path: str) -> Any:
    """A table of pyarrow from a file of Parquet, Arrow or CSV. Raises RequestError, StorageError.

    Of a CSV all values are texts; a cell without anything is NULL, and "" in quotes an empty text.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet as pq

    kind = os.path.splitext(path)[1].lower()
    if kind not in _TABLES:
        raise RequestError(f"{path}: rows are in a .parquet, .arrow or .csv")
    try:
        if kind in (".arrow", ".feather"):
            return pyarrow.feather.read_table(path)
        if kind != ".csv":
            return pq.read_table(path, partitioning=None)
        with pyarrow.csv.open_csv(path) as reader:
            names = reader.schema.names
        if len({*names}) < len(names):
            raise RequestError(f"{path}: two columns have one name; name each once")
        texts = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        )
        return pyarrow.csv.read_csv(path, convert_options=texts)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


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
def upsert_command(
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
