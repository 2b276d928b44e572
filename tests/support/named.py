"""Many cases in one test: what fails says which one it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def named(case: Any) -> Iterator[None]:
    """Add the case to the error of what stands below it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"of {case}")
        raise
