"""Separates the files of a command line from its predicate: `check FILES PREDICATE`, `read FILES PREDICATE`.

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
from typing import Literal

import click

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
