"""Text and tables for terminals: nothing that a terminal would obey, and lines of a known width."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import IO, Any, Literal, NamedTuple, Protocol

LEAST_WIDTH = 80
UNBOUNDED = 1 << 30  # columns: what no terminal shows is not cut
ELLIPSIS = "…"
# Yellow cannot be read on a light ground.
COMMAND = "command"
_CODES = {"bold": "1", COMMAND: "1", "dim": "2", "red": "31", "green": "32", "magenta": "35"}  # of ECMA-48, SGR
_VARYING = re.compile(r"""b'(?:[^'\\]|\\.)*'|b"[^"]*"|[0-9]+""")  # bytes as Python shows them, numbers
# What json.dumps leaves as it is and a terminal may obey or hide: C1, zero-width and bidi marks, lone surrogates.
_UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


class Say(Protocol):
    """A function that draws a report, part by part: on a terminal, in a notebook."""

    def __call__(self, part: str | Table, style: str = "") -> None:
        """Draw a line or a table; style: of `painted`, on what takes colours. COMMAND: a line that is pasted."""


def visible(text: str) -> str:
    """Show escape sequences, control characters, bidi marks and the like as \\x1b, \\u202e: names come from files."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def inert(line: str) -> str:
    """A line that no runner of GitHub's workflows obeys: `::error` at its beginning is \\x3a:error, `##[` is ##\\x5b.

    They take what a step prints, on both streams, for commands: "::" before which there are only blanks, and the older
    "##[" anywhere. Source: actions/runner, ActionCommand.TryParseV2 and TryParse.
    """
    if "::" not in line and "##[" not in line:
        return line
    blanks = len(line) - len(line.lstrip())
    if line.startswith("::", blanks):
        line = line[:blanks] + "\\x3a" + line[blanks + 1 :]
    return line.replace("##[", "##\\x5b")


def inert_lines(lines: Iterable[str]) -> str:
    """Lines as one text, each of them inert."""
    return "\n".join(map(inert, lines))


def json_text(value: Any, indent: int | None = None) -> str:
    """A JSON document; what visible() shows is escaped, so that it means the same and can be printed."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("##[", "##\\u005b"))


def width_of(file: IO[str], least: int = LEAST_WIDTH) -> int:
    """Columns to fill: those of a terminal; of a pipe or a file UNBOUNDED, but for COLUMNS in the environment.

    least  of a terminal that is narrower
    """
    try:
        columns = os.get_terminal_size(file.fileno()).columns or LEAST_WIDTH
    except (OSError, ValueError, AttributeError):
        columns = int(text) if (text := os.environ.get("COLUMNS", "")).isdecimal() else 0
    return max(least, columns) if columns else UNBOUNDED


def coloured(file: IO[str]) -> bool:
    """Whether a file takes colours: NO_COLOR (no-color.org) says no, then FORCE_COLOR yes; else a terminal does.

    Both count where they are set and not empty, as for pip. TERM=dumb is a terminal without colours.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    try:
        return os.environ.get("TERM") != "dumb" and file.isatty()
    except (AttributeError, ValueError):
        return False


def painted(text: str, style: str, file: IO[str]) -> str:
    """A text in "bold", "dim", "red", "green" or "magenta", where the file takes colours."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if text and style and coloured(file) else text


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.replace(ELLIPSIS, "").isascii():
        return len(text)
    return sum(map(_cells_of, text))


@cache
def _cells_of(character: str) -> int:
    """As wcwidth(3) has it: none for a mark on the letter before, two for what is wide in East Asia, and emoji."""
    if unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def wrapped(text: str, width: int, indent: str = "", cut: bool = True) -> list[str]:
    """A text in lines of at most `width` columns, broken at spaces.

    indent  of all lines but the first
    cut     a word that is too long is cut into lines; else it stays whole, and its line is longer
    """
    lines = [""]
    for word in text.split(" "):
        gap = " " if lines[-1].strip() else ""
        if cells(lines[-1] + gap + word) <= width:
            lines[-1] += gap + word
            continue
        first, *rest = _cut(word, max(1, width - len(indent))) if cut else (word,)
        if lines[-1].strip():
            lines.append(indent)
        lines[-1] += first
        lines += [indent + piece for piece in rest]
    return lines


def folded(text: str, width: int) -> list[str]:
    """A text as `wrapped` has it, whose lines all begin where the first does, or two columns behind; no word is cut."""
    plain = text.lstrip(" ")
    lead = " " * (len(text) - len(plain))
    return [lead + line for line in wrapped(plain, width - len(lead), indent="  ", cut=False)]


def _cut(word: str, width: int) -> Iterator[str]:
    piece = ""
    for c in word:
        if cells(piece + c) > width:
            yield piece
            piece = ""
        piece += c
    yield piece


def gist(text: str) -> str:
    """A reason without its numbers and bytes: of those that have the same gist only the first is printed."""
    return _VARYING.sub("", text)


