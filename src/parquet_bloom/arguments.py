"""Arguments that may be one or several: names of columns, and sources. A text or a path is one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from parquet_bloom.errors import RequestError, parameter


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
