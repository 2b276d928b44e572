"""The parts of a page, each a heading with what stands below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from parquet_bloom.advice.advise import ColumnAdvice
from parquet_bloom.edit.sample import Interval
from parquet_bloom.report.advice import (
    ABSENT,
    BYTES,
    PRESENT,
    RATE,
    SECONDS,
    VAIN,
    between,
    bytes_between,
    filters_today,
    in_seconds,
)
from parquet_bloom.report.page import pictures
from parquet_bloom.report.page.content import COLUMNS, KINDS, LEVELS, Content, fill_of, outliers_of, points_of, steps_of
from parquet_bloom.report.page.markup import Child, display_text, element, figure, name, table
from parquet_bloom.report.text import Cell, Column, Table, count, failure_lines, plural, share, size

_LINES = 50  # of flags, commands and failures
_MOST_COMMAND = 1500  # characters: a longer one would be cut, and a cut one does something else


def section(identity: str, heading: str, *children: Child) -> Element:
    """A part of the page that the list of contents leads to."""
    title = element("h2", heading, id=f"{identity}-heading")
    return element("section", title, *children, id=identity, aria_labelledby=f"{identity}-heading")


def paragraph(text: str, class_: str | None = None) -> Element:
    """A paragraph."""
    return element("p", text, class_=class_)


def _items(lines: Sequence[str]) -> Element | None:
    """A list; None of nothing."""
    more = [f"... and {len(lines) - _LINES:,} more"] if len(lines) > _LINES else []
    return element("ul", *(element("li", line) for line in [*lines[:_LINES], *more])) if lines else None


# --- what to do first -----------------------------------------------------------------------------


def first(content: Content) -> Element:
    """Columns that should have filters, commands, what is wrong, which files could not be read."""
    advice = content.advice
    advised = advice.advised
    some = ", ".join(map(name, advised[:8])) + (f" and {len(advised) - 8:,} more" if len(advised) > 8 else "")
    says = (
        f"{plural(len(advised), 'column')} should have filters: {some}."
        if advised
        else ("No column needs a filter that it lacks.")
    )
    parts: list[Child] = [paragraph(says, "lead")]
    if today := filters_today([one for one in advice.columns if one.advised]):
        parts.append(paragraph(f"{today[0].upper()}{today[1:]}."))
    wrong = [one for one in content.file.filters if one.problems]
    if wrong:
        verb = "contradicts itself" if len(wrong) == 1 else "contradict themselves"
        parts.append(paragraph(f"{plural(len(wrong), 'filter')} of {name(content.file.path)} {verb}.", "wrong"))
    parts += [
        element("pre", element("code", *_words(_command(command))), tabindex="0")
        for command in advice.commands[:_LINES]
    ]
    if advice.flags:
        parts += [element("h3", "What to check"), _items(advice.flags)]
    failed = [*advice.failed, *([] if content.verdicts is None else content.verdicts.failed)]
    lines = list(dict.fromkeys(failure_lines(failed)))
    if lines:
        parts += [element("h3", "Files that could not be read"), _items(lines)]
    parts.append(_gains(advice.columns))
    others = [column for column in advice.columns if not column.advised]
    if others:
        because = Column("type", lambda one: one.type), Column("no filter, as", lambda one: one.reason)
        behind = table(Table.of(others, _NAME, *because, heading="Columns without advice"))
        parts.append(element("details", element("summary", "Columns that should have none, and why"), behind))
    return section("first", "What to do first", *parts)


def _command(command: str) -> str:
    if len(display_text(command)) > _MOST_COMMAND:
        return "the command is too long for this page; parquet-bloom advise prints it"
    return command


def _words(command: str) -> list[Child]:
    """Words that lines break between, and not inside at a hyphen."""
    children: list[Child] = []
    for word in command.split(" "):
        children += [" ", element("span", word, class_="word")]
    return children[1:]


_NAME = Column("column", lambda one: name(one.column))
_GAINS = (
    _NAME,
    RATE._replace(heading="rate"),
    BYTES,
    SECONDS._replace(heading="time to add"),
    ABSENT._replace(heading="row groups an absent key is spared"),
    PRESENT._replace(heading="a present key"),
    Column("requests an absent key is spared", lambda one: _number(one.absent.requests), "number"),
    VAIN._replace(heading="read in vain"),
    Column("used by", lambda one: ", ".join(["this package", *one.engines])),
)


def _gains(columns: Iterable[ColumnAdvice]) -> Element | None:
    advised = [column for column in columns if column.advised]
    heading = "What filters gain a lookup, beyond what bounds spare it"
    return table(Table.of(advised, *_GAINS, heading=heading)) if advised else None


def _number(one: Interval) -> Cell:
    return between(one, lambda end: f"{end:,.0f}"), one.likely


# --- cost -----------------------------------------------------------------------------------------


def cost(content: Content) -> Element | None:
    """The bytes of today's filters, and of the advised ones; None where there are neither."""
    advised = [column for column in content.advice.columns if column.advised]
    taken = Interval(0.0, 0.0, 0.0)
    for column in advised:
        assert column.filter_bytes is not None
        taken = taken.plus(column.filter_bytes)
    today = content.file.filter_bytes
    lines = []
    if today:
        of_file = f"{size(today)}, {share(today / max(1, content.file.size))} of it"
        lines.append(("Filters in the largest file today", of_file))
    if content.advice.seconds is not None:
        lines += [
            ("Filters that are advised", bytes_between(taken)),
            ("Of all column chunks", share(taken.likely / max(1, content.advice.bytes))),
            ("Time to add them here", in_seconds(content.advice.seconds)),
        ]
    if not lines:
        return None
    asked = f"about {size(48 * content.advice.row_groups)} (48 of each that is asked)"
    lines.append(("Bytes that one lookup reads of filters", asked))
    pairs = [element("div", element("dt", term), element("dd", text)) for term, text in lines]
    return section("cost", "What it costs", element("dl", *pairs, class_="box"))


