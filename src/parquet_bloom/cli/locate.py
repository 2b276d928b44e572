"""`parquet-bloom locate`: library call parquet_bloom.locate."""

from __future__ import annotations

import csv
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Unpack

import click

from parquet_bloom.cli.common import (
    IndexKeywords,
    aside,
    footer_limits,
    json_option,
    key_index_options,
    memory_option,
    print_json,
    quiet,
    raw_files_option,
    say,
    table_options,
)
from parquet_bloom.cli.groups import COLUMN, FILE, Command
from parquet_bloom.cli.key_index import one_source
from parquet_bloom.cli.progress import Watch
from parquet_bloom.errors import RequestError, StorageError, first_line

_SHOWN = 50
keys_options = (
    click.option("--column", "-c", required=True, type=COLUMN, metavar="C", help="The column that has the keys."),
    click.option(
        "--keys",
        required=True,
        type=FILE,
        metavar="FILE",
        help="A Parquet file, a .csv with names, or a text, a key a line; - is stdin.",
    ),
    click.option(
        "--keys-column",
        type=COLUMN,
        metavar="C",
        help="Of Parquet or CSV; default --column, or of Parquet its only one.",
    ),
)


@click.command("locate", cls=Command)
@click.argument("data", nargs=-1, required=True, type=FILE, metavar="DATA...")
@keys_options[0]
@keys_options[1]
@keys_options[2]
@click.option("--index", type=FILE, metavar="DIR", help="A key index of the data; without one filters are asked.")
@click.option("--verify", is_flag=True, help="Read the column there: only row groups with a key, and its rows.")
@click.option("--output", "-o", type=FILE, metavar="FILE", help="Write the table here, as Parquet.")
@click.option("--overwrite", is_flag=True, help="Replace an --output that exists.")
@key_index_options
@raw_files_option
@table_options
@json_option
@memory_option
@footer_limits
def locate_command(
    data: tuple[str, ...],
    column: str,
    keys: str,
    keys_column: str | None,
    index: str | None,
    verify: bool,
    output: str | None,
    overwrite: bool,
    as_json: bool,
    **options: Unpack[IndexKeywords],
) -> int:
    """Find the row groups that may hold each of many keys.

    \b
    parquet-bloom locate events/ -c user.id --keys keys.parquet -o found.parquet
    parquet-bloom locate events/ -c user.id --keys keys.txt --index events-index/
    parquet-bloom locate delta:lake/events -c user.id --keys keys.txt --verify

    For joins, upserts and deletes by key. A row of the table is a key and a row group that may hold it. Lines of a
    text are texts or numbers, as the column has them. Exit status 1 if no row group may hold a key.
    """
    import pyarrow.parquet as pq

    from parquet_bloom.keys.locate import facts_of, locate
    from parquet_bloom.output.atomic_file import new_output, new_target
    from parquet_bloom.report.text import Column, Table, plural

    if output is not None:
        new_target(output, overwrite)
    with Watch("locate", quiet=as_json) as watch:
        found = first_that_fits(
            keys_of(keys, keys_column, column),
            lambda wanted: locate(
                one_source(data), column, wanted, index, verify=verify, progress=watch.files, **options
            ),
        )
        if output is not None:
            with new_output(output, overwrite) as out:
                pq.write_table(found, out)
    facts = facts_of(found)
    files = len(found.column("file").unique())
    if as_json:
        print_json("locate", {"places": found.num_rows, "files": files, **facts, "found": list(_rows(found))})
    else:
        if output is None and not quiet():
            say(
                Table.of(
                    list(_rows(found.slice(0, _SHOWN))),
                    Column("key", lambda row: row["key"]),
                    Column("file", lambda row: row["file"], "name"),
                    Column("row group", lambda row: row["row_group"], "number"),
                    Column("first row", lambda row: row["first_row"], "number"),
                    Column("rows", lambda row: row["rows"], "number"),
                )
            )
            if found.num_rows > _SHOWN:
                say(f"... and {found.num_rows - _SHOWN:,} more; -o FILE has all")
        aside(f"{plural(found.num_rows, 'place')} in {plural(files, 'file')}; {_how(facts)}")
    if facts["note"]:
        aside(facts["note"])
    return 0 if found.num_rows else 1


