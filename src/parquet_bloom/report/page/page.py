"""`write_report`: a page as one HTML document that loads nothing from elsewhere and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from operator import itemgetter
from typing import Any, Unpack
from xml.etree.ElementTree import Element

from parquet_bloom._version import __version__
from parquet_bloom.facts.known import DICTIONARY, NOT_USED, SOURCES, USED, facts_of, kind_of, stored_as
from parquet_bloom.format.schema import Leaf
from parquet_bloom.options import PathLike, ReadOptions, refuse_unknown
from parquet_bloom.output.atomic_file import new_output, new_target
from parquet_bloom.report.advice import table_rows
from parquet_bloom.report.page import sections
from parquet_bloom.report.page.content import KINDS, Content, gather, outliers_of, points_of, steps_of
from parquet_bloom.report.page.markup import (
    MOST_ROWS,
    Child,
    element,
    html_text,
    json_in_script,
    name,
    raw,
    table,
)
from parquet_bloom.report.page.sections import paragraph, section
from parquet_bloom.report.text import Column, Table, plural, size
from parquet_bloom.search.check import totals
from parquet_bloom.source.results import Result, plain
from parquet_bloom.source.source import source_of
from parquet_bloom.storage.paths import FailedFile
from parquet_bloom.storage.workers import ProgressCallback

# --- the report on a page -------------------------------------------------------------------------
#
# What `write_report` wrote, as a value.


@dataclass(slots=True, repr=False)
class ReportPage(Result):
    """A page that was written.

    path, bytes  of the page
    files        that it is about; `drawn`: the one of them that its pictures show, the largest
    advised      columns that should have filters
    skipped      of the predicate's `row_groups`, how many are skipped; None without a predicate
    """

    path: str
    bytes: int
    files: int
    drawn: str
    advised: list[str] = field(default_factory=list)
    row_groups: int | None = None
    skipped: int | None = None
    failed: list[FailedFile] = field(default_factory=list)


# --- which engine uses filters --------------------------------------------------------------------
#
# The part of a page that tells which engine uses filters on this data set's columns, and on which types.

_WORDS = {USED: "yes", NOT_USED: "no", DICTIONARY: "not with a dictionary"}


def engine_table(content: Content) -> Element:
    """This data set's columns against engines, then all types."""
    measured = [one for one in content.engines.engines if one.how != SOURCES]
    titles = [f"{one.title} {one.version}" for one in measured]
    first = {column.column: not column.advised for column in content.advice.columns}
    leaves = sorted(content.leaves, key=lambda leaf: first.get(leaf.name, True))
    cells = [Column(title, partial(_answer, engine=one.name)) for title, one in zip(titles, measured, strict=True)]
    of_column = Column("column", lambda leaf: name(leaf.name)), Column("type", lambda leaf: leaf.type_name)
    of_type = (Column(title, itemgetter(at)) for at, title in enumerate(("type", *titles)))
    parts: list[Child] = [
        paragraph("Whether an engine of this version uses a filter on the column, for =. ? is not known."),
        table(Table.of(leaves, *of_column, *cells, heading="Columns of the largest file")),
    ]
    behind = table(Table.of(table_rows(content.engines, measured), *of_type, heading="All types"))
    parts.append(element("details", element("summary", "All types"), behind))
    sources = [f"{one.title} {one.note}" for one in content.engines.engines if one.how == SOURCES]
    items = element("ul", *(element("li", line) for line in sources))
    parts.append(element("details", element("summary", "What sources say of other engines"), items))
    return section("engines", "Which engine uses them", *parts)


def _answer(leaf: Leaf, engine: str) -> str:
    kind, facts = kind_of(leaf), facts_of(engine)
    if kind is None:
        return "-"
    return _WORDS.get((facts.uses(kind, stored_as(leaf)) if facts is not None else None) or "", "?")


# --- page -----------------------------------------------------------------------------------------

VERSION = 1  # of the data inside


def page_of(content: Content) -> str:
    """The whole page as text."""
    style, script = (files(__package__).joinpath(part).read_text("utf-8") for part in ("style.css", "script.js"))
    title = _title(content)
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    csp = element("meta", content=policy)
    csp.set("http-equiv", "Content-Security-Policy")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        csp,
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        raw("style", style),
    )
    data = raw("script", json_in_script(data_of(content)), type="application/json", id="data")
    body = element("body", *_body(content, title), data, raw("script", script))
    return html_text(element("html", head, body, lang="en"))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _title(content: Content) -> str:
    names = content.names
    return "Filters of " + name(names[0]) + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


