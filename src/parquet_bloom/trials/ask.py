"""Reports which engine uses filters on which type of column: by known facts, or by files with lying filters.

for each kind of column     a control file, and the same file whose filters deny everything (trials.samples)
for each engine installed   a process of its own, in which each question is asked of both:
                            the control must give the row; if the other file does not, the filter was used
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from parquet_bloom.dataclass import dataclass
from parquet_bloom.errors import RequestError, parameter
from parquet_bloom.facts.known import (
    ALL,
    CANNOT_ASK,
    ENGINES,
    KINDS,
    MEASURED,
    NOT_USED,
    READS,
    STORED,
    USED,
    Engine,
    EngineFacts,
    facts_of,
    hazards,
    known_engines,
    questions_of,
    version_of,
)
from parquet_bloom.source.results import Result, table_of
from parquet_bloom.storage.child_process import ChildProcess
from parquet_bloom.trials import samples
from parquet_bloom.trials.samples import write_pair


class EngineError(Exception):
    """An engine's error, or the end of its process, in one line; `lost` where it was the process."""

    def __init__(self, text: str, lost: bool = False) -> None:
        self.lost = lost
        super().__init__(text)


class EngineProcess:
    """A process for one engine; use it in a with statement, which ends the process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._child = ChildProcess("parquet_bloom.trials.child", engine.adapter, alone=True)

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._child.close()

    def ask(self, task: str, **arguments: Any) -> Any:
        """The answer of a task of trials.child. Raises EngineError; a lost process is started anew."""
        try:
            answer, _ = self._child.ask({"task": task, **arguments}, self._engine.seconds)
        except TimeoutError:
            raise EngineError(f"no answer within {self._engine.seconds} s", lost=True) from None
        except EOFError as error:
            raise EngineError(f"its process ended: {error}", lost=True) from None
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer["answer"]


LOST = "lost"  # the engine crashed or hung over the question


@dataclass(slots=True, repr=False)
class EngineAnswer(Result):
    """One question to one engine.

    kind      type of the column: "int64", "timestamp[us, UTC]", "decimal as FIXED", ...
    stored    "plain", "dictionary", "struct field" or "list element"
    question  "=", "IN", "range" (5 <= x AND x <= 7) or "contains" (list_contains(x, 5))
    answer    "used", "not used", "cannot ask" (it gives an error or no row where it should), "lost" (its process
              crashed or hung)
    reason    why it cannot be asked, or was lost
    """

    engine: str
    version: str
    kind: str
    stored: str
    question: str
    answer: str
    reason: str = ""


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
    types       of columns, as EngineAnswer has them, and "boolean"; forms and placements of filters; "*": all
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
    """Engines, and what each answers.

    tested   whether the answers were found out by this call
    hazards  releases that break on right filters, or write wrong ones; with `tested` those that the engines are of
    """

    tested: bool
    engines: list[EngineInfo] = field(default_factory=list)
    answers: list[EngineAnswer] = field(default_factory=list)
    hazards: list[EngineHazard] = field(default_factory=list)

    def to_arrow(self) -> pa.Table:
        """A row an answer."""
        return table_of(EngineAnswer, self.answers)

    def facts(self, when: str = "") -> list[EngineFacts]:
        """The answers in the form in which the package keeps them."""
        return [_facts_of(info, self.answers, when or info.when) for info in self.engines]


def engines(
    names: Sequence[str] | None = None,
    *,
    test: bool = False,
    kinds: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> EnginesReport:
    """Report which engine uses filters on which type of column.

    names     of engines: duckdb, datafusion, spark, clickhouse, polars, pyarrow, daft, fastparquet, parquet_bloom
              and, without test, those that are known from sources alone; None: all, with test all that are installed
    test      ask the engines themselves, over small files in a temporary folder; otherwise what is known is told
    kinds     types of columns, as EngineAnswer has them; None: all
    progress  is called with each engine's name before it is asked

    An engine that fails, crashes or hangs costs its answers only.
    Raises RequestError for a name or kind that is not known, or an engine that is named and not installed.
    """
    wanted = KINDS if kinds is None else tuple(kinds)
    for kind in wanted:
        if kind not in KINDS:
            raise RequestError(parameter("kinds") + f" {kind!r} is not known; there are {', '.join(KINDS)}")
    report = _tested(names, wanted, progress or (lambda name: None)) if test else _known_report(names, wanted)
    report.hazards = _hazards(report, None if kinds is None else wanted)
    return report


def _hazards(report: EnginesReport, kinds: Sequence[str] | None) -> list[EngineHazard]:
    """The hazards of the report's engines, and of their versions, over some kinds (None: all)."""
    versions = {engine.name: engine.version for engine in report.engines}
    found = []
    for one in hazards():
        facts = facts_of(one.engine)
        if facts is None or one.engine not in versions:
            continue
        if report.tested and not (one.role == READS and one.hits_version(versions[one.engine])):
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