def _rows(found: Any) -> Iterator[dict[str, Any]]:
    """Rows of a table as JSON has them."""
    from parquet_bloom.report.rows import json_values

    for batch in found.to_batches():
        for row in zip(*map(json_values, batch.columns), strict=True):
            yield dict(zip(found.schema.names, row, strict=True))


def _how(facts: dict[str, Any]) -> str:
    from parquet_bloom.report.text import plural

    text = f"{plural(facts['covered'], 'file')} by the index, {facts['searched']:,} opened"
    return text + (f", some {facts['expected_false']:.1f} places by chance" if facts["expected_false"] >= 0.05 else "")


def first_that_fits(readings: Sequence[Any], call: Callable[[Any], Any]) -> Any:
    """Call with the first reading of the keys that the column takes. Raises RequestError, of the first reading."""
    first, *others = readings
    try:
        return call(first)
    except RequestError:
        if others:
            with suppress(RequestError):
                return first_that_fits(others, call)
        raise


def keys_of(path: str, named: str | None, column: str) -> list[Any]:
    """The keys of a Parquet file, or of a text with one a line, in each type that they may have.

    Raises RequestError, StorageError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if os.path.splitext(path)[1] not in (".parquet", ".pq", ".parq"):
        is_csv = os.path.splitext(path)[1].lower() == ".csv"
        if named is not None and not is_csv:
            raise RequestError("--keys-column is for keys of a Parquet or CSV file")
        try:
            # A copy of the descriptor of stdin, which stays open.
            where = os.dup(0) if path == "-" else path
            with open(where, encoding="utf-8-sig", newline="" if is_csv else None) as lines:
                found = _csv_keys(path, lines, named or column) if is_csv else (one.rstrip("\r\n") for one in lines)
                texts = pa.array([text for text in found if text], pa.string())
        except UnicodeDecodeError as error:
            raise StorageError(
                path, f"is no text in UTF-8; keys of a Parquet file are in a .parquet: {error}"
            ) from error
        except OSError as error:
            raise StorageError(path, error.strerror or first_line(error)) from error
        numbers = _numbers(texts)
        return [texts] if numbers is None else [numbers, texts]
    try:
        names = pq.read_schema(path).names
        wanted = named or (column if column in names else names[0] if len(names) == 1 else None)
        if wanted is None or wanted not in names:
            raise RequestError(f"{path}: has no column {named or column}; --keys-column names one")
        return [pq.read_table(path, columns=[wanted]).column(0)]
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: Exception) -> StorageError:
    """The error for a file that pyarrow does not read."""
    number = errno.ENOENT if isinstance(error, FileNotFoundError) else getattr(error, "errno", None)
    said = os.strerror(number) if number else first_line(error)
    return StorageError(path, said)


def _csv_keys(path: str, lines: Iterable[str], column: str) -> Iterator[str]:
    """The texts of a column of a CSV file; its first line has the names. Raises RequestError, StorageError."""
    rows = csv.reader(lines)
    try:
        names = next(rows, [])
        if names.count(column) != 1:
            reason = f"its first line does not name column {column} once; --keys-column names one"
            raise RequestError(f"{path}: {reason}; keys alone, a key a line, are in a .txt")
        at = names.index(column)
        yield from (row[at] for row in rows if len(row) > at)
    except csv.Error as error:
        raise StorageError(path, f"line {rows.line_num}: {error}") from error


def _numbers(texts: Any) -> Any:
    """Lines of a text as numbers, exactly; None where one is none. Texts of digits may be numbers or texts."""
    import pyarrow as pa

    for kind in (pa.int64(), pa.uint64()):
        with suppress(pa.ArrowInvalid):
            return texts.cast(kind)
    with suppress(pa.ArrowException, ArithmeticError, ValueError):
        return pa.array([Decimal(text) for text in texts.to_pylist()])
    return None
