"""Long texts, before sqlglot sees them: bounds on what it is given, and plain lists taken out.

    id IN (5, 7, 9) AND x = 1        what people write
    id IN (5      ) AND x = 1        what sqlglot gets, without the gap; text.parse puts (5, 7, 9) back

One pass of one expression goes over the words and signs. It finds plain lists (numbers without an
exponent and texts, nothing else) behind IN, whose values need no parser, and counts the rest. A text with
comments, or with signs that dialects read in different ways, keeps its lists.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from decimal import Decimal

from parquet_bloom.errors import TextError
from parquet_bloom.formats.literals import Literal
from parquet_bloom.predicates.sql_literals import MOST_DIGITS

MOST_WORDS = 50_000  # words and signs outside of plain lists: a second or two of sqlglot's
MOST_CHARACTERS = 64 << 20
HINT = "for many keys give prune(files, column=..., values=...)"

_BLANK = r"[ \t\r\n]*+"
_NUMBER = r"-?[0-9]++(?:\.[0-9]++)?+"
_LITERAL = rf"(?:{_NUMBER}|'(?:[^'\\]++|'')*+')"
_FIRST = re.compile(rf"\({_BLANK}({_LITERAL})")
_REST = re.compile(rf"((?:{_BLANK},{_BLANK}{_LITERAL})++){_BLANK}\)")
_NEXT = re.compile(rf",{_BLANK}({_LITERAL})")
_WORD = re.compile(
    r"[ \t\r\n]++"
    r"|(?P<number>[0-9][\w.]*+)"
    r"|(?P<word>\w++)"
    r"|(?P<quoted>'(?:[^']++|'')*+'?+|\"(?:[^\"]++|\"\")*+\"?+|`(?:[^`]++|``)*+`?+)"
    r"|(?P<odd>--[^\r\n]*+|/\*(?s:.*?)(?:\*/|\Z)|[\\{}$#])"
    r"|(?P<sign>(?s:.))",
)


@dataclass(slots=True)
class ShortenedText:
    """A text without the values of its plain lists, but for the first of each.

    text    what is left
    lists   place of a list's opening bracket in the whole text -> its values
    """

    text: str
    lists: dict[int, tuple[Literal, ...]] = field(default_factory=dict)
    _gaps: list[int] = field(default_factory=list)
    _cut: list[int] = field(default_factory=list)

    def position(self, at: int) -> int:
        """Where a character of what is left stands in the whole text."""
        before = bisect_right(self._gaps, at)
        return at + (self._cut[before - 1] if before else 0)


class _OddError(Exception):
    """The text has something that may end where sqlglot says, not where we do."""


def shortened(text: str) -> ShortenedText:
    """Take plain lists out. Raises TextError for what is longer than anybody writes by hand."""
    if len(text) > MOST_CHARACTERS:
        raise TextError(text[:200], 0, f"{len(text):,} characters, more than {MOST_CHARACTERS:,}; {HINT}")
    try:
        return _shortened(text, take=True)
    except _OddError:
        return _shortened(text, take=False)


def _shortened(text: str, take: bool) -> ShortenedText:
    short = ShortenedText("")
    parts: list[str] = []
    words = at = kept = 0
    after_in = False
    while at < len(text):
        found = _WORD.match(text, at)
        assert found is not None  # the last alternative takes any character
        kind, start, at = found.lastgroup, at, found.end()
        if kind is None:
            continue
        words += 1
        if words > MOST_WORDS:
            what = "beside plain IN lists" if take else "and comments, or one of {}$#\\ among them"
            raise TextError(text, start, f"more than {MOST_WORDS:,} words and signs {what}; {HINT}")
        if kind == "number" and at - start > MOST_DIGITS:
            raise TextError(text, start, f"a number of {at - start:,} digits, more than {MOST_DIGITS:,}")
        if kind == "odd" and take:
            raise _OddError
        if take and after_in and text[start] == "(" and (first := _FIRST.match(text, start)) is not None:
            rest = _REST.match(text, first.end())
            if rest is not None:
                short.lists[start] = tuple(_value(text, start, one) for one in [first[1], *_NEXT.findall(rest[1])])
                parts.append(text[kept : first.end()])
                at = kept = rest.end(1)
                short._cut.append(at - first.end() + (short._cut[-1] if short._cut else 0))
                short._gaps.append(at - short._cut[-1])
        after_in = kind == "word" and at - start == 2 and text[start:at].upper() == "IN"
    short.text = "".join([*parts, text[kept:]])
    return short


def _value(text: str, at: int, literal: str) -> Literal:
    """The value of a plain literal, as the parser's own would be."""
    if literal[0] == "'":
        return literal[1:-1].replace("''", "'")
    if len(literal) > MOST_DIGITS:
        raise TextError(text, at, f"a number of {len(literal):,} digits in this list, more than {MOST_DIGITS:,}")
    if "." in literal:
        return Decimal(literal)
    return int(literal) if len(literal) < 4000 else int(Decimal(literal))  # int() alone refuses 4,301 digits
