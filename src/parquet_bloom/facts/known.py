"""Facts on engines, as data: engines.json beside this module, one entry an engine, then the hazards.

`tests/engines/measure.py` writes the entries of engines that are installed where it runs; all others stay as they are.
An entry speaks of one version. A hazard speaks of ranges of versions: releases that break on right filters, or write
wrong ones. It is written by hand, from its source.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from parquet_bloom.errors import RequestError, parameter
from parquet_bloom.format.schema import BYTE_ARRAY, DOUBLE, FLBA, FLOAT, INT32, INT64, Leaf

# --- types of columns that engines tell apart -----------------------------------------------------
#
# What engines tell apart: the type of a column, and the ways a value of it is stored and asked for.
#
# A kind is named as Arrow names its type, with what Parquet adds: "int8", "timestamp[us, UTC]", "decimal as INT32".

KINDS = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float",
    "double",
    "string",
    "binary",
    "fixed",
    "uuid",
    "date",
    "time[ms]",
    "time[us]",
    "time[ns]",
    "timestamp[ms]",
    "timestamp[us]",
    "timestamp[ns]",
    "timestamp[ms, UTC]",
    "timestamp[us, UTC]",
    "timestamp[ns, UTC]",
    "decimal as INT32",
    "decimal as INT64",
    "decimal as FIXED",
)
COUNTED = {kind for kind in KINDS if "int" in kind and "as" not in kind} | {"date"}  # the next value is one more

# How a value is stored: in a column of its own, with a dictionary or without, or inside of another type.
PLAIN, DICTIONARY, FIELD, ELEMENT = "plain", "dictionary", "struct field", "list element"
STORED = (PLAIN, DICTIONARY, FIELD, ELEMENT)
# How it is asked for: x = 5; x IN (5, 7); 5 <= x <= 7; list_contains(x, 5).
EQUAL, IN, RANGE, CONTAINS = "=", "IN", "range", "contains"
QUESTIONS = (EQUAL, IN, RANGE, CONTAINS)

_UNITS = {1_000_000: "ms", 1_000: "us", 1: "ns"}
_PHYSICAL = {FLOAT: "float", DOUBLE: "double", BYTE_ARRAY: "binary", FLBA: "fixed", INT32: "int32", INT64: "int64"}
_DECIMALS = {INT32: "decimal as INT32", INT64: "decimal as INT64", FLBA: "decimal as FIXED"}
_NAMED = {"STRING": "string", "UUID": "uuid", "DATE": "date", "FLOAT16": "float16"}
WIDE_DECIMAL = "decimal over 38 digits"  # engines that have no such type read another, or nothing
_MOST_DIGITS = 38  # of 128 bits
_AS_BYTES = {"ENUM", "JSON", "BSON"}


def questions_of(kind: str, stored: str) -> tuple[str, ...]:
    """The questions that make sense over a kind that is stored so."""
    if stored == ELEMENT:
        return (CONTAINS,)
    return (EQUAL, IN, RANGE) if kind in COUNTED else (EQUAL, IN)


def kind_of(leaf: Leaf) -> str | None:
    """The kind of a leaf; None for one that no facts are kept of (BOOLEAN, INT96, INTERVAL, decimals as BYTE_ARRAY)."""
    logical = leaf.logical
    if leaf.refusal is not None:
        return None
    if logical in _NAMED:
        return _NAMED[logical]
    if logical == "INTEGER":
        return f"{'' if leaf.signed else 'u'}int{leaf.bits}"
    if logical == "DECIMAL":
        if leaf.precision > _MOST_DIGITS:
            return WIDE_DECIMAL
        return _DECIMALS.get(leaf.physical)
    unit = _UNITS.get(leaf.unit_ns)
    if logical == "TIME":
        return f"time[{unit}]" if unit else None
    if logical == "TIMESTAMP":  # the old converted types meant UTC
        return f"timestamp[{unit}{'' if leaf.utc is False else ', UTC'}]" if unit else None
    return _PHYSICAL.get(leaf.physical) if logical is None or logical in _AS_BYTES else None


def stored_as(leaf: Leaf) -> str:
    """How a leaf stores its values; whether with a dictionary is said by its pages, not here: `PLAIN` is both."""
    if leaf.repeated:
        return ELEMENT
    return FIELD if len(leaf.path) > 1 else PLAIN


# --- what is known, from engines.json -------------------------------------------------------------

USED, NOT_USED, CANNOT_ASK, UNKNOWN = "used", "not used", "cannot ask", "unknown"
MEASURED, SOURCES = "measured", "sources"
READS, WRITES = "reads", "writes"
RUN, READ = "run", "read"
ALL, PAGE_INDEX = "*", "page index"
OURS = "parquet_bloom"
_PARTS = 6  # of a version's numbers; none has more
_RELEASE = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,5})(?:[-+._]?[A-Za-z][\w.+-]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The facts on one engine.

    name     as options and JSON have it; title as people write it
    version  that the facts are of; empty where sources name none
    how      "measured": by files whose filters deny everything; "sources": read in its source or documents, not run
    when     year and month
    note     in a sentence, what the answers do not say
    answers  kind -> how it is stored -> question -> "used", "not used" or "cannot ask"; of sources only kind -> ...
             -> "=" over plain columns
    """

    name: str
    title: str
    version: str
    how: str
    when: str
    note: str = ""
    answers: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)

    def answer(self, kind: str, stored: str = PLAIN, question: str = EQUAL) -> str:
        """The answer to a question; "unknown" where there is none."""
        return self.answers.get(kind, {}).get(stored, {}).get(question, UNKNOWN)

    def uses(self, kind: str, stored: str) -> str:
        """USED, NOT_USED or UNKNOWN for a column; DICTIONARY where filters are used, but not with a dictionary."""
        asked = self.answer(kind, stored, CONTAINS if stored == ELEMENT else EQUAL)
        if asked == UNKNOWN and self.answer(kind) != USED:
            asked = self.answer(kind)  # who does not use them on a column of its own does not use them inside of one
        if asked != USED:
            return asked if asked == UNKNOWN else NOT_USED
        return DICTIONARY if stored == PLAIN and self.answer(kind, DICTIONARY) == NOT_USED else USED

    @property
    def uses_none(self) -> bool:
        """Whether all kinds are known, and a filter of none is used."""
        answers = {answer for ways in self.answers.values() for asked in ways.values() for answer in asked.values()}
        return self.answers.keys() >= set(KINDS) and USED not in answers


