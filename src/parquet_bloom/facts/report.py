"""Reports which engine uses filters on which type of column, and which releases break on them, from what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from parquet_bloom.errors import Message, RequestError, parameter
from parquet_bloom.facts.known import ALL, ENGINES, KINDS, facts_of, hazards, known_engines, version_of
from parquet_bloom.source.results import Result, table_of


@dataclass(slots=True, repr=False)
class EngineAnswer(Result):
    """One question to one engine.

    kind      type of the column: "int64", "timestamp[us, UTC]", "decimal as FIXED", ...
    stored    "plain", "dictionary", "struct field" or "list element"
    question  "=", "IN", "range" (5 <= x AND x <= 7) or "contains" (list_contains(x, 5))
    answer    "used", "not used", "cannot ask" (it gives an error or no row where it should), "lost" (its process
              crashed or hung)
    """

    engine: str
    version: str
    kind: str
    stored: str
    question: str
    answer: str


@dataclass(slots=True, repr=False)
class EngineInfo(Result):
    """One engine: which version the answers are of, and where they come from.

    installed  its version here; None if it is not installed
    how        "measured" or "sources"; when: year and month
    """

    name: str
    title: str
    version: str
    installed: str | None
    how: str
    when: str
    note: str = ""


@dataclass(slots=True, repr=False)
class EngineHazard(Result):
    """Releases of an engine that break on right filters, or that write wrong ones.

    versions    [first, below] pairs: from the first on, and before the second; "" is open
    role        "reads" or "writes"
    types       of columns, as EngineAnswer has them, and "boolean"; forms and placements of filters; "*": all.
                Of a hazard of page indexes the form is "page index"
    ours        whether files that this package writes are hit
    when        the condition that it takes, if any; effect: what happens; avoid: what to do about it
    source      the address of the report
    how         "run" with such releases for this package, or "read" in the source; tried: which, and what they did
    """

    engine: str
    title: str
    versions: list[tuple[str, str]]
    role: str
    types: list[str]
    forms: list[str]
    placements: list[str]
    ours: bool
    when: str
    effect: str
    avoid: str
    source: str
    how: str
    tried: str = ""


@dataclass(slots=True, repr=False)
class EnginesReport(Result):
    """Engines, what each answers, and the releases that break on right filters, or write wrong ones."""

    engines: list[EngineInfo] = field(default_factory=list)
    answers: list[EngineAnswer] = field(default_factory=list)
    hazards: list[EngineHazard] = field(default_factory=list)

    def to_arrow(self) -> pa.Table:
        """A row an answer."""
        return table_of(EngineAnswer, self.answers)


def engines(names: Sequence[str] | None = None, *, kinds: Sequence[str] | None = None) -> EnginesReport:
    """Report which engine uses filters on which type of column, as it was measured or read in its source.

    names  of engines: duckdb, datafusion, spark, clickhouse, polars, pyarrow, daft, fastparquet, parquet_bloom and
           those that are known from sources alone; None: all
    kinds  types of columns, as EngineAnswer has them; None: all

    Raises RequestError for a name or kind that is not known.
    """
    known = known_engines()
    _check(parameter("names"), names, [facts.name for facts in known])
    _check(parameter("kinds"), kinds, KINDS)
    report = EnginesReport()
    for facts in known:
        if names is not None and facts.name not in names:
            continue
        installed = version_of(ENGINES[facts.name]) if facts.name in ENGINES else None
        report.engines.append(
            EngineInfo(facts.name, facts.title, facts.version, installed, facts.how, facts.when, facts.note)
        )
        report.answers += [
            EngineAnswer(facts.name, facts.version, kind, stored, question, answer)
            for kind in (KINDS if kinds is None else kinds)
            for stored, answers in facts.answers.get(kind, {}).items()
            for question, answer in answers.items()
        ]
    report.hazards = _hazards({engine.name for engine in report.engines}, kinds)
    return report


def _hazards(names: set[str], kinds: Sequence[str] | None) -> list[EngineHazard]:
    """The hazards of some engines, over some kinds (None: all)."""
    found = []
    for one in hazards():
        facts = facts_of(one.engine)
        if facts is None or one.engine not in names:
            continue
        if kinds is None or ALL in one.types or not set(kinds).isdisjoint(one.types):
            found.append(
                EngineHazard(
                    one.engine,
                    facts.title,
                    list(one.versions),
                    one.role,
                    list(one.types),
                    list(one.forms),
                    list(one.placements),
                    one.ours,
                    one.when,
                    one.effect,
                    one.avoid,
                    one.source,
                    one.how,
                    one.tried,
                )
            )
    return found


def _check(option: Message, names: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in names or ():
        if name not in known:
            raise RequestError(option + f" {name!r} is not known; there are {', '.join(known)}")
