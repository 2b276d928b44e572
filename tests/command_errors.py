"""What a command says on standard error."""

from __future__ import annotations


def without_hints(errors: str) -> list[str]:
    """The lines of errors; a hint below one is no error."""
    assert not errors or errors.endswith("\n")
    return [line for line in errors.splitlines() if not line.startswith("  hint: ")]


def error_lines(errors: str) -> int:
    """How many lines of errors there are."""
    return len(without_hints(errors))
