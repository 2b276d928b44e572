"""The pictures of a page as SVG: a funnel, a file's bytes, its filters by row group, size against rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree.ElementTree import Element

import numpy as np

from parquet_bloom.kernels.split_block import expected_rate
from parquet_bloom.report.page.content import COLUMNS, KINDS, Cell, ColumnHeat, Layout, Point, Step
from parquet_bloom.report.page.markup import Child, element, label, name, percent, rect, svg
from parquet_bloom.report.text import plural, share, size

_STRIP, _SPANS, _CELLS = 56, 300, 240  # height of a file's strip; spans that are drawn one by one; else cells
_EDGED = 1 / 240  # share of the width from which a span has an edge
_BARS = 20


# --- a predicate's funnel -------------------------------------------------------------------------


def funnel(steps: Sequence[Step]) -> Element:
    """A bar a step, as long as the remaining share of row groups."""
    most = max(1, steps[0].row_groups)
    drawn: list[Child] = []
    for at, step in enumerate(steps):
        y, left = 46 * at, step.row_groups / most
        tip = (
            f"{step.name}: {plural(step.row_groups, 'row group')} in {plural(step.files, 'file')}, "
            f"{plural(step.rows, 'row')}, {size(step.bytes)}"
        )
        drawn += [
            label(0, y + 14, step.name),
            label(1, y + 14, share(left), "end"),
            rect(0, y + 19, 1, 20, "ground"),
            rect(0, y + 19, left, 20, f"step{min(at, 3)}", tip),
        ]
    return svg(46 * len(steps), "Row groups that are left after each kind of evidence", *drawn)


# --- a file's bytes -------------------------------------------------------------------------------


def strip(layout: Layout, low: int, high: int, what: str) -> Element:
    """A range of a file's bytes from left to right, to scale: areas are bytes."""
    here = np.flatnonzero((layout.starts < high) & (layout.ends > low))
    drawn = _spans(layout, here, low, high) if len(here) <= _SPANS else _cells(layout, low, high)
    ends = [label(0, _STRIP + 18, f"byte {low:,}"), label(1, _STRIP + 18, f"{high:,}", "end")]
    return svg(_STRIP + 24, what, rect(0, 0, 1, _STRIP, "ground"), *drawn, *ends)


def _spans(layout: Layout, here: np.ndarray[tuple[int], np.dtype[np.intp]], low: int, high: int) -> list[Child]:
    scale = 1 / max(1, high - low)
    drawn: list[Child] = []
    for at in here.tolist():
        start, end, kind = int(layout.starts[at]), int(layout.ends[at]), int(layout.kinds[at])
        group, column = int(layout.row_groups[at]), int(layout.columns[at])
        what = KINDS[kind].removesuffix("s") if group >= 0 else KINDS[kind]
        of = f" of {name(layout.names[column])}, row group {group:,}" if group >= 0 else ""
        tip = f"{what}{of}: {end - start:,} bytes at {start:,}"
        x, width = (max(start, low) - low) * scale, (min(end, high) - max(start, low)) * scale
        class_ = f"kind{kind} edge" if width > _EDGED else f"kind{kind}"
        drawn.append(rect(x, 0, width, _STRIP, class_, tip))
    return drawn


def _cells(layout: Layout, low: int, high: int) -> list[Child]:
    shares = layout.cells(low, high, _CELLS)
    width, part = 1 / _CELLS, (high - low) / _CELLS
    drawn: list[Child] = []
    for at in range(_CELLS):
        y, there = 0.0, [(kind, float(shares[kind, at])) for kind in range(len(KINDS)) if shares[kind, at] > 0.001]
        of = ", ".join(f"{KINDS[kind]} {share(one)}" for kind, one in there)
        tip = f"bytes {int(low + at * part):,} to {int(low + (at + 1) * part):,}: {of}"
        inner = []
        for kind, one in there:
            inner.append(rect(at * width, y, width, one * _STRIP, f"kind{kind}"))
            y += one * _STRIP
        drawn.append(element("g", *inner, data_tip=tip))
    return drawn


def bars(layout: Layout) -> Element:
    """The bytes of the columns that take most, with those of their filters."""
    total = layout.chunk_bytes + layout.filter_bytes
    order = np.argsort(-total, kind="stable")[:_BARS].tolist()
    most = max(1, int(total.max(initial=0)))
    drawn: list[Child] = []
    for at, column in enumerate(order):
        data, filters, y = int(layout.chunk_bytes[column]), int(layout.filter_bytes[column]), 38 * at
        title = name(layout.names[column])
        drawn += [
            label(0, y + 14, _short(title)),
            label(1, y + 14, size(data + filters), "end"),
            rect(0, y + 19, data / most, 13, "kind0", f"{title}: column chunks, {size(data)}"),
        ]
        if filters:
            tip = f"{title}: filters, {size(filters)}, {share(filters / max(1, data))} of its column chunks"
            drawn.append(rect(data / most, y + 19, filters / most, 13, "kind1", tip))
    return svg(38 * len(order), "Bytes by column, filters beside column chunks", *drawn)


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:11]}\u2026{text[-11:]}"