# --- the predicate --------------------------------------------------------------------------------


def predicate(content: Content) -> Element | None:
    """The funnel of a predicate; None without one."""
    if content.verdicts is None or content.where is None:
        return None
    steps = steps_of(content.verdicts)
    rows: list[Any] = list(steps)
    if content.matching is not None:
        rows.append(_Matching("rows that match", content.matching))
    behind = table(
        Table.of(
            rows,
            Column("step", lambda s: s.name),
            _figure_of("files"),
            _figure_of("row groups", "row_groups"),
            _figure_of("rows"),
            _figure_of("bytes", text=size),
            heading="What is left",
        )
    )
    last = steps[-1]
    are = "is" if last.row_groups == 1 else "are"
    says = (
        f"{plural(last.row_groups, 'row group')} of {steps[0].row_groups:,} {are} left to be read, with "
        f"{plural(last.rows, 'row')} and {size(last.bytes)}."
    )
    if content.matching is not None:
        says += f" {plural(content.matching, 'row')} of these {'matches' if content.matching == 1 else 'match'}."
    unused = [f"{part} is not used to skip: {reason}" for part, reason in content.verdicts.unused]
    return section(
        "predicate",
        "Where a predicate leads",
        element("pre", element("code", content.where), tabindex="0"),
        paragraph(says),
        _items(unused),
        figure(pictures.funnel(steps), "Row groups, step by step.", behind),
    )


class _Matching(NamedTuple):
    """The last step: rows alone are counted."""

    name: str
    rows: int


def _comma(number: float) -> str:
    return f"{number:,}"


def _figure_of(heading: str, field: str = "", text: Callable[[Any], str] = _comma) -> Column:
    """A column of numbers, a field of the row's object; "-" where it has none."""

    def cell(one: Any) -> Cell:
        value = getattr(one, field or heading, None)
        return ("-", 0.0) if value is None else (text(value), value)

    return Column(heading, cell, "number")


# --- the file -------------------------------------------------------------------------------------


def drawn_file(content: Content) -> Element:
    """The largest file to scale: all of it, what lies behind its column chunks, its columns."""
    layout, file = content.layout, content.file
    kinds = [(text, layout.of_kind(at)) for at, text in enumerate(KINDS)]
    sizes = zip(layout.names, layout.chunk_bytes.tolist(), layout.filter_bytes.tolist(), strict=True)
    behind = table(
        Table.of(
            kinds,
            Column("kind", itemgetter(0)),
            Column("bytes", lambda one: (f"{one[1]:,}", one[1]), "number"),
            Column("share", lambda one: (share(one[1] / max(1, layout.size)), one[1]), "number"),
            heading="Bytes by kind",
        )
    )
    by_column = table(
        Table.of(
            sorted(sizes, key=lambda row: -row[1] - row[2]),
            Column("column", lambda one: name(one[0])),
            Column("column chunks", lambda one: (f"{one[1]:,}", one[1]), "number"),
            Column("filters", lambda one: (f"{one[2]:,}", one[2]), "number"),
            heading="Bytes by column",
        )
    )
    says = (
        f"{name(file.path)}: {size(file.size)}, {plural(file.row_groups, 'row group')}, {plural(file.rows, 'row')}, "
        f"{plural(file.columns, 'column')}, by {name(file.created_by or 'an unnamed writer')}."
    )
    if content.advice.files > 1:
        says += f" It is the largest of {plural(content.looked_at, 'file')} whose size was read."
    if not content.heat:
        says += " It has no filters." if content.advice.files == 1 else " The largest file has no filters."
    there = [(f"kind{at}", text) for at, text in enumerate(KINDS) if layout.of_kind(at)]
    parts: list[Child] = [paragraph(says), _legend(there)]
    parts.append(figure(pictures.strip(layout, 0, layout.size, "The file's bytes"), "All bytes, to scale.", behind))
    if 0 < layout.tail < layout.size and 2 * layout.tail > layout.size:
        tail = pictures.strip(layout, layout.tail, layout.size, "The bytes behind the column chunks")
        parts.append(figure(tail, "What lies behind the column chunks, enlarged."))
    parts.append(figure(pictures.bars(layout), "Bytes by column, the largest first.", by_column))
    return section("file", "The file, to scale", *parts)


