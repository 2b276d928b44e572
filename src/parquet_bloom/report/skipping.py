"""What a search skipped and why, for people and for programs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import IO, Any

from parquet_bloom.report.tables import plural, print_table, size

_ORDER = ("no rows", "literal", "partition", "bounds", "filter", "index")


def totals(verdicts: Sequence[Any], excluded: int = 0) -> dict[str, Any]:
    """Row groups and bytes skipped of how many, and what they fell to."""
    by = Counter(v.decided_by for v in verdicts if v.skipped)
    return {
        "row_groups": len(verdicts),
        "row_groups_skipped": sum(by.values()),
        "bytes": sum(v.size for v in verdicts),
        "bytes_skipped": sum(v.size for v in verdicts if v.skipped),
        "files_excluded": excluded,
        "by": {stage: by[stage] for stage in _ORDER if by[stage]},
        "bytes_read_to_decide": sum(v.bytes_read for v in verdicts),
    }


def line(verdicts: Sequence[Any], excluded: int = 0) -> str:
    """4 of 5 row groups skipped (filter 4), 248.8 KiB of 310.6 KiB; 240 bytes read to decide."""
    t = totals(verdicts, excluded)
    by = ", ".join(f"{stage} {n}" for stage, n in t["by"].items())
    text = f"{t['row_groups_skipped']:,} of {plural(t['row_groups'], 'row group')} skipped"
    text += f" ({by})" if by else ""
    text += f", {size(t['bytes_skipped'])} of {size(t['bytes'])}; {t['bytes_read_to_decide']:,} bytes read to decide"
    return text + (f"; {plural(excluded, 'file')} not opened, by the names of their folders" if excluded else "")


def print_verdicts(verdicts: Sequence[Any], file: IO[str] | None = None) -> None:
    """One line a row group: what it fell to."""
    many = len({v.path for v in verdicts}) > 1
    rows = []
    for v in verdicts:
        row = (v.row_group, "skip" if v.skipped else "read", v.decided_by or "-", v.bytes_read, v.reason)
        rows.append((v.path, *row) if many else row)
    headings = ("row group", "verdict", "decided by", "bytes read", "why")
    if rows:
        print_table(("file", *headings) if many else headings, rows, (1, 4) if many else (0, 3), file or sys.stdout)


def kept_lines(verdicts: Sequence[Any], most: int = 20) -> list[str]:
    """Which row groups of which files are left."""
    kept: dict[str, list[int]] = {}
    for v in verdicts:
        if not v.skipped:
            kept.setdefault(v.path, []).append(v.row_group)
    lines = [f"{path}: row group{'s' if len(g) > 1 else ''} {_ranges(g)}" for path, g in list(kept.items())[:most]]
    return [*lines, f"... and {plural(len(kept) - most, 'file')} more"] if len(kept) > most else lines


def _ranges(numbers: Sequence[int]) -> str:
    """0-3, 7, 9-10"""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in runs)
