"""HTML elements, tables and figures. Names come from files, so every text goes through here and ElementTree escapes it.

No plotting library: those that can be embedded (Plotly, Vega-Lite) weigh more than a page may, or draw on a canvas
(uPlot), which neither a keyboard nor a screen reader can walk through. These five pictures are rectangles and a curve.
"""

from __future__ import annotations

import json
from typing import Any
from xml.etree.ElementTree import Element, tostring

from parquet_bloom.report.text import Cell, Table, json_text, visible
from parquet_bloom.storage.display import without_secret

WIDE = 7  # columns of a table whose rows become blocks on a narrow screen
MOST_ROWS = 200  # of a table; a page stays small whatever the files hold
_MOST_TEXT = 2000  # characters of one text, and of a name
_MOST_NAME = 80
_MOST_JSON = 700_000

Child = Element | str | None


def display_text(text: str, most: int = _MOST_TEXT) -> str:
    """A text of a file or a person, safe for display: no secret, no invisible character, cut in its middle."""
    text = visible(without_secret(text))
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\u2026{text[-(most // 2) :]}"


def name(text: str) -> str:
    """A name that stands in a table or a picture."""
    return display_text(text, _MOST_NAME)


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """An element with texts and elements in it.

    attributes  `class_` is class, `data_tip` is data-tip; None is left out
    """
    made = Element(tag)
    for key, value in attributes.items():
        if value is not None:
            text = f"{value:.2f}" if isinstance(value, float) else str(value)
            made.set(key.rstrip("_").replace("_", "-"), display_text(text))
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif child is not None and last is None:
            made.text = (made.text or "") + display_text(child)
        elif child is not None and last is not None:
            last.tail = (last.tail or "") + display_text(child)
    return made


def raw(tag: str, text: str, **attributes: object) -> Element:
    """A script or a style sheet: its text is ours, or json_in_script's, and stays as it is."""
    made = element(tag, **attributes)
    made.text = text
    return made


def html_text(root: Element) -> str:
    """The document. Scripts and style sheets are not escaped, all else is."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def json_in_script(value: Any) -> str:
    """A JSON document that cannot end the script element that it stands in, nor begin a comment there.

    Its texts are cut where they would make it larger than a page may be: no more than they have to be.
    """
    for most in (_MOST_TEXT, 400, _MOST_NAME):
        text = json_text(_all_shown(value, most))
        text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        if len(text) < _MOST_JSON:
            break
    return text


def _all_shown(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return display_text(value, most)
    if isinstance(value, dict):
        return {display_text(key): _all_shown(one, most) for key, one in value.items()}
    return [_all_shown(one, most) for one in value] if isinstance(value, list | tuple) else value


def table(drawn: Table) -> Element:
    """A table that scrolls by itself and whose columns can be sorted; its first column heads the rows.

    200 rows are shown at most, and the caption says so.
    """
    kept, headings = drawn.rows[:MOST_ROWS], [column.heading for column in drawn.columns]
    caption = f"{drawn.heading} ({len(kept):,} of {drawn.total:,})" if drawn.total > len(kept) else drawn.heading
    numeric = [not isinstance(cell, str) for cell in kept[0]] if kept else [False] * len(headings)
    classes = ["number" if one else None for one in numeric]
    wide = len(headings) >= WIDE
    head = element(
        "tr", *(element("th", text, scope="col", class_=one) for text, one in zip(headings, classes, strict=True))
    )
    body = [
        element("tr", *(_cell(cell, at == 0, headings[at] if wide and at else None) for at, cell in enumerate(row)))
        for row in kept
    ]
    whole = element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", *body),
        class_="sortable wide" if wide else "sortable",
    )
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(cell: Cell, first: bool, heading: str | None) -> Element:
    """heading  that the cell has before it where its row is a block"""
    text, key = (cell, None) if isinstance(cell, str) else cell
    tag, scope = ("th", "row") if first else ("td", None)
    value = None if key is None else json.dumps(float(key))
    return element(tag, text, scope=scope, class_=None if key is None else "number", data_v=value, data_h=heading)


def figure(picture: Element, caption: str, *behind: Element, controls: Element | None = None) -> Element:
    """A picture with its caption, the line that describes the current mark, and the tables behind it."""
    tables = element("details", element("summary", "The table behind this picture"), *behind) if behind else None
    return element(
        "figure",
        controls,
        element("div", picture, class_="scroll"),
        element("output", class_="tip"),
        element("figcaption", caption),
        tables,
    )


def svg(height: int, label: str, *children: Child, **attributes: object) -> Element:
    """A picture, as wide as there is room; the script makes each element with data-tip a mark to hover over or walk to.

    From left to right positions are shares of the width, from top to bottom they are pixels: on a telephone bars are
    shorter, and texts as large as anywhere.
    """
    return element(
        "svg",
        element("title", label),
        *children,
        width="100%",
        height=height,
        class_="picture",
        role="img",
        aria_label=label,
        **attributes,
    )


def percent(share: float) -> str:
    """A share of a picture's width."""
    return f"{100 * share:.3f}%"


def rect(x: float, y: float, width: float, height: float, class_: str, tip: str | None = None) -> Element:
    """A rectangle, x and width as shares of the picture's width; with a tip it is a mark."""
    return element(
        "rect", x=percent(x), y=y, width=percent(max(0.0, width)), height=height, class_=class_, data_tip=tip
    )


def label(x: float, y: float, text: str, anchor: str = "start") -> Element:
    """A text in a picture, x as a share of its width."""
    return element("text", text, x=percent(x), y=y, text_anchor=anchor)