# --- filters by row group -------------------------------------------------------------------------


def heat_map(columns: Sequence[ColumnHeat], row_groups: int) -> Element:
    """A row a column, a cell a bin of row groups; the script changes which figure shades them."""
    shown = columns[:COLUMNS]
    n = len(shown[0].cells)
    width = 1 / n
    drawn: list[Child] = []
    for row, column in enumerate(shown):
        drawn.append(label(0, 14 + 42 * row, _short(name(column.column))))
        for at, cell in enumerate(column.cells):
            drawn.append(_heat_cell(column, cell, at * width, 19 + 42 * row, width))
    bottom = 42 * len(shown) + 16
    last = [label(1, bottom, f"{row_groups - 1:,}", "end")] if row_groups > 1 else []
    drawn += [label(0, bottom, "row group 0"), *last]
    what = "Filters by column and row group"
    return svg(bottom + 6, what, *drawn, data_figure="fpp", data_stride=n)


def _heat_cell(column: ColumnHeat, cell: Cell | None, x: float, y: float, width: float) -> Element:
    drawn = width * (0.92 if width > _EDGED else 1)
    if cell is None:
        return rect(x, y, drawn, 18, "none", f"{name(column.column)}: no filter in these row groups")
    of = f"row group {cell.first:,}" if cell.first == cell.last else f"row groups {cell.first:,} to {cell.last:,}"
    tip = (
        f"{name(column.column)}, {of}: rate {share(cell.fpp)}, {share(cell.fill)} of bits set, "
        f"{size(round(cell.bytes))} a filter, {plural(cell.filters, 'filter')}"
    )
    made = rect(x, y, drawn, 18, "cell", tip + (f", {plural(cell.problems, 'problem')}" if cell.problems else ""))
    for figure in ("fpp", "fill", "bytes"):
        made.set(f"data-{figure}", str(cell.level(figure)) if cell.filters else "wrong")
    if cell.problems:
        made.set("class", "cell wrong")
    return made


# --- size against rate ----------------------------------------------------------------------------

_BITS, _RATES = (2.0, 64.0), (1.0, 1e-6)
_TOP, _HEIGHT, _BELOW = 20, 300, 44
_FIRST, _LAST = 0.03, 0.97  # of the width: so marks and numbers at the edges are whole


def _x(bits: float) -> float:
    """As a share of the width."""
    low, high = map(math.log2, _BITS)
    return _FIRST + (_LAST - _FIRST) * (min(max(math.log2(bits), low), high) - low) / (high - low)


def _y(rate: float) -> float:
    low, high = map(math.log10, _RATES)
    return _TOP + (_HEIGHT - _TOP) * (min(max(math.log10(rate), high), low) - low) / (high - low)


def curve(points: Sequence[Point], order: Sequence[str]) -> Element:
    """The rate that bits for a distinct value give, and where filters lie; colours follow the order of columns."""
    drawn: list[Child] = []
    for power in range(0, -7, -1):
        y = _y(10.0**power)
        text = f"{10.0 ** (power + 2):.{max(0, -power - 2)}f} %"
        drawn += [_line(0, y, 1, y), label(0, y - 4, text)]
    for bits in (2, 4, 8, 16, 32, 64):
        x = _x(bits)
        drawn += [_line(x, _TOP, x, _HEIGHT), label(x, _HEIGHT + 18, str(bits), "middle")]
    drawn.append(label(0.5, _HEIGHT + 38, "bits of a filter for each distinct value", "middle"))
    at = np.geomspace(*_BITS, 80).tolist()
    path = " ".join(f"{1000 * _x(bits):.1f},{_y(expected_rate(1e6, bits * 125_000)):.1f}" for bits in at)
    line = element("polyline", points=path, class_="curve", vector_effect="non-scaling-stroke")
    drawn.append(
        element("svg", line, width="100%", height=_HEIGHT, viewBox=f"0 0 1000 {_HEIGHT}", preserveAspectRatio="none")
    )
    for one in sorted(points, key=lambda one: (one.bits, one.column)):
        tip = (
            f"{name(one.column)}: {plural(one.filters, 'filter')} with {one.bits:.1f} bits for each distinct value, "
            f"rate {share(one.fpp)}"
        )
        colour = min(7, order.index(one.column))
        drawn.append(
            element(
                "circle", cx=percent(_x(one.bits)), cy=_y(one.fpp), r=5, class_=f"point column{colour}", data_tip=tip
            )
        )
    return svg(_HEIGHT + _BELOW, "Rate of false positives against bits for each distinct value", *drawn)


def _line(x1: float, y1: float, x2: float, y2: float) -> Element:
    return element("line", x1=percent(x1), y1=y1, x2=percent(x2), y2=y2, class_="rule")