@dataclass(frozen=True, slots=True)
class Hazard:
    """Releases of an engine that break on right filters, or that write wrong ones.

    engine      as EngineFacts.name
    versions    (first, below) pairs of release numbers: from the first on, and before the second; "" is open
    role        "reads": it breaks on filters; "writes": it writes wrong ones, or fails over them
    types       kinds of column, as `kind_of` has them, WIDE_DECIMAL among them, and "boolean"; "*": all
    forms       of filters; placements, where they lie; "*": all. Or PAGE_INDEX: it is one of page indexes
    ours        whether files that this package writes are hit
    when        a condition that no file shows, in words that go on after "where"; empty: none is needed
    effect      what happens, in words that go on after the engine's name
    avoid       what to do, as an order
    source      the address of the report
    how         "run": seen with releases that were run for this package; "read": read in the source, not run
    tried       which releases were run over which files, and what they did
    """

    engine: str
    versions: tuple[tuple[str, str], ...]
    role: str
    types: tuple[str, ...]
    forms: tuple[str, ...]
    placements: tuple[str, ...]
    ours: bool
    when: str
    effect: str
    avoid: str
    source: str
    how: str
    tried: str = ""

    def hits_version(self, version: str) -> bool:
        """Whether a version, or a release of one that is named without its last numbers, is in a range.

        Of an unknown version only an open end says that it is.
        """
        number = release_number(version)
        if number is None:
            return any(not below for _, below in self.versions)
        return any(_overlap(number, first, below) for first, below in self.versions)

    def hits(self, kind: str | None, form: str, placement: str) -> bool:
        """Whether a filter of this form and placement on this kind of column is one of those that are spoken of."""
        return all(
            ALL in some or one in some
            for some, one in ((self.types, kind), (self.forms, form), (self.placements, placement))
        )


def _overlap(number: tuple[int, ...], first: str, below: str) -> bool:
    after = (*number[:-1], number[-1] + 1)  # "26.3" stands for all from 26.3 on and before 26.4
    lower, upper = release_number(first), release_number(below)
    return (lower is None or _padded(after) > _padded(lower)) and (upper is None or _padded(number) < _padded(upper))


def _padded(number: tuple[int, ...]) -> tuple[int, ...]:
    return (*number, *(0,) * (_PARTS - len(number)))