def _known_report(names: Sequence[str] | None, kinds: Sequence[str]) -> EnginesReport:
    report = EnginesReport(tested=False)
    there = [facts.name for facts in known_engines()]
    _check_names(names, there)
    for facts in known_engines():
        if names is not None and facts.name not in names:
            continue
        installed = version_of(ENGINES[facts.name]) if facts.name in ENGINES else None
        report.engines.append(
            EngineInfo(facts.name, facts.title, facts.version, installed, facts.how, facts.when, facts.note)
        )
        for kind in kinds:
            for stored, answers in facts.answers.get(kind, {}).items():
                report.answers += [
                    EngineAnswer(facts.name, facts.version, kind, stored, question, answer)
                    for question, answer in answers.items()
                ]
    return report


def _check_names(names: Sequence[str] | None, there: Sequence[str]) -> None:
    for name in names or ():
        if name not in there:
            raise RequestError(parameter("names") + f" {name!r} is not known; there are {', '.join(there)}")


def installed_engines(names: Sequence[str] | None) -> list[tuple[Engine, str]]:
    """The engines of these names (None: all) that are installed here, with their versions.

    Raises RequestError for one that is named and not known or not installed.
    """
    _check_names(names, list(ENGINES))
    found = []
    for engine in ENGINES.values():
        if names is None or engine.name in names:
            version = version_of(engine)
            if version is not None:
                found.append((engine, version))
            elif names is not None:
                raise RequestError(f"{engine.title} is not installed here; pip install {engine.package}")
    return found


def _tested(names: Sequence[str] | None, kinds: Sequence[str], progress: Callable[[str], None]) -> EnginesReport:
    asked = installed_engines(names)
    report = EnginesReport(tested=True)
    when = dt.datetime.now(dt.UTC).strftime("%Y-%m")
    with tempfile.TemporaryDirectory(prefix="parquet-bloom-") as folder:
        pairs = {kind: write_pair(Path(folder), kind) for kind in kinds}
        for engine, version in asked:
            progress(engine.title)
            report.engines.append(EngineInfo(engine.name, engine.title, version, version, MEASURED, when))
            with EngineProcess(engine) as process:
                for kind, (control, denying) in pairs.items():
                    report.answers += _of_kind(process, (engine.name, version, kind), control, denying)
    return report


def _of_kind(process: EngineProcess, head: tuple[str, str, str], control: Path, denying: Path) -> list[EngineAnswer]:
    """All questions over one kind. A question that ended the process is not repeated over the same column."""
    answers = []
    for stored in STORED:
        lost = ""
        for question in questions_of(head[2], stored):
            answer, reason = (LOST, lost) if lost else _ask(process, (head[2], stored, question), control, denying)
            lost = reason if answer == LOST else ""
            answers.append(EngineAnswer(*head, stored, question, answer, reason))
    return answers


def _ask(process: EngineProcess, about: tuple[str, str, str], control: Path, denying: Path) -> tuple[str, str]:
    """(answer, reason) of one question."""
    kind, stored, question = about
    _, wanted = samples.question_values(kind, question)
    found = []
    for path in (control, denying):
        try:
            found.append(process.ask("count", path=str(path), kind=kind, stored=stored, question=question))
        except EngineError as error:
            return LOST if error.lost else CANNOT_ASK, str(error)
        if found[0] != wanted:
            return CANNOT_ASK, f"it finds {found[0]} rows, where {wanted} match"
    if found[1] not in (0, wanted):
        return CANNOT_ASK, f"with a filter that denies all values it finds {found[1]} of {wanted} rows"
    return (USED if found[1] == 0 else NOT_USED), ""


def _facts_of(info: EngineInfo, answers: Sequence[EngineAnswer], when: str) -> EngineFacts:
    found: dict[str, dict[str, dict[str, str]]] = {}
    for each in answers:
        if each.engine == info.name:
            found.setdefault(each.kind, {}).setdefault(each.stored, {})[each.question] = each.answer
    return EngineFacts(info.name, info.title, info.version, info.how, when, info.note, found)
