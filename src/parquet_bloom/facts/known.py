"""What is known of engines, kept as data: engines.json beside this module, one entry an engine, then the hazards.

`docs/generate --measure` writes the entries of engines that are installed where it runs, as `parquet-bloom engines
--test` finds them; all others stay as they are. An entry speaks of one version. A hazard speaks of ranges of versions:
releases that break on right filters, or write wrong ones. It is written by hand, from its source.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from parquet_bloom.format.schema import BYTE_ARRAY, DOUBLE, FLBA, FLOAT, INT32, INT64, Leaf

# --- kinds ----------------------------------------------------------------------------------------
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


# --- known ----------------------------------------------------------------------------------------

USED, NOT_USED, CANNOT_ASK, UNKNOWN = "used", "not used", "cannot ask", "unknown"
MEASURED, SOURCES = "measured", "sources"
READS, WRITES = "reads", "writes"
RUN, READ = "run", "read"
ALL = "*"
OURS = "parquet_bloom"
_PARTS = 6  # of a version's numbers; none has more
_RELEASE = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,5})(?:[-+._]?[A-Za-z][\w.+-]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known of one engine.

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
        """What is known of a question; "unknown" where nothing is."""
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
    types       kinds of column, as facts.known has them, and "boolean"; "*": all
    forms       of filters; placements, where they lie; "*": all
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
def _kept() -> dict[str, Any]:
    text = files("parquet_bloom.facts").joinpath("engines.json").read_text("utf-8")
    kept: dict[str, Any] = json.loads(text)
    return kept


@cache
def known() -> tuple[EngineFacts, ...]:
    """All that is known, a kind of engine after the other: those that can be measured here, then those of sources."""
    return tuple(EngineFacts(**entry) for entry in _kept()["engines"])


@cache
def hazards() -> tuple[Hazard, ...]:
    """All hazards that are known, an engine after the other."""
    return tuple(Hazard(**{name: _frozen(value) for name, value in entry.items()}) for entry in _kept()["hazards"])


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def facts_of(name: str) -> EngineFacts | None:
    """The facts of an engine by its name; None if there are none."""
    return next((facts for facts in known() if facts.name == name), None)


def release(version: str) -> str:
    """A version without what mends it: 55.0 of 55.0.1. Facts speak of a release."""
    return ".".join(version.split(".")[:2])


def same_release(one: str, other: str) -> bool:
    """Whether facts of one version are facts of the other."""
    return release(one) == release(other)


def as_text(all_facts: Iterable[EngineFacts]) -> str:
    """The text of engines.json: a line for each kind of an engine, then the hazards, as they are kept."""
    entries = []
    for facts in all_facts:
        plain: dict[str, Any] = {
            name: getattr(facts, name) for name in ("name", "title", "version", "how", "when", "note")
        }
        head = json.dumps(plain, ensure_ascii=False)[:-1]
        rows = [f"  {json.dumps(k)}: {json.dumps(facts.answers[k])}" for k in KINDS if k in facts.answers]
        entries.append(head + ', "answers": {\n' + ",\n".join(rows) + "\n}}")
    dangers = [json.dumps(dataclasses.asdict(hazard), ensure_ascii=False) for hazard in hazards()]
    return '{"engines": [\n' + ",\n".join(entries) + '\n],\n"hazards": [\n' + ",\n".join(dangers) + "\n]}\n"
