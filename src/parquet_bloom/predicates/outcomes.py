"""Which of {TRUE, FALSE, NULL} can a row give?

A row group is skipped when TRUE is impossible, and only then.
"""

from __future__ import annotations

import enum


class Outcomes(enum.Flag):
    """A subset of {TRUE, FALSE, NULL}: what a predicate may give over the rows of a row group."""

    NONE = 0
    TRUE = 1
    FALSE = 2
    NULL = 4
    ANY = 7

    @property
    def names(self) -> list[str]:
        return [str(member.name) for member in (Outcomes.TRUE, Outcomes.FALSE, Outcomes.NULL) if member in self]
