"""The part of a page that tells which engine uses filters on this data set's columns, and on which types."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from parquet_bloom.facts.kinds import DICTIONARY, kind_of, stored_as
from parquet_bloom.facts.known import NOT_USED, SOURCES, USED, facts_of
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.report.engines import table_rows
from parquet_bloom.report.page.gather import Content
from parquet_bloom.report.page.markup import Cell, Child, element, name, table
from parquet_bloom.report.page.sections import paragraph, section
from parquet_bloom.worth.engines import EngineInfo

_WORDS = {USED: "yes", NOT_USED: "no", DICTIONARY: "not with a dictionary"}


def engine_table(content: Content) -> Element:
    """This data set's columns against engines, then all types."""
    measured = [one for one in content.engines.engines if one.how != SOURCES]
    titles = [f"{one.title} {one.version}" for one in measured]
    first = {column.column: not column.advised for column in content.advice.columns}
    leaves = sorted(content.leaves, key=lambda leaf: first.get(leaf.name, True))
    rows = [_row(leaf, measured) for leaf in leaves]
    parts: list[Child] = [
        paragraph("Whether an engine of this version uses a filter on the column, for =. ? is not known."),
        table("Columns of the largest file", ("column", "type", *titles), rows, len(rows)),
    ]
    kinds = table_rows(content.engines, measured)
    behind = table("All types", ("type", *titles), kinds)
    parts.append(element("details", element("summary", "All types"), behind))
    sources = [f"{one.title} {one.note}" for one in content.engines.engines if one.how == SOURCES]
    items = element("ul", *(element("li", line) for line in sources))
    parts.append(element("details", element("summary", "What sources say of other engines"), items))
    return section("engines", "Which engine uses them", *parts)


def _row(leaf: Leaf, measured: list[EngineInfo]) -> list[Cell]:
    kind = kind_of(leaf)
    cells: list[Cell] = [name(leaf.name), leaf.type_name]
    for one in measured:
        facts = facts_of(one.name)
        answer = None if kind is None or facts is None else facts.uses(kind, stored_as(leaf))
        cells.append("-" if kind is None else _WORDS.get(answer or "", "?"))
    return cells
