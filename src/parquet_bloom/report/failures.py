"""Failures of many files, the same reason once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parquet_bloom.report.text import gist

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
