"""Python sources as trees, each parsed once a process: several tests look at all modules."""

from __future__ import annotations

import ast
from functools import cache


@cache
def parsed(text: str) -> ast.Module:
    """The tree of a module's text; who gets it leaves it as it is."""
    return ast.parse(text)
