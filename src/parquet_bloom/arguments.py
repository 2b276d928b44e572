"""Arguments: names of columns and sources, which may be one or several, and keywords, as `options` declares them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar, cast

from parquet_bloom.errors import RequestError, parameter

T = TypeVar("T")
_MOVED = {"hash_family": "family", "strategy": "strategy", "conf": "properties"}  # fields of Draft2015 by now


def several(given: Any) -> list[Any]:
    """A list of what a caller named: of one text or path itself, of all else its elements."""
    return [given] if isinstance(given, str | os.PathLike) else list(given)


def column_names(given: str | Iterable[str] | None, name: str) -> list[str] | None:
    """Columns by their names or patterns; None stays None.

    name  the function's parameter, for the message
    Raises RequestError for what is no text.
    """
    if given is None:
        return None
    names = several(given) if isinstance(given, Iterable) else [given]
    for one in names:
        if not isinstance(one, str):
            raise RequestError(parameter(name) + f" takes a name or a list of names, not {one!r}")
    return names


# --- keywords -------------------------------------------------------------------------------------


def refuse_unknown(function: str, options: Mapping[str, object], known: type) -> None:
    """Raise TypeError, as Python does, for a keyword that a function's options have not.

    known  their TypedDict
    Raises RequestError for one that is part of a value by now.
    """
    names = known.__annotations__
    for name, value in options.items():
        if name in names:
            continue
        if name in _MOVED:
            raise RequestError(f"{name} is a part of the form: give form=Draft2015({_MOVED[name]}={value!r})")
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{_near(name, names)}")


def _near(name: str, known: Collection[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, known, 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def part(kind: type[T], options: Mapping[str, object]) -> T:
    """Those of a function's options that one of the pieces in `options` declares."""
    return cast(T, {name: options[name] for name in kind.__annotations__ if name in options})
