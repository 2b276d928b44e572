"""Text for terminals: nothing that a terminal would obey, and lines of a known width."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

LEAST_WIDTH = 80
UNBOUNDED = 1 << 30  # columns: what no terminal shows is not cut
# Yellow cannot be read on a light ground.
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "magenta": "35"}  # of ECMA-48, SGR
_VARYING = re.compile(r"""b'(?:[^'\\]|\\.)*'|b"[^"]*"|[0-9]+""")  # bytes as Python shows them, numbers
# What json.dumps leaves as it is and a terminal may obey or hide: C1, zero-width and bidi marks, lone surrogates.
_UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)

Say = Callable[[str], None]  # prints a line


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
    """Whether a file takes colours: a terminal, but for NO_COLOR (no-color.org) and TERM=dumb."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return file.isatty()
    except (AttributeError, ValueError):
        return False


def painted(text: str, style: str, file: IO[str]) -> str:
    """A text in "bold", "dim", "red", "green" or "magenta", where the file takes colours."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if text and style and coloured(file) else text


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


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
    """A reason without its numbers and bytes: of those that have the same gist only the first is told."""
    return _VARYING.sub("", text)


def headline(name: str, what: str, say: Say) -> None:
    """Say "name: what", on two lines where one is too short: names are often paths."""
    if cells(name) + cells(what) + 2 <= width_of(sys.stdout):
        say(f"{name}: {what}")
    else:
        say(name)
        say(f"  {what}")


def shortened(text: str, width: int) -> str:
    """A text of at most `width` columns; an ellipsis stands for its end."""
    if cells(text) <= width:
        return text
    return next(_cut(text, width - 1)) + "…"


def shortened_path(path: str, width: int) -> str:
    """A path of at most `width` columns; an ellipsis stands for its middle, as its end tells most."""
    if cells(path) <= width:
        return path
    head = next(_cut(path, max(1, (width - 1) // 3)))
    tail = next(_cut(path[::-1], max(1, width - 1 - cells(head))))[::-1]
    return f"{head}…{tail}"
