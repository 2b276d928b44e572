"""What `add` says of columns whose filters an engine will not use: one line an engine and reason."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from parquet_bloom.errors import RequestError, parameter
from parquet_bloom.facts.installed import ENGINES, version_of
from parquet_bloom.facts.kinds import DICTIONARY, ELEMENT, FIELD, kind_of, stored_as
from parquet_bloom.facts.known import (
    NOT_USED,
    OURS,
    SOURCES,
    UNKNOWN,
    USED,
    EngineFacts,
    facts_of,
    known,
    release,
    same_release,
)
from parquet_bloom.formats.metadata.schema import Leaf

_WHERE = {ELEMENT: "elements of lists of ", FIELD: "fields of structs of "}


@cache
def check_engine(name: str) -> tuple[EngineFacts, str]:
    """(what is known of the engine, the version that is meant) of a name as people give it: "duckdb", "duckdb 1.4".

    Without a version it is the one that is installed here, or else the one of the facts.
    Raises RequestError for an engine that nothing is known of.
    """
    first, _, version = name.strip().partition(" ")
    facts = facts_of(first.lower())
    if facts is None:
        there = ", ".join(each.name for each in known())
        raise RequestError(parameter("engine") + f" {name!r}: nothing is known of it; there are {there}")
    installed = version_of(ENGINES[facts.name]) if facts.name in ENGINES else None
    return facts, version.strip() or installed or facts.version


def notes_of(leaves: Iterable[Leaf], engine: str | None = None) -> list[str]:
    """Lines on those columns whose filters the engine, or any engine that is known, does not use.

    engine  as check_engine takes it; None: a column is told of only if no engine but this package uses its filter
    """
    kinds: dict[tuple[str, str], list[str]] = {}
    for leaf in leaves:
        kind = kind_of(leaf)
        if kind is not None:
            kinds.setdefault((kind, stored_as(leaf)), []).append(leaf.name)
    if engine is not None:
        return _of_engine(*check_engine(engine), kinds)
    nobody = {key: names for key, names in kinds.items() if not any(_uses(facts, *key) for facts in known())}
    return [f"no engine that is known uses filters on {_listed(nobody)}; this package does"] if nobody else []


def engines_for(leaf: Leaf) -> list[str]:
    """The engines, with their versions, that are known to use filters on such a column."""
    kind = kind_of(leaf)
    if kind is None:
        return []
    return [
        f"{facts.title} {release(facts.version)}".strip() for facts in known() if _uses(facts, kind, stored_as(leaf))
    ]


def _uses(facts: EngineFacts, kind: str, stored: str) -> bool:
    return facts.name != OURS and facts.uses(kind, stored) in (USED, DICTIONARY)


def _of_engine(facts: EngineFacts, version: str, kinds: dict[tuple[str, str], list[str]]) -> list[str]:
    told = f"{facts.title} {release(version)}".strip()
    if facts.version and not same_release(version, facts.version):
        unused = {key: names for key, names in kinds.items() if facts.uses(*key) == NOT_USED}
        other = (
            f"; {release(facts.version)} does not on {_listed(unused)}"
            if unused
            else f"; {release(facts.version)} does"
        )
        return [f"whether {told} uses filters on {_listed(kinds)} is not known{other}"] if kinds else []
    source = ", as its source or documents say" if facts.how == SOURCES else ""
    if facts.uses_none:
        return [f"{told} uses no Bloom filters{source}"]
    lines = []
    for answer, before, after in (
        (NOT_USED, f"{told} does not use filters on ", source),
        (UNKNOWN, f"whether {told} uses filters on ", " is not known"),
        (DICTIONARY, f"{told} uses filters on ", " only where the values have no dictionary"),
    ):
        such = {key: names for key, names in kinds.items() if facts.uses(*key) == answer}
        if such:
            lines.append(f"{before}{_listed(such)}{after}")
    return lines


def _listed(kinds: dict[tuple[str, str], list[str]]) -> str:
    return ", ".join(f"{_WHERE.get(stored, '')}{kind} ({', '.join(names)})" for (kind, stored), names in kinds.items())