def _legend(entries: Sequence[tuple[str, str]]) -> Element:
    made = []
    for class_, text in entries:
        swatch = element("svg", element("rect", width=14, height=14, class_=class_), width=14, height=14)
        swatch.set("aria-hidden", "true")
        made.append(element("li", swatch, f" {text}"))
    return element("ul", *made, class_="legend")


# --- its filters ----------------------------------------------------------------------------------


def filters(content: Content) -> Element | None:
    """The filters of the largest file by column and row group, and between size and rate; None where it has none."""
    if not content.heat:
        return None
    map_ = figure(
        pictures.heat_map(content.heat, content.file.row_groups),
        _heat_caption(content),
        _column_table(content),
        _outlier_table(content),
        controls=_figures(),
    )
    points, without = points_of(content.file)
    order = [one.column for one in content.heat]
    behind = table(
        Table.of(
            points,
            _NAME,
            _figure_of("bits for each distinct value", "bits", "{:.1f}".format),
            _figure_of("rate", "fpp", share),
            _figure_of("filters"),
            heading="Where filters lie",
        )
    )
    caption = "Size against rate: the curve is what split block filters give; each point is filters of this file; "
    caption += "what lies beyond the edges is drawn on them."
    if without:
        caption += f" {plural(without, 'filter')} have no place here: empty, full, or of another kind."
    legend = _legend([(f"point column{min(7, at)}", name(text)) for at, text in enumerate(order[:7])])
    return section(
        "filters",
        "Its filters",
        map_,
        element("h3", "Size against rate"),
        legend,
        figure(pictures.curve(points, order), caption, behind),
    )


def _figures() -> Element:
    choices: list[Child] = [element("legend", "Shades show")]
    texts = {"fpp": "false positive rate (the worst)", "fill": "bits that are set", "bytes": "bytes of a filter"}
    for figure_, text in texts.items():
        box = element("input", type="radio", name="figure", value=figure_)
        if figure_ == "fpp":
            box.set("checked", "")
        choices.append(element("label", box, f" {text}"))
    return element("fieldset", *choices, _scale(), class_="choice")


def _scale() -> Element:
    scales = []
    for figure_, edges in LEVELS.items():
        words = [_edge(figure_, edge) for edge in edges]
        texts = [*(f"< {word}" for word in words), f"{words[-1]} or more"]
        made = _legend([(f"level{at + 1}", text) for at, text in enumerate(texts)])
        made.set("data-of", figure_)
        scales.append(made)
    return element("div", *scales, class_="scales")


def _edge(figure_: str, edge: float) -> str:
    if figure_ == "bytes":
        return size(round(edge))
    return share(edge) if figure_ == "fill" else f"{edge:.2g}"


def _heat_caption(content: Content) -> str:
    more = len(content.heat) - COLUMNS
    bins = len(content.heat[0].cells)
    caption = "A row a column, a cell a row group."
    if bins < content.file.row_groups:
        caption = f"A row a column, a cell about {content.file.row_groups / bins:,.0f} row groups."
    return caption + (f" {plural(more, 'column')} more in the table." if more > 0 else "")


def _column_table(content: Content) -> Element:
    return table(
        Table.of(
            content.heat,
            _NAME,
            _figure_of("filters"),
            _figure_of("bytes", text=size),
            Column("median rate", lambda one: _rate(one.fpp_median), "number"),
            Column("worst rate", lambda one: _rate(one.fpp_worst), "number"),
            Column("bits set", lambda one: (share(one.fill), one.fill or 0), "number"),
            _figure_of("problems"),
            heading="Filters by column",
        )
    )


def _rate(fpp: float | None) -> Cell:
    return share(fpp or 0), fpp or 0


def _outlier_table(content: Content) -> Element:
    return table(
        Table.of(
            outliers_of(content.file),
            _NAME,
            _figure_of("row group", "row_group"),
            _figure_of("rate", "fpp", share),
            Column("bits set", lambda one: (share(fill_of(one)), fill_of(one)), "number"),
            _figure_of("bytes", "num_bytes"),
            Column("distinct values", lambda one: (count(one.estimated_ndv), min(one.estimated_ndv, 1e300)), "number"),
            Column("what is odd", lambda one: "; ".join([*one.problems, *one.notes]) or "-"),
            heading="Filters, those with problems and the highest rates first",
        )
    )
