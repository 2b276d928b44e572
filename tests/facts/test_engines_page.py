"""The page docs/engines.md says the same by engine, in words, as by type."""

from __future__ import annotations

import re
from pathlib import Path

from parquet_bloom.facts.known import known_engines
from parquet_bloom.report import advice

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "engines.md").read_text()
# Which rows of the table by type a word of the other one stands for; a detail in brackets is a part of the row's name.
WORDS = {
    "signed integers": r"int(\d+)",
    "unsigned integers": r"uint(\d+)",
    "floats": r"float16|float|double",
    "texts": "string",
    "bytes": "binary|fixed",
    "UUIDs": "uuid",
    "dates": "date",
    "times": r"time\[.*\]",
    "timestamps without a zone": r"timestamp\[..\]",
    "timestamps in UTC": r"timestamp\[.., UTC\]",
    "decimals": "decimal as .*",
    "fields of structs": "field of a struct",
    "elements of lists": "element of a list",
}
DETAILS = {
    "16 bits": {"float16", "int16", "uint16"}, "32 bits": {"float", "int32", "uint32"},
    "64 bits": {"double", "int64", "uint64"}, "8 bits": {"int8", "uint8"},
    "of any length": {"binary"}, "of a fixed length": {"fixed"},
    **{f"as {stored}": {f"decimal as {stored}"} for stored in ("INT32", "INT64", "FIXED")},
    **{unit: {f"{name}[{unit}{zone}]" for name, zone in (("time", ""), ("timestamp", ""), ("timestamp", ", UTC"))}
       for unit in ("ms", "us", "ns")},
}  # fmt: skip


def rows(section: str) -> list[list[str]]:
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in [lines[0], *lines[2:]]]


def meant(cell: str, types: list[str]) -> set[str]:
    """The rows of the table by type that a cell of the table by engine speaks of."""
    found: set[str] = set()
    for name, details in re.findall(r"([^,(]+?)(?: \(([^)]*)\))?(?:, |$)", cell):
        these = {one for one in types if re.fullmatch(WORDS[name], one)}
        found |= {one for detail in details.split(", ") for one in these & DETAILS[detail]} if details else these
    return found


HEAD, *BY_TYPE = rows("By type")
BY_ENGINE = {name: (used, unused) for name, used, unused in rows("By engine")[1:]}


def test_all_engines_that_were_asked_are_in_both_tables() -> None:
    assert list(BY_ENGINE) == HEAD[1:]
    assert len(BY_ENGINE) == sum(facts.how != advice.SOURCES for facts in known_engines()) >= 10


def test_both_tables_say_the_same_of_an_engine() -> None:
    types = [row[0] for row in BY_TYPE if any(re.fullmatch(pattern, row[0]) for pattern in WORDS.values())]
    assert len(types) == 30
    for engine, (used, unused) in BY_ENGINE.items():
        said = {row[0]: row[HEAD.index(engine)] for row in BY_TYPE if row[0] in types}
        if used == "nothing":
            assert "yes" not in said.values(), engine
            assert unused == "all types of the run", engine
            continue
        assert meant(used, types) == {one for one, word in said.items() if word == "yes"}, engine
        assert meant(unused, types) == {one for one, word in said.items() if word == "no"}, engine
