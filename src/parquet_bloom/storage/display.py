"""How values of ours are shown: one line for every `repr`, HTML in notebooks.

The line is made here. The HTML is drawn far above, by what prints the summaries of the command line; the package says
what draws it when it is imported (`draw_with`), and it is loaded when a notebook shows the first result.
"""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from parquet_bloom.errors import visible

_LINE = 180  # characters of a line
_VALUE = 60  # of one value in it
_FEW = 3  # names that are listed; of more there is the number
_drawing: list[Callable[[Any], str]] = []  # the last one draws


def quantity(number: int, noun: str) -> str:
    """A number and a noun, from its plural: "1 file" or "2 files" of "files"."""
    return f"{number:,} {_SINGULAR.get(noun, noun.removesuffix('s')) if number == 1 else noun}"


_SINGULAR = {"indexes": "index", "statistics": "statistic"}


def brief(value: Any, most: int = _VALUE) -> str:
    """The repr of a value in one line of at most so many characters; an ellipsis stands for its middle."""
    text = visible(f"{value:.4g}" if isinstance(value, float) else repr(value))
    if len(text) <= most:
        return text
    head = (most - 1) // 3
    return f"{text[:head]}\u2026{text[head + 1 - most :]}"


def line(kind: str, parts: Iterable[str]) -> str:
    """Kind(part, part): the first parts that a line has room for, and an ellipsis for the others."""
    shown: list[str] = []
    room = _LINE - len(kind)
    for part in parts:
        room -= len(part) + 2
        if room < 0:
            shown.append("\u2026")
            break
        shown.append(part)
    return visible(f"{kind}({', '.join(shown)})")


def names_of(kind: Any) -> list[str]:
    """The fields of a dataclass or NamedTuple: its own first, then those that it shares with others."""
    if hasattr(kind, "_fields"):
        return list(kind._fields)
    cls = kind if isinstance(kind, type) else type(kind)
    shared = {f.name for base in cls.__mro__[1:] if dataclasses.is_dataclass(base) for f in dataclasses.fields(base)}
    return sorted((f.name for f in dataclasses.fields(kind)), key=lambda name: name in shared)


def line_of(value: Any, *first: str) -> str:
    """One line: the first words, then the fields of a value that are not empty; the length of long lists."""
    parts = list(first)
    for name in names_of(value):
        one = getattr(value, name)
        if isinstance(one, list | dict | set):
            few = not isinstance(one, dict) and len(one) <= _FEW and all(isinstance(v, str) for v in one)
            if one and few and len(text := repr(one)) <= _VALUE and text.isprintable():
                parts.append(f"{name}={text}")
            elif one:
                parts.append(quantity(len(one), name.replace("_", " ")))
        elif one is not None and one != "":
            parts.append(f"{name}={brief(one)}")
    return line(type(value).__name__, parts)


class Brief:
    """A dataclass whose repr is one line; its own decorator has repr=False."""

    __slots__ = ()

    def __repr__(self) -> str:
        return line_of(self)


# --- notebooks --------------------------------------------------------------------------------------


def draw_with(function: Callable[[Any], str]) -> None:
    """Say what makes HTML of a result."""
    _drawing.append(function)


def html_of(result: Any) -> str:
    """A result as HTML."""
    return _drawing[-1](result)


def filled(value: Any) -> Mapping[str, Any]:
    """The fields of a value that are not empty."""
    found = {name: getattr(value, name) for name in names_of(value)}
    return {name: one for name, one in found.items() if one is not None and one not in ("", [], {}, ())}


# --- secrets --------------------------------------------------------------------------------------
#
# Secrets in what people type, as in URIs: s3://KEY:SECRET@bucket/path. No message shows them.

_END = re.compile(r"([\s@'\"])")  # of what may be a user and a secret; an "@" ends one that is
_NO_USER = re.compile("[:/?#]")
_NO_LETTERS = "0123456789+.-"
_IN_SCHEME = string.ascii_letters + _NO_LETTERS
_ANY_USER = re.compile(r"://[^/?#]*@")
_WORDS = re.compile(r"pass|pwd|secret|token|credential|key|auth|header|signature|sas\b", re.IGNORECASE)
_PORT = re.compile(r"[0-9]+(/|$)")


def without_secret(text: str) -> str:
    """A text with the user and the secret of each URI in it taken out: s3://bucket/path.

    In linear time, whatever the text is: column names and messages of others come here.
    """
    if "://" not in text or "@" not in text:
        return text
    parts = _END.split(text)
    for at in range(0, len(parts) - 1, 2):
        shown = _before_user(parts[at]) if parts[at + 1] == "@" else None
        if shown is not None:
            parts[at : at + 2] = shown, ""
    return "".join(parts)


def may_be_secret(pair: str) -> bool:
    """Whether a catalog's property, as NAME=VALUE, is better not shown: by its words, or by a user in a URI."""
    return _WORDS.search(pair) is not None or _ANY_USER.search(pair) is not None


def _before_user(text: str) -> str | None:
    """A text up to the user and the secret that an "@" ends; None where none stand there.

    A secret of S3's may hold "/", which ends the authority of a URI; it then stands in part where a path would.
    """
    pieces = text.split("://")
    for at in range(1, len(pieces)):
        before, piece = pieces[at - 1], pieces[at]
        scheme = before[len(before.rstrip(_IN_SCHEME)) :].lstrip(_NO_LETTERS)
        end = len(_NO_USER.split(piece, maxsplit=1)[0])
        if scheme and (piece[end : end + 1] == ":" or (end == len(piece) and at + 1 < len(pieces))):
            secret = "://".join(pieces[at:])[end + 1 :]
            # hdfs://host:8020/user@home/x has a port, and an "@" in its path; a bucket has no port.
            is_port = not scheme.lower().startswith("s3") and _PORT.match(secret) is not None
            return None if is_port else "://".join(pieces[:at]) + "://"
    return None