def range_text(versions: tuple[str, str]) -> str:
    """A range of versions in words: "1.5.0 to before 2.0.0", "before 460", "from 26.1", "all versions"."""
    first, below = versions
    if first and below:
        return f"{first} to before {below}"
    return f"before {below}" if below else f"from {first}" if first else "all versions"


def release_number(version: str) -> tuple[int, ...] | None:
    """The numbers of a release: (2, 0, 0) of "2.0.0" and of "2.0.0rc1"; None of a text that is no version."""
    found = _RELEASE.fullmatch(version)
    return None if found is None else tuple(int(part) for part in found[1].split("."))


@cache
def _engines_json() -> dict[str, Any]:
    text = files("parquet_bloom.facts").joinpath("engines.json").read_text("utf-8")
    kept: dict[str, Any] = json.loads(text)
    return kept


@cache
def known_engines() -> tuple[EngineFacts, ...]:
    """All that is known, a kind of engine after the other: those that can be measured here, then those of sources."""
    return tuple(EngineFacts(**entry) for entry in _engines_json()["engines"])


@cache
def hazards() -> tuple[Hazard, ...]:
    """All hazards that are known, an engine after the other."""
    return tuple(
        Hazard(**{name: _frozen(value) for name, value in entry.items()}) for entry in _engines_json()["hazards"]
    )


BESIDE_NAN = "bounds beside a NaN"
SOME_GROUPS = "bounds in some row groups"


def by_bounds(about: str) -> list[dict[str, str]]:
    """The engines and whether they find rows by right bounds: "always", "never", or "without bounds" alone.

    BESIDE_NAN   a NaN by `f > 5`. Bounds leave it out (parquet.thrift, ColumnOrder); for some engines it is the
                 greatest value, for pyarrow no comparison with it is true. `finds_by_pages` is of bounds in a column
                 index, with none in the footer
    SOME_GROUPS  rows of a row group without bounds, where another has some. `source` is the address of the report
    Measured by tests/engines/test_hazards.py.
    """
    found: list[dict[str, str]] = _engines_json()[about]
    return found


def losers(about: str) -> str:
    """The engines that miss rows by right bounds, with their versions."""
    some = [one for one in by_bounds(about) if one["finds"] == "without bounds"]
    return " and ".join(f"{one['title']} {one['versions']}" for one in some)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def facts_of(name: str) -> EngineFacts | None:
    """The facts of an engine by its name; None if there are none."""
    return next((facts for facts in known_engines() if facts.name == name), None)


def release(version: str) -> str:
    """A version without what mends it: 55.0 of 55.0.1. Facts speak of a release."""
    return ".".join(version.split(".")[:2])


def same_release(one: str, other: str) -> bool:
    """Whether facts of one version are facts of the other."""
    return release(one) == release(other)


