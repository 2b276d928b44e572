"""A page as one HTML document: nothing in it is loaded from elsewhere, and it runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any
from xml.etree.ElementTree import Element

from parquet_bloom._version import __version__
from parquet_bloom.report.page import sections
from parquet_bloom.report.page.engines import engine_table
from parquet_bloom.report.page.funnel import steps_of
from parquet_bloom.report.page.gather import Content
from parquet_bloom.report.page.heat import outliers_of, points_of
from parquet_bloom.report.page.layout import KINDS
from parquet_bloom.report.page.markup import MOST_ROWS, element, html_text, json_in_script, name, raw
from parquet_bloom.report.tables import plural, size
from parquet_bloom.search.check import totals
from parquet_bloom.storage.results import plain

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
        "head", element("meta", charset="utf-8"), csp,
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title), raw("style", style),
    )  # fmt: skip
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
        sections.first(content), sections.cost(content), sections.predicate(content), sections.drawn_file(content),
        sections.filters(content), engine_table(content),
    ]  # fmt: skip
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
        element("a", "To the content", href="#content", class_="skip"), header,
        element("nav", element("ul", *links), aria_label="Contents"), element("main", *there, id="content"), ending,
        element("div", id="tip", aria_hidden="true"),
    ]  # fmt: skip


def data_of(content: Content) -> dict[str, Any]:
    """What the page shows, for programs: the JSON in the element `data`. Lists hold 200 entries at most."""
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