def headline(name: str, what: str, say: Say, style: str = "") -> None:
    """Say "name: what", on two lines where one is too short: names are often paths."""
    if cells(name) + cells(what) + 2 <= width_of(sys.stdout):
        say(f"{name}: {what}", style)
    else:
        say(name, style)
        say(f"  {what}", style)


def shortened(text: str, width: int) -> str:
    """A text of at most `width` columns; an ellipsis stands for its end."""
    if cells(text) <= width:
        return text
    return next(_cut(text, width - 1)) + ELLIPSIS if width > 0 else ""


# --- names ------------------------------------------------------------------------------------------

# The share of a name's room that its beginning gets, the likeliest first: the end of a path tells most.
_HEADS = (1 / 3, 1 / 2, 1 / 6, 2 / 3, 1 / 4, 3 / 4, 1 / 12, 5 / 6, 0, 1)


def shortened_names(names: Sequence[str], widths: int | Sequence[int]) -> list[str]:
    """Names of at most so many columns each, one below the other; an ellipsis stands for the middle of a long one.

    widths  of all, or of each

    Two different names never become the same text, so all are cut at the same place, where they differ. What they
    begin and end with alike goes if no such place is found. The last resort is a number behind the ellipsis; names
    are the same only where there is no room for that either.
    """
    wide = [widths] * len(names) if isinstance(widths, int) else list(widths)
    long = [i for i, (name, width) in enumerate(zip(names, wide, strict=True)) if cells(name) > width]
    if not long:
        return list(names)
    start, end = _shared([names[i] for i in long])
    best: list[str] = []
    fewest = len(names) + 1
    for around in (False, True) if start or end else (False,):
        for head in _HEADS:
            found = list(names)
            for i in long:
                name = names[i]
                if around:
                    found[i] = _around(name, start, len(name) - end, wide[i], head)
                else:
                    found[i] = _without_middle(name, wide[i], head)
            same = len(_repeated(names, found))
            if same < fewest:
                best, fewest = found, same
            if not same:
                return found
    return _numbered(names, best, wide)


def _shared(names: Sequence[str]) -> tuple[int, int]:
    """How many characters all names begin with alike, and how many the rest of each ends with alike."""
    if len(set(names)) < 2:
        return 0, 0
    start = _alike(names)
    return start, _alike([name[start:][::-1] for name in names])


def _alike(texts: Sequence[str]) -> int:
    """How many characters all texts begin with alike."""
    low, high = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))


def _without_middle(name: str, width: int, head: float) -> str:
    """A name of at most `width` columns, of which its beginning gets a share; it is too wide as it is."""
    if width < 1:
        return ""
    first = _first_cells(name, round(head * (width - 1)))
    return first + ELLIPSIS + _last_cells(name[len(first) :], width - 1 - cells(first))