def _body(content: Content, title: str) -> list[Element]:
    parts = [
        sections.first(content),
        sections.cost(content),
        sections.predicate(content),
        sections.drawn_file(content),
        sections.filters(content),
        engine_table(content),
    ]
    there = [part for part in parts if part is not None]
    links = [element("li", element("a", part[0].text, href=f"#{part.get('id')}")) for part in there]
    advice = content.advice
    shape = (
        f"{plural(advice.files, 'file')}, {plural(advice.row_groups, 'row group')}, {plural(advice.rows, 'row')}, "
        f"{size(advice.bytes)}"
    )
    if advice.footers_read < advice.files:
        shape += f", by the footers of {advice.footers_read:,}"
    header = element("header", element("h1", title), sections.paragraph(shape))
    ending = element(
        "footer", sections.paragraph(f"Made by parquet-bloom {__version__}. The data is in this page too.")
    )
    return [
        element("a", "To the content", href="#content", class_="skip"),
        header,
        element("nav", element("ul", *links), aria_label="Contents"),
        element("main", *there, id="content"),
        ending,
        element("div", id="tip", aria_hidden="true"),
    ]


def data_of(content: Content) -> dict[str, Any]:
    """The content of the page for programs: the JSON in the element `data`. Lists have 200 entries at most."""
    advice, file, layout = plain(content.advice), plain(content.file), content.layout
    for key in ("columns", "flags", "failed"):
        advice[key] = advice[key][:MOST_ROWS]
    file["filters"] = plain(outliers_of(content.file)[:MOST_ROWS])
    points, without = points_of(content.file)
    by_column = zip(layout.names, layout.chunk_bytes.tolist(), layout.filter_bytes.tolist(), strict=True)
    columns = [dict(zip(("column", "chunk_bytes", "filter_bytes"), row, strict=True)) for row in by_column]
    found: dict[str, Any] = {
        "version": VERSION,
        "made_by": f"parquet-bloom {__version__}",
        "sources": content.names[:MOST_ROWS],
        "advice": advice,
        "predicate": None,
        "file": file,
        "bytes_by_kind": {kind: layout.of_kind(at) for at, kind in enumerate(KINDS)},
        "bytes_by_column": sorted(columns, key=lambda one: -one["chunk_bytes"] - one["filter_bytes"])[:MOST_ROWS],
        "heat_map": plain(content.heat[:20]),
        "size_and_rate": {"points": plain(points), "without_a_place": without},
        "engines": plain(content.engines.engines),
    }
    if content.verdicts is not None:
        found["predicate"] = {
            "where": content.where,
            "steps": plain(steps_of(content.verdicts)),
            "totals": totals(content.verdicts),
            "matching": content.matching,
            "unused": plain(content.verdicts.unused[:MOST_ROWS]),
        }
    return found


# --- write_report ---------------------------------------------------------------------------------
#
# `write_report`: a page about files and their filters, as a new file.


def write_report(
    source: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    where: Any = None,
    count_rows: bool = False,
    overwrite: bool = False,
    filesystem: Any = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[ReadOptions],
) -> ReportPage:
    """Write one HTML page about a data set and its filters: what to do, what it gains and costs, and pictures.

    source      a file, a folder, a glob, a URI, or a list of them; or one table, as `advise` takes it
    output      a local file; it takes its place when all of it is written
    where       a predicate as `check` takes it: the page shows what partitions, bounds and filters leave of it
    count_rows  read the row groups that are left, and count the rows for which it is TRUE
    overwrite   replace an output that exists
    filesystem  any pyarrow or fsspec file system; source then names files on it
    progress    is called with a Progress for each part of the work
    options     see ReadOptions: raw_files; of a table catalog_properties, allow_roots

    The page needs no network and loads nothing, and stays below 2 MB whatever the files hold. It shows the filters of
    the largest file, all of which are read; the rest is from footers and samples, as `advise` and `check` take them.
    The data behind its pictures is in it as JSON, in the script element `data`.

    Raises StorageError if output exists and overwrite is not given, RequestError if it is one of the files; else as
    `advise` and `check` do.
    """
    refuse_unknown("write_report", options, ReadOptions)
    path = new_target(output, overwrite)
    content = gather(source_of(source, filesystem, options), path, where, count_rows, progress)
    text = page_of(content).encode("utf-8")
    with new_output(path, overwrite) as out:
        out.write(text)
    return _report_page(path, len(text), content)


def _report_page(path: str, size: int, content: Content) -> ReportPage:
    advice, verdicts = content.advice, content.verdicts
    page = ReportPage(path, size, advice.files, content.file.path, advice.advised)
    failed = list(advice.failed)
    if verdicts is not None:
        page.row_groups, page.skipped = len(verdicts), verdicts.skipped
        failed += verdicts.failed
    page.failed = list({one.path: one for one in failed}.values())
    return page