# --- engines that are installed here --------------------------------------------------------------
#
# The engines that tests/engines/measure.py asks, and which version of each is installed here. Imports none of them.


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine that was measured.

    name     as --engine and JSON have it; title as people write it
    package  the distribution that has its version; module, what is imported
    """

    name: str
    title: str
    package: str
    module: str


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("duckdb", "DuckDB", "duckdb", "duckdb"),
        Engine("datafusion", "DataFusion", "datafusion", "datafusion"),
        Engine("spark", "Spark", "pyspark", "pyspark"),
        Engine("clickhouse", "ClickHouse", "chdb-core", "chdb"),
        Engine("polars", "Polars", "polars", "polars"),
        Engine("pyarrow", "pyarrow", "pyarrow", "pyarrow"),
        Engine("daft", "Daft", "daft", "daft"),
        Engine("fastparquet", "fastparquet", "fastparquet", "fastparquet"),
        Engine("parquet_bloom", "parquet_bloom", "parquet-bloom", "parquet_bloom"),
    )
}


def version_of(engine: Engine) -> str | None:
    """The version that is installed; None if it is not, or cannot run (Spark without Java)."""
    from importlib import metadata
    from importlib.util import find_spec

    if engine.name == "parquet_bloom":
        from parquet_bloom._version import __version__

        return __version__
    try:
        if find_spec(engine.module) is None:
            return None
        version = metadata.version(engine.package)
    except (ImportError, ValueError, metadata.PackageNotFoundError):
        return None
    java = shutil.which("java") is not None or "JAVA_HOME" in os.environ
    return version if engine.name != "spark" or java else None


# --- engines that use a filter --------------------------------------------------------------------

_WHERE = {ELEMENT: "elements of lists of ", FIELD: "fields of structs of "}


@cache
def check_engine(name: str) -> tuple[EngineFacts, str]:
    """Parse "duckdb" or "duckdb@1.4": (facts on the engine, the version that is meant).

    A space does for the @. Without a version it is the one that is installed here, or else the one of the facts.
    Raises RequestError for an engine that nothing is known of, and for a version that is none.
    """
    first, at, version = re.sub(r"\s*[@\s]\s*", "@", name.strip(), count=1).partition("@")
    facts = facts_of(first.lower())
    if facts is None:
        there = ", ".join(each.name for each in known_engines())
        raise RequestError(parameter("engine") + f" {name!r}: nothing is known of it; there are {there}")
    if at and release_number(version) is None:
        spoken = ", ".join(_versions_known(facts)) or "none"
        raise RequestError(
            parameter("engine") + f" {name!r}: {version!r} is no version such as 2.0 or 26.3.9.1; "
            f"of {facts.title} something is known of: {spoken}"
        )
    installed = version_of(ENGINES[facts.name]) if facts.name in ENGINES else None
    return facts, version or installed or facts.version


def _versions_known(facts: EngineFacts) -> list[str]:
    """The version that was measured, and the ranges that hazards speak of."""
    ranges = [one for hazard in hazards() if hazard.engine == facts.name for one in hazard.versions]
    return [*filter(None, [facts.version]), *dict.fromkeys(map(range_text, ranges))]


# --- engines that break on right filters ----------------------------------------------------------


def danger_of(leaf: Leaf, engine: str | None, form: str = "final", placement: str = "footer") -> str | None:
    """Why an engine gives wrong answers over a right filter on a column; None where it is not known to.

    engine  as check_engine takes it; None: any, by hazards that no release has ended
    form, placement  of the filter
    """
    found = _hazards_on(leaf, engine, form, placement)
    return next((_sentence(engine, hazard, "its filters") for hazard in found if not hazard.when), None)


def warnings_of(
    leaves: Iterable[Leaf], engine: str | None, form: str, placement: str, *, conditional: bool = False
) -> list[str]:
    """Lines on columns over whose right filters an engine gives wrong answers: one line a hazard.

    engine       as danger_of has it
    conditional  those that need a condition which no file shows; otherwise those that need none
    """
    hit: dict[Hazard, list[str]] = {}
    for leaf in leaves:
        for hazard in _hazards_on(leaf, engine, form, placement):
            if bool(hazard.when) == conditional:
                hit.setdefault(hazard, []).append(leaf.name)
    return [_sentence(engine, hazard, f"filters on {', '.join(names)}") for hazard, names in hit.items()]


def _hazards_on(leaf: Leaf, engine: str | None, form: str, placement: str) -> list[Hazard]:
    kind = kind_of(leaf)
    facts, version = (None, "") if engine is None else check_engine(engine)
    return [
        hazard
        for hazard in hazards()
        if hazard.role == READS
        and hazard.ours
        and (not hazard.when if facts is None else hazard.engine == facts.name)
        and hazard.hits_version(version)
        and hazard.hits(kind, form, placement)
    ]


def _sentence(engine: str | None, hazard: Hazard, over: str) -> str:
    where = f" where {hazard.when}" if hazard.when else ""
    facts, version = check_engine(hazard.engine if engine is None else engine)
    if engine is None:
        version = f"({', '.join(map(range_text, hazard.versions))})"
    return f"{facts.title} {version}".strip() + f" {hazard.effect} over {over}{where}: {hazard.avoid} ({hazard.source})"


# --- lines on columns whose filters an engine ignores ---------------------------------------------


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
    nobody = {key: names for key, names in kinds.items() if not any(_uses(facts, *key) for facts in known_engines())}
    return [f"no engine that is known uses filters on {_listed(nobody)}; this package does"] if nobody else []


def engines_for(leaf: Leaf) -> list[str]:
    """The engines, with their versions, that are known to use filters on such a column."""
    kind = kind_of(leaf)
    if kind is None:
        return []
    return [
        f"{facts.title} {release(facts.version)}".strip()
        for facts in known_engines()
        if _uses(facts, kind, stored_as(leaf))
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