def _around(name: str, start: int, stop: int, width: int, head: float) -> str:
    """The part of a name from start to stop, between ellipses, with as much around it as has room."""
    if width < 3:
        return _without_middle(name, width, head)
    width -= (start > 0) + (stop < len(name))
    core = name[start:stop]
    if cells(core) > width:
        core = _without_middle(core, width, head)
    else:
        before = _last_cells(name[:start], (width - cells(core)) // 2)
        after = _first_cells(name[stop:], width - cells(core) - cells(before))
        core, start, stop = before + core + after, start - len(before), stop + len(after)
    return ELLIPSIS * (start > 0) + core + ELLIPSIS * (stop < len(name))


def _repeated(names: Sequence[str], shown: Sequence[str]) -> list[int]:
    """The texts that stand for a name although another name has that text already, or is that text itself."""
    owner = {name: name for name, text in zip(names, shown, strict=True) if name == text}
    return [i for i, (name, text) in enumerate(zip(names, shown, strict=True)) if owner.setdefault(text, name) != name]


def _numbered(names: Sequence[str], shown: list[str], widths: Sequence[int]) -> list[str]:
    """Give each text that stands for a second name a number behind its ellipsis."""
    taken = set(shown)
    numbers: dict[tuple[str, int], str] = {}
    number = 1
    for i in _repeated(names, shown):
        key = names[i], widths[i]
        while key not in numbers:
            number += 1
            mark = f"{ELLIPSIS}{number}"
            if len(mark) > widths[i]:
                break
            text = _first_cells(names[i], widths[i] - len(mark)) + mark
            if text not in taken:
                numbers[key] = text
                taken.add(text)
        shown[i] = numbers.get(key, shown[i])
    return shown


def _first_cells(text: str, width: int) -> str:
    """As many characters of its beginning as have room in `width` columns."""
    if text.isascii():
        return text[: max(0, width)]
    return next(_cut(text, width)) if width > 0 else ""


def _last_cells(text: str, width: int) -> str:
    """As many characters of its end as have room in `width` columns; no mark that belongs to the one before it."""
    if text.isascii():
        return text[len(text) - max(0, min(width, len(text))) :]
    found = len(text)
    while found and cells(text[found - 1 :]) <= width:
        found -= 1
    while found < len(text) and not cells(text[found]):
        found += 1
    return text[found:]


# --- tables ---------------------------------------------------------------------------------------
#
# Reports as tables and lines for people.

_GAP = 3  # columns between two columns of a table; less where it does not fit
_CUT = "… was cut to fit; a wider terminal or a pipe (| cat) has it whole"
_LEAST_NAME = 20  # columns that a name keeps while other texts are whole
_LEAST = (12, 5, 2)  # columns that a text keeps at least, if it has as many; less only where there are many texts


Kind = Literal["text", "number", "name", "end"]
Cell = str | tuple[str, float]  # what is shown, and what it is sorted by where that is a number


class Column(NamedTuple):
    """A column of a table.

    cell  what it shows of a row's object
    kind  "number": aligned to the right, never cut; "name", of files or columns: shortened in the middle where there is
          no room, which is said, no two the same; "end": the end of a text gives way, which is said; else it is folded
    """

    heading: str
    cell: Callable[[Any], object]
    kind: Kind = "text"


class Table(NamedTuple):
    """Rows under headings, as a value: a terminal, a notebook and a page draw it.

    rows    texts, of a page's numbers with what they are sorted by
    styles  of each row, as `painted` has them; fewer: the others have none
    notes   lines below it
    total   how many rows there are, of which these may be the first
    """

    heading: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    styles: Sequence[str]
    notes: Sequence[str]
    total: int

    @classmethod
    def of(
        cls,
        ones: Sequence[Any],
        *columns: Column | bool,
        heading: str = "",
        style: Callable[[Any], str] = lambda one: "",
        most: int | None = None,
        noun: str = "row",
        rest: str = "; --all has all",
    ) -> Table:
        """A row an object; of many the first `most`, with a line on the others.

        columns  False: a column that is not needed
        noun     of an object; rest: how to see the others
        """
        kept = [column for column in columns if isinstance(column, Column)]
        shown = ones[:most]
        rows = [[_cell(column.cell(one)) for column in kept] for one in shown]
        notes = [f"... and {plural(len(ones) - len(shown), noun)} more{rest}"] if len(shown) < len(ones) else []
        return cls(heading, kept, rows, list(map(style, shown)), notes, len(ones))

    def places(self, kind: Kind) -> list[int]:
        """The columns of a kind."""
        return [at for at, column in enumerate(self.columns) if column.kind == kind]


def _cell(value: object) -> Cell:
    return value if isinstance(value, tuple) else str(value)


def print_table(table: Table, file: IO[str]) -> None:
    """Print a table within the terminal's width; elsewhere it is as wide as it is, and nothing is cut."""
    headings = [column.heading for column in table.columns]
    rows = [[visible(cell if isinstance(cell, str) else cell[0]) for cell in row] for row in table.rows]
    right, names, ends = (table.places(kind) for kind in ("number", "name", "end"))
    laid = laid_out(headings, rows, right, names, width_of(file), ends)
    print("\n".join(painted(inert(line), "bold", file) for line in laid.head), file=file)
    print(painted(_rule(file) * laid.width, "dim", file), file=file)
    for lines, style in zip_longest(laid.rows, table.styles, fillvalue=""):
        for line in lines:
            print(painted(inert(line), str(style), file), file=file)
    if laid.cut:
        print(f"  {_CUT}", file=file)


class Laid(NamedTuple):
    """A table in lines.

    rows  the lines of each row
    cut   some text is shown in part
    """

    head: list[str]
    width: int
    rows: list[list[str]]
    cut: bool


def laid_out(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int],
    names: Sequence[int],
    width: int,
    ends: Sequence[int] = (),
) -> Laid:
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
    natural: Sequence[int],
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int],
    room: int,
    names: Sequence[int] = (),
) -> list[int]:
    """The widths of columns that share `room`: headings are folded, then names are cut, then the widest texts."""
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
    """The growth of a size, for people: +6.3 %, +1,200 %; "-" where there was nothing."""
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


# --- failures -------------------------------------------------------------------------------------
#
# Failures of many files, the same reason once.

MOST_REASONS = 5


def failure_lines(failed: Sequence[Any], most: int = MOST_REASONS) -> list[str]:
    """One line a reason: "9,998 files: <reason> (the first: <path>)".

    Reasons that differ in numbers or bytes alone count as one, told by the first of them.

    failed  as a report of the library has them: files with `path`, `error` and `reason`
    """
    groups: dict[str, list[Any]] = {}
    for one in failed:
        groups.setdefault(gist(one.reason), []).append(one)
    lines = []
    for group in list(groups.values())[:most]:
        first = group[0]
        others = "" if all(one.reason == first.reason for one in group) else "; other values in others"
        many = f"{len(group):,} files: " + first.reason + f" (the first: {first.path}{others})"
        lines.append(getattr(first.error, "message", str(first.error)) if len(group) == 1 else many)
    if len(groups) > most:
        lines.append(f"... and {len(groups) - most:,} more reasons; --json has all")
    return lines
