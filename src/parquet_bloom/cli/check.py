"""`parquet-bloom check`: library call parquet_bloom.check.

Here the files of a command line are separated from its predicate, for `read FILES PREDICATE`, too:

    a.parquet "id = 42"        a.parquet is there, and the other word is SQL
    a.parquet b.parquet        both are files; check lacks a predicate
    a.parquet evnts.parquet    evnts.parquet is not there, and no predicate: an error that says both
    a.parquet flag             a column of truth values; if no column is called so, an error that says both

A word that is there, that a file fits, or that names a table or a URI is never a predicate.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Unpack

import click

from parquet_bloom.cli.common import (
    IndexKeywords,
    all_option,
    footer_limits,
    format_of,
    gate_status,
    github_option,
    index_option,
    json_option,
    key_index_options,
    print_json,
    print_lines,
    quiet,
    range_option,
    raw_files_option,
    say,
    say_failed,
    say_notes,
    say_unused,
    table_options,
)
from parquet_bloom.cli.groups import FILE, Command
from parquet_bloom.cli.progress import Watch
from parquet_bloom.errors import StorageError, UnknownColumnError

Kind = Literal["source", "path", "predicate", "name"]
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!:)")  # s3://bucket/x, file:/x, delta:x; not column::type
_LIKE_SQL = re.compile(r"[\s'\"=<>(]")
_GLOB = set("*?[")
EXAMPLE = '"id = 42"'


def kind_of(word: str) -> Kind:
    """The kind of a word: a source, a path that is not there, a predicate, or a name that may be either."""
    from parquet_bloom.storage.store import SUFFIXES

    if _ELSEWHERE.match(word) or os.path.lexists(word):
        return "source"
    if set(word) & _GLOB and next(glob.iglob(word, recursive=True), None) is not None:
        return "source"
    named_so = word.lower().endswith(SUFFIXES)
    if named_so and not re.search(r"['\"<>]|\s=|=\s", word):
        return "path"
    if "/" in word and not re.search(r"[\s'\"<>(]", word):
        return "path"
    return "predicate" if _LIKE_SQL.search(word) else "name"


def split(
    words: Sequence[str], where: str | None = None, *, required: bool = False, what: str = "FILES"
) -> tuple[tuple[str, ...], str | None]:
    """The words that name sources, and the predicate: the last word, or --where.

    required  there must be a predicate as the last word
    what      the sources as the help page calls them
    Raises UsageError where files or the predicate are missing, or there are two predicates; StorageError for a path
    that is not there in the place of the predicate.
    """
    ctx = click.get_current_context()
    example = f"as in: {ctx.command_path} {what} {EXAMPLE}"
    *before, last = words
    kinds = [kind_of(word) for word in before]
    if "predicate" in kinds:
        word = before[kinds.index("predicate")]
        raise click.UsageError(f"{word}: no such file or folder; a predicate is the last argument, {example}", ctx)
    kind = kind_of(last)
    if kind == "path" and before:
        raise _neither(last)
    if kind == "source" or kind == "path" or (kind == "name" and (not before or where is not None)):
        if required:
            raise click.UsageError(f"no predicate after {last}, {example}", ctx)
        return tuple(words), where
    if not before:
        raise click.UsageError(f"no {what.lower()} before the predicate, {example}", ctx)
    if where is not None:
        raise click.UsageError(f"{last} and --where {where}: give the predicate once", ctx)
    return tuple(before), last


@contextmanager
def explain_last_word(words: Sequence[str], predicate: str | None) -> Iterator[None]:
    """Say of a last word that is neither a file nor a column that it is neither, in the place of the latter alone."""
    try:
        yield
    except UnknownColumnError as error:
        if predicate is None or predicate != words[-1] or kind_of(predicate) != "name":
            raise
        raise _neither(predicate, error.message) from error


def _neither(word: str, why: str = "") -> StorageError:
    missing = "no file fits this pattern" if set(word) & _GLOB else f"no such file or folder{_near(word)}"
    return StorageError(word, f"{missing}; and no predicate, such as {EXAMPLE}" + (f" ({why})" if why else ""))


def _near(word: str) -> str:
    from parquet_bloom.storage.store import near_names

    return near_names(word)


# --- the command ----------------------------------------------------------------------------------


_SHORT = 60  # characters of names in a line of text


@click.command("check", cls=Command)
@click.argument("sources", nargs=-1, required=True, type=FILE, metavar="FILES... PREDICATE")
@click.option("--explain", is_flag=True, help="What is read and why, then the rest by reason; --all: a line each.")
@index_option
@key_index_options
@raw_files_option
@table_options
@range_option
@click.option("--min-skipped", type=click.FloatRange(0, 100), metavar="PERCENT", help="Status 1 if fewer are skipped.")
@github_option
@all_option
@json_option
@footer_limits
def check_command(
    sources: tuple[str, ...],
    explain: bool,
    index: str | None,
    range_values: int,
    min_skipped: float | None,
    output_format: str,
    show_all: bool,
    as_json: bool,
    **options: Unpack[IndexKeywords],
) -> int:
    """Say which row groups can match a predicate; no data is read.

    \b
    parquet-bloom check events.parquet "trace_id = '4bf92f3577b34da6'"
    parquet-bloom check data/ "user.id IN (42, 43) AND day = DATE '2026-01-31'"
    parquet-bloom check delta:lake/events "trace_id = '4bf92f3577b34da6'"

    Reads footers, and a block of each filter. Exit status 1 if no row group of any file can match; with --min-skipped,
    only if fewer are skipped.
    """
    from parquet_bloom.report import gates, skipping
    from parquet_bloom.search.check import check
    from parquet_bloom.source.names import named_table

    words = sources
    sources, predicate = split(words, required=True)
    shown = format_of(as_json, output_format)
    with Watch("check", quiet=shown == "json") as watch, explain_last_word(words, predicate):
        verdicts = check(
            sources,
            predicate,
            index=index,
            range_values=range_values,
            progress=watch.files,
            **options,
        )
    skipping.log_read(lambda: verdicts)
    kept = len(verdicts) - verdicts.skipped
    asked = [] if min_skipped is None else [gates.min_skipped(verdicts, min_skipped)]
    if shown == "json":
        print_json("check", {**verdicts.to_dict(), **({"gates": asked} if asked else {})})
    elif shown == "github":
        print_lines(gates.of_check(verdicts, asked), as_it_is=True)
    elif not quiet():
        skipping.print_checked(verdicts, explain, show_all, say, lambda: say_unused(verdicts.unused))
        short = sources if sum(map(len, sources)) <= _SHORT or named_table(sources) else ("FILES",)
        command = skipping.adding(verdicts.columns, short, options.get("catalog_properties"))
        *lines, last = skipping.unfiltered_lines(verdicts.columns) or [""]
        for text in lines:
            say(text, "magenta")
        if command is not None and len(command) <= _SHORT:
            say(f"{last} {command}", "magenta")
        elif command is not None:  # it is pasted, and so not folded
            say(last, "magenta")
            print_lines([command])
    if shown != "text" or quiet():
        say_unused(verdicts.unused)
    say_notes(verdicts.notes)
    paths = {v.path for v in verdicts} | {one.path for one in verdicts.excluded}
    failed = say_failed(verdicts.failed, len(paths) + len(verdicts.failed))
    return failed or gate_status(asked, 0 if kept else 1)
