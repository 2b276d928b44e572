"""Predicates as values. Today one kind: a column equals a literal."""

from __future__ import annotations

from dataclasses import dataclass

from parquet_bloom.formats.literals import Literal


@dataclass(frozen=True, slots=True)
class Compare:
    """`column op value`; SQL's meaning of NULL. On a repeated column: some element compares so.

    path   path_in_schema as it was written, not yet resolved against a schema
    op     "="
    text   the literal as it was written
    """

    path: tuple[str, ...]
    op: str
    value: Literal
    text: str = ""
