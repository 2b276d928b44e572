"""Measures which engine uses filters on which type of column: the entries of facts/engines.json, made anew.

    python tests/engines/measure.py [--engine NAME]...     writes the entries of the engines that are installed here

for each kind of column     a control file, and the same file whose filters deny everything (support.denying)
for each engine             a process of its own, in which each question is asked of both:
                            the control must give the row; if the other file does not, the filter was used

A crash or a hang of an engine costs one answer. Entries of other engines, and all hazards, stay as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.denying import COLUMNS, question_values, write_pair

from engines.counts import COUNTS
from parquet_bloom.facts import known
from parquet_bloom.facts.known import (
    CANNOT_ASK,
    ENGINES,
    KINDS,
    NOT_USED,
    STORED,
    USED,
    EngineFacts,
    known_engines,
    questions_of,
    version_of,
)

LOST = "lost"  # the engine crashed or hung over the question
FACTS = Path(known.__file__).with_name("engines.json")
SECONDS = 240  # for one question; the first one starts the engine


class Asked(NamedTuple):
    """One question to one engine: USED, NOT_USED, CANNOT_ASK or LOST, and why it cannot be asked or was lost."""

    kind: str
    stored: str
    question: str
    answer: str
    reason: str = ""


class EngineError(Exception):
    """An engine's error, or the end of its process, in one line; `lost` where it was the process."""

    def __init__(self, text: str, lost: bool = False) -> None:
        self.lost = lost
        super().__init__(text)


class EngineProcess:
    """A process for one engine; use it in a with statement, which ends the process."""

    def __init__(self, engine: str, seconds: float = SECONDS) -> None:
        self._engine, self._seconds = engine, seconds
        self._pool: ProcessPoolExecutor | None = None
        self._others: set[BaseProcess] = set()  # children of this process that are none of ours

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def count(self, path: Path, kind: str, stored: str, question: str) -> int:
        """How many rows the engine finds. Raises EngineError; a lost process is started anew."""
        if self._pool is None:
            self._others = set(multiprocessing.active_children())
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        future = self._pool.submit(_count, self._engine, str(path), kind, stored, question)
        try:
            found = future.result(self._seconds)
        except TimeoutError:
            self._end()
            raise EngineError(f"no answer within {self._seconds} s", lost=True) from None
        except BrokenProcessPool:
            self._end()
            raise EngineError("its process ended", lost=True) from None
        if isinstance(found, str):
            raise EngineError(found)
        return found

    def _end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in set(multiprocessing.active_children()) - self._others:
                with contextlib.suppress(OSError):
                    process.kill()
            pool.shutdown()


def _count(engine: str, path: str, kind: str, stored: str, question: str) -> int | str:
    """In the engine's process: rows, or the engine's error in one line."""
    try:
        values, _ = question_values(kind, question)
        return COUNTS[engine](path, COLUMNS[stored], question, values)
    except BaseException as error:  # of any kind: Rust's panics are no Exception
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]


def answers_of(engine: str, kinds: Sequence[str]) -> list[Asked]:
    """All questions over some kinds. A question that ended the process is not repeated over the same column."""
    answers = []
    with tempfile.TemporaryDirectory() as folder, EngineProcess(engine) as process:
        for kind in kinds:
            pair = write_pair(Path(folder), kind)
            for stored in STORED:
                lost = ""
                for question in questions_of(kind, stored):
                    answer, reason = (LOST, lost) if lost else _answer(process, pair, (kind, stored, question))
                    lost = reason if answer == LOST else ""
                    answers.append(Asked(kind, stored, question, answer, reason))
    return answers


def _answer(process: EngineProcess, pair: tuple[Path, Path], about: tuple[str, str, str]) -> tuple[str, str]:
    _, wanted = question_values(about[0], about[2])
    found = []
    for path in pair:
        try:
            found.append(process.count(path, *about))
        except EngineError as error:
            return LOST if error.lost else CANNOT_ASK, str(error)
        if found[0] != wanted:
            return CANNOT_ASK, f"it finds {found[0]} rows, where {wanted} match"
    if found[1] not in (0, wanted):
        return CANNOT_ASK, f"with a filter that denies all values it finds {found[1]} of {wanted} rows"
    return (USED if found[1] == 0 else NOT_USED), ""


def as_text(all_facts: Sequence[EngineFacts]) -> str:
    """The text of engines.json: a line for each kind of an engine; then hazards, and who finds rows by right bounds."""
    entries = []
    for facts in all_facts:
        plain = {name: getattr(facts, name) for name in ("name", "title", "version", "how", "when", "note")}
        head = json.dumps(plain, ensure_ascii=False)[:-1]
        rows = [f"  {json.dumps(k)}: {json.dumps(facts.answers[k])}" for k in KINDS if k in facts.answers]
        entries.append(head + ', "answers": {\n' + ",\n".join(rows) + "\n}}")
    dangers = [json.dumps(asdict(hazard), ensure_ascii=False) for hazard in known.hazards()]
    parts = {"engines": entries, "hazards": dangers}
    for about in (known.BESIDE_NAN, known.SOME_GROUPS):
        parts[about] = [json.dumps(one, ensure_ascii=False) for one in known.by_bounds(about)]
    return "{" + ",\n".join(f'"{name}": [\n' + ",\n".join(lines) + "\n]" for name, lines in parts.items()) + "}\n"


def main() -> None:
    installed = {name: version for name, engine in ENGINES.items() if (version := version_of(engine)) is not None}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", dest="engines", action="append", choices=list(installed))
    entries = {facts.name: facts for facts in known_engines()}
    for name in parser.parse_args().engines or installed:
        print(ENGINES[name].title, installed[name], flush=True)
        answers: dict[str, dict[str, dict[str, str]]] = {}
        reasons: dict[str, list[str]] = {}
        for asked in answers_of(name, KINDS):
            answers.setdefault(asked.kind, {}).setdefault(asked.stored, {})[asked.question] = asked.answer
            if asked.reason:
                reasons.setdefault(asked.reason, []).append(asked.kind)
        for reason, kinds in reasons.items():
            print(f"  {', '.join(dict.fromkeys(kinds))}: {reason}")
        when = dt.datetime.now(dt.UTC).strftime("%Y-%m")
        note = entries[name].note if name in entries else ""
        entries[name] = EngineFacts(name, ENGINES[name].title, installed[name], known.MEASURED, when, note, answers)
    FACTS.write_text(as_text(list(entries.values())))


if __name__ == "__main__":
    main()
