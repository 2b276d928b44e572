"""Reports as tables and lines for people."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO

from parquet_bloom.report.text import cells, inert, painted, shortened_path, visible, width_of, wrapped

_GAP = 3  # columns between two columns of a table; less where it does not fit
_CUT = "… was cut to fit; a wider terminal or a pipe (| cat) has it whole"
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
    paths: Sequence[int] = (),
    names: Sequence[int] = (),
    bad: Sequence[int] = (),
) -> None:
    """Print rows under headings, within the terminal's width; elsewhere as wide as they are, and nothing is cut.

    right  columns of numbers: aligned to the right, never cut
    paths  columns of paths, names: of names: shortened in the middle, which is said; all other texts are folded
    bad    rows that are red on a terminal
    """
    if file is None and (draw := _drawn_by.get()) is not None:
        draw(headings, list(rows), right)
        return
    out = file or sys.stdout
    table = [[visible(str(cell)) for cell in row] for row in rows]
    laid = laid_out(headings, table, right, paths, width_of(out), names)
    print("\n".join(painted(inert(line), "bold", out) for line in laid.head), file=out)
    print(painted(_rule(out) * laid.width, "dim", out), file=out)
    red = set(bad)
    for number, lines in enumerate(laid.rows):
        for line in lines:
            print(painted(inert(line), "red", out) if number in red else inert(line), file=out)
    if laid.cut:
        print(f"  {_CUT}", file=out)


@dataclass(frozen=True, slots=True)
class Laid:
    """A table in lines.

    rows  the lines of each row
    cut   some name or path is shown in part
    """

    head: list[str]
    width: int
    rows: list[list[str]]
    cut: bool


def laid_out(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], paths: Sequence[int], width: int,
    names: Sequence[int] = (),
) -> Laid:  # fmt: skip
    """Lay out a table of at most `width` columns; cells are printable."""
    columns = [apart(c, width // 2) if i in paths else list(c) for i, c in enumerate(zip(*rows, strict=True))]
    cut = any(list(column) != [row[i] for row in rows] for i, column in enumerate(columns))
    rows = list(zip(*columns, strict=True))
    natural = [max(map(cells, column)) for column in zip(headings, *rows, strict=True)]
    gap = next((g for g in (_GAP, 2) if sum(natural) + g * (len(natural) - 1) <= width), 2)
    widths = fitted(natural, headings, rows, right, width - gap * (len(natural) - 1))
    head = _row([wrapped(h, w) for h, w in zip(headings, widths, strict=True)], widths, right, gap)
    laid = []
    for row in rows:
        folded = []
        for i, (cell, size) in enumerate(zip(row, widths, strict=True)):
            whole = i not in paths and i not in names
            cut = cut or (not whole and cells(cell) > size)
            folded.append(wrapped(cell, size) if whole else [shortened_path(cell, size)])
        laid.append(_row(folded, widths, right, gap))
    return Laid(head, sum(widths) + gap * (len(widths) - 1), laid, cut)


def table_lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], paths: Sequence[int], width: int
) -> list[str]:
    """A table as lines; cells are printable."""
    laid = laid_out(headings, rows, right, paths, width)
    return [*laid.head, "─" * laid.width, *(line for row in laid.rows for line in row)]


def apart(paths: Sequence[str], width: int) -> list[str]:
    """Paths of which some are wider than `width`: without what they begin and end with alike."""
    if len(set(paths)) < 2 or max(map(cells, paths)) <= width:
        return list(paths)
    start = paths[0].rfind("/", 0, _alike(paths)) + 1
    end = _alike([path[start:][::-1] for path in paths])
    head, tail = "…" * bool(start), "…" * bool(end)
    return [f"{head}{path[start : len(path) - end]}{tail}" for path in paths]


def _alike(texts: Sequence[str]) -> int:
    """How many characters all texts begin with alike."""
    low, high = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))


def fitted(
    natural: Sequence[int], headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], room: int
) -> list[int]:
    """The widths of columns that share `room`: headings are folded first, then the widest texts give way."""
    widths = list(natural)
    for i in right:
        if sum(widths) > room:
            longest = max(map(cells, headings[i].split()), default=0)
            widths[i] = max([longest, *(cells(row[i]) for row in rows)])
    texts = [i for i in range(len(widths)) if i not in right]
    for least in _LEAST:
        while sum(widths) > room and (wide := [i for i in texts if widths[i] > least]):
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
