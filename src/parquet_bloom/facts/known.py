"""What is known of engines, kept as data: engines.json beside this module, one entry an engine.

`docs/generate --measure` writes the entries of engines that are installed where it runs, as `parquet-bloom engines
--test` finds them; all others stay as they are. An entry speaks of one version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from parquet_bloom.facts.kinds import CONTAINS, DICTIONARY, ELEMENT, EQUAL, KINDS, PLAIN

USED, NOT_USED, CANNOT_ASK, UNKNOWN = "used", "not used", "cannot ask", "unknown"
MEASURED, SOURCES = "measured", "sources"
OURS = "parquet_bloom"


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


@cache
def known() -> tuple[EngineFacts, ...]:
    """All that is known, a kind of engine after the other: those that can be measured here, then those of sources."""
    text = files("parquet_bloom.facts").joinpath("engines.json").read_text("utf-8")
    return tuple(EngineFacts(**entry) for entry in json.loads(text)["engines"])


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
    """The text of engines.json: a line for each kind of an engine."""
    entries = []
    for facts in all_facts:
        plain: dict[str, Any] = {
            name: getattr(facts, name) for name in ("name", "title", "version", "how", "when", "note")
        }
        head = json.dumps(plain, ensure_ascii=False)[:-1]
        rows = [f"  {json.dumps(k)}: {json.dumps(facts.answers[k])}" for k in KINDS if k in facts.answers]
        entries.append(head + ', "answers": {\n' + ",\n".join(rows) + "\n}}")
    return '{"engines": [\n' + ",\n".join(entries) + "\n]}\n"
