"""`parquet-bloom read`: library call parquet_bloom.read_batches."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Unpack

import click

from parquet_bloom.cli.check import explain_last_word, split
from parquet_bloom.cli.common import (
    IndexKeywords,
    aside,
    footer_limits,
    key_index_options,
    note,
    print_lines,
    quiet,
    range_option,
    raw_files_option,
    say_notes,
    say_unused,
    split_names,
    table_options,
)
from parquet_bloom.cli.groups import COLUMN, FILE, Command
from parquet_bloom.cli.progress import Watch
from parquet_bloom.errors import RequestError
from parquet_bloom.report.text import visible

_FORMATS = ("table", "csv", "json", "ndjson", "parquet", "arrow")
_TABLE_ROWS = 1000  # a table is laid out in memory; without --limit it ends here, and says so


class _ReadKeywords(IndexKeywords):
    """Options that the library takes as they come."""

    range_values: int


@click.command("read", cls=Command)
@click.argument("sources", nargs=-1, required=True, type=FILE, metavar="FILES... [PREDICATE]")
@click.option("--where", metavar="PREDICATE", help="The predicate, if it is not the last argument.")
@click.option("--columns", type=COLUMN, metavar="A,B", help="Only these columns.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most N rows.")
@click.option(
    "--count", "counts", is_flag=True, help="Only print how many rows match: row groups decided are not read."
)
@click.option("--output", "-o", type=FILE, metavar="FILE", help="Write here, not to standard output.")
@click.option("--overwrite", is_flag=True, help="Replace an --output that exists.")
@click.option("--format", "form", type=click.Choice(_FORMATS), help="Default: by the suffix of --output, else table.")
@click.option("--explain", is_flag=True, help="Say on stderr what each row group fell to.")
@click.option(
    "--index", "indexes", multiple=True, type=FILE, metavar="INDEX", help="A key index of these files, or a zone index."
)
@key_index_options
@raw_files_option
@table_options
@range_option
@footer_limits
def read_command(
    sources: tuple[str, ...],
    where: str | None,
    columns: str | None,
    limit: int | None,
    counts: bool,
    output: str | None,
    overwrite: bool,
    form: str | None,
    explain: bool,
    indexes: tuple[str, ...],
    **options: Unpack[_ReadKeywords],
) -> int:
    """Read the rows that match a predicate, or all rows.

    \b
    parquet-bloom read events.parquet "trace_id = '4bf92f3577b34da6'"
    parquet-bloom read data/ "user.id = 42" --columns at,user -o rows.csv
    parquet-bloom read delta:lake/events@0 --where "user.id = 42"
    parquet-bloom read data/ "user.id = 42" --count

    The last argument is the predicate, SQL text, unless it is a file, folder, glob, table or URI. What was skipped is
    printed on stderr. With a key index (--index) files in which it denies the predicate are not opened; with a zone
    index only pages that hold rows of surviving zones are read.
    """
    from parquet_bloom.read import scan_of
    from parquet_bloom.report import rows, skipping
    from parquet_bloom.report.text import plural, size, width_of

    others = {"--columns": columns, "--limit": limit, "--output": output, "--format": form}
    if counts and (named := [option for option, value in others.items() if value is not None]):
        raise RequestError(f"--count prints a number, so leave out {', '.join(named)}")
    form = _format(output, form)
    words = sources
    sources, where = split(words, where)
    cut = form == "table" and limit is None
    names = split_names(columns) or None
    table: rows.Table | None = None
    with Watch("read") as watch, explain_last_word(words, where):
        scan = scan_of(
            sources,
            where,
            decide_true=counts,
            index=indexes[0] if len(indexes) == 1 else list(indexes) or None,
            progress=watch.files,
            **options,
        )
        if counts:
            written = scan.count()
            watch.close()
            print_lines([str(written)])
            return _said(scan, explain)
        schema = scan.projected_schema(names)
        found = rows.limited(scan.to_batches(names), _TABLE_ROWS + 1 if cut else limit)
        batches = rows.limited(found, _TABLE_ROWS) if cut else found
        with _target(output, overwrite, watch) as out:
            if form == "table" and output is None:
                table = rows.table_of(batches, schema, width_of(sys.stdout))
                out.write(table.text.encode())
                written = table.rows
            else:
                written = rows.write_rows(batches, schema, form, out)
        more = cut and next(iter(found), None) is not None
    if more:
        note(f"the first {_TABLE_ROWS:,} rows; --limit N for more, or another --format")
    if table is not None and (table.cut or table.columns < len(schema)):
        shown = f"{table.columns} of {len(schema)} columns shown" if table.columns < len(schema) else "some texts cut"
        note(f"{shown}; --columns A,B chooses, --format ndjson or csv has all")
    _said(scan, explain)
    aside(f"{plural(written, 'row')}; {skipping.line(scan.verdicts, scan.excluded_files)}")
    if (pages := getattr(scan, "pages", None)) is not None and pages.left:
        left = f"{pages.left:,} of {pages.left + pages.read:,} pages"
        aside(f"of the row groups that were read, {left} were not ({size(pages.bytes_left)})")
    return 0


def _said(scan: Any, explain: bool) -> int:
    """Say on stderr what each row group fell to, and what of the predicate skips nothing; the exit status."""
    from parquet_bloom.report import skipping

    if explain and not quiet():
        if (evidence := scan.search.evidence) is not None:
            note(skipping.index_line(evidence.cost))
        skipping.print_explained(scan.verdicts, scan.excluded_files, aside, file=sys.stderr)
    skipping.log_read(lambda: scan.verdicts)
    say_unused(scan.unused)
    say_notes(scan.notes)
    return 0


def _format(output: str | None, named: str | None) -> str:
    """The format to write: the one that was named, that of the output's suffix, or a table."""
    from parquet_bloom.report.rows import BINARY, SUFFIXES

    form = named or (SUFFIXES.get(os.path.splitext(output)[1].lower()) if output is not None else "table")
    if form is None:
        raise RequestError(f"--output {output}: its suffix names no format; give --format")
    if output is None and form in BINARY and sys.stdout.isatty():
        raise RequestError(f"{form} is no format for a terminal; give --output")
    return form


@contextmanager
def _target(output: str | None, overwrite: bool, watch: Watch) -> Iterator[IO[bytes]]:
    """Standard output, or a new file that takes its place when all is written."""
    if output is None:
        yield _Stdout(watch)  # type: ignore[misc]
        return
    from parquet_bloom.output.atomic_file import new_output

    with new_output(output, overwrite) as out:
        yield out


class _Stdout:
    """Standard output as a binary file that is not closed by who writes to it."""

    closed = False

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def write(self, data: Any) -> int:
        if sys.stdout.isatty():
            self._watch.close()  # rows and a bar do not go together
            # CSV has values as they are: a program wants them so, a terminal would obey them.
            lines = bytes(data).decode("utf-8", "backslashreplace").split("\n")
            sys.stdout.buffer.write("\n".join(map(visible, lines)).encode(errors="backslashreplace"))
            return len(data)
        return sys.stdout.buffer.write(data)

    def flush(self) -> None:
        sys.stdout.buffer.flush()

    def close(self) -> None:
        self.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError("standard output has no position")
