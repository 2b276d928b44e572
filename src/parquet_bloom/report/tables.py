"""Reports as tables and lines for people."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO

from parquet_bloom.report.text import cells, inert, painted, shortened, shortened_names, visible, width_of, wrapped

_GAP = 3  # columns between two columns of a table; less where it does not fit
_CUT = "… was cut to fit; a wider terminal or a pipe (| cat) has it whole"
_LEAST_NAME = 20  # columns that a name keeps while other texts are whole
_LEAST = (12, 5, 2)  # columns that a text keeps at least, if it has as many; less only where there are many texts


Draw = Callable[[Sequence[str], Sequence[Sequence[object]], Sequence[int]], None]  # headings, rows, columns of numbers
_drawn_by: ContextVar[Draw | None] = ContextVar("_drawn_by", default=None)


@contextmanager
def drawn_by(draw: Draw) -> Iterator[None]:
    """Here `print_table` prints nothing: `draw` has the tables, as a notebook's page is made of the same summaries."""
    token = _drawn_by.set(draw)
    try:
        yield
    finally:
        _drawn_by.reset(token)


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    right: Sequence[int] = (),
    file: IO[str] | None = None,
    names: Sequence[int] = (),
    ends: Sequence[int] = (),
    styles: Mapping[int, str] | None = None,
) -> None:
    """Print rows under headings, within the terminal's width; elsewhere as wide as they are, and nothing is cut.

    right   columns of numbers: aligned to the right, never cut
    names   columns of names or paths, shortened in the middle where there is no room, which is said; no two the same
    ends    columns of texts of which the end gives way, which is said; all other texts are folded
    styles  row -> its style on a terminal, as `painted` has them
    """
    if file is None and (draw := _drawn_by.get()) is not None:
        draw(headings, list(rows), right)
        return
    out = file or sys.stdout
    table = [[visible(str(cell)) for cell in row] for row in rows]
    laid = laid_out(headings, table, right, names, width_of(out), ends)
    print("\n".join(painted(inert(line), "bold", out) for line in laid.head), file=out)
    print(painted(_rule(out) * laid.width, "dim", out), file=out)
    for number, lines in enumerate(laid.rows):
        for line in lines:
            print(painted(inert(line), (styles or {}).get(number, ""), out), file=out)
    if laid.cut:
        print(f"  {_CUT}", file=out)


@dataclass(frozen=True, slots=True)
class Laid:
    """A table in lines.

    rows  the lines of each row
    cut   some text is shown in part
    """

    head: list[str]
    width: int
    rows: list[list[str]]
    cut: bool


def laid_out(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], names: Sequence[int], width: int,
    ends: Sequence[int] = (),
) -> Laid:  # fmt: skip
    """Lay out a table of at most `width` columns; cells are printable."""
    natural = [max(map(cells, column)) for column in zip(headings, *rows, strict=True)]
    gap = next((g for g in (_GAP, 2) if sum(natural) + g * (len(natural) - 1) <= width), 2)
    widths = fitted(natural, headings, rows, right, width - gap * (len(natural) - 1), names)
    head = _row([wrapped(h, w) for h, w in zip(headings, widths, strict=True)], widths, right, gap)
    columns = list(zip(*rows, strict=True))
    for i in range(len(columns)):
        if i in names:
            columns[i] = tuple(shortened_names(columns[i], widths[i]))
        elif i in ends:
            columns[i] = tuple(shortened(text, widths[i]) for text in columns[i])
    shown = list(zip(*columns, strict=True))
    whole = [i not in names and i not in ends for i in range(len(widths))]
    laid = []
    for row in shown:
        folded = [wrapped(cell, size) if fold else [cell] for cell, size, fold in zip(row, widths, whole, strict=True)]
        laid.append(_row(folded, widths, right, gap))
    return Laid(head, sum(widths) + gap * (len(widths) - 1), laid, shown != list(map(tuple, rows)))


def table_lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], names: Sequence[int], width: int
) -> list[str]:
    """A table as lines; cells are printable."""
    laid = laid_out(headings, rows, right, names, width)
    return [*laid.head, "─" * laid.width, *(line for row in laid.rows for line in row)]


def fitted(
    natural: Sequence[int], headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], room: int,
    names: Sequence[int] = (),
) -> list[int]:  # fmt: skip
    """The widths of columns that share `room`: headings are folded, then names give way, then the widest texts."""
    widths = list(natural)
    for i in right:
        if sum(widths) > room:
            longest = max(map(cells, headings[i].split()), default=0)
            widths[i] = max([longest, *(cells(row[i]) for row in rows)])
    texts = [i for i in range(len(widths)) if i not in right]
    for which, least in ((names, _LEAST_NAME), *((texts, least) for least in _LEAST)):
        while sum(widths) > room and (wide := [i for i in which if widths[i] > least]):
            widths[max(wide, key=lambda i: widths[i])] -= 1
    return widths


def _row(folded: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[int], gap: int) -> list[str]:
    """One row of cells, each folded into lines, as lines."""
    lines = []
    for n in range(max(map(len, folded))):
        parts = []
        for i, (cell, width) in enumerate(zip(folded, widths, strict=True)):
            text = cell[n] if n < len(cell) else ""
            space = " " * (width - cells(text))
            parts.append(space + text if i in right else text + space)
        lines.append((" " * gap).join(parts).rstrip())
    return lines


def _rule(file: IO[str]) -> str:
    try:
        "─".encode(getattr(file, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return "-"
    return "─"


def size(number: int) -> str:
    """Bytes for people: 1,024 B, 2.0 MiB."""
    if number < 10_000:
        return f"{number:,} B"
    scaled = float(number)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        scaled /= 1024
        if scaled < 1000 or unit == "TiB":
            return f"{scaled:,.1f} {unit}"
    raise AssertionError


def share(rate: float | None) -> str:
    """A rate for people: 0.81 %."""
    if rate is None:
        return "-"
    if 0 < rate < 1e-5:
        return "<0.001 %"
    return f"{100 * rate:.2g} %" if rate < 0.1 else f"{100 * rate:.0f} %"


def growth(before: int, after: int) -> str:
    """What became of a size, for people: +6.3 %, +1,200 %; "-" where there was nothing."""
    if not before:
        return "-"
    percent = 100 * (after / before - 1)
    return f"{percent:+.2g} %" if abs(percent) < 99.5 else f"{percent:+,.0f} %"


def count(number: float) -> str:
    """A number for people; "?" for infinity."""
    return "?" if math.isinf(number) else f"{round(number):,}"


def plural(number: int, what: str) -> str:
    """A number and a noun: "1 file", "2 files"."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def between(texts: Sequence[str]) -> str:
    """The first and the last of sorted values for people: 31 % or 31 % - 35 %; nothing of none."""
    if not texts:
        return ""
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} - {texts[-1]}"


def ranges(numbers: Sequence[int], most: int | None = None) -> str:
    """Numbers in order for people: 0-3, 7, 9-10; of many the first `most` stretches, and how many more there are."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    text = ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in runs[:most])
    more = sum(b - a + 1 for a, b in runs[len(runs) if most is None else most :])
    return f"{text} and {more:,} more" if more else text


def ranges_within(numbers: Sequence[int], width: int) -> str:
    """Numbers as `ranges` has them, as many stretches of them as `width` columns have room for, and at least one."""
    whole, most = ranges(numbers), 1
    if len(whole) <= width:
        return whole
    while len(ranges(numbers, most + 1)) <= width:
        most += 1
    return ranges(numbers, most)
