"""What filters gain one query, for people: a line an engine, then the sentence for people who were not there."""

from __future__ import annotations

from typing import Any

from parquet_bloom.report.tables import plural, print_table, size
from parquet_bloom.report.text import Say, headline


def print_bench(report: Any, say: Say) -> None:
    """Tell what was compared, a line an engine, and the sentence."""
    made = "without its filters" if report.made == "before" else f"with filters on {', '.join(report.columns)}"
    headline(report.path, f"{plural(report.row_groups, 'row group')}, {size(report.size)}; a copy {made} was made", say)
    say(f"{report.row_groups_kept:,} left by bounds and filters, filters are {size(report.filter_bytes)}; medians of "
        f"{plural(report.runs, 'run')}")  # fmt: skip
    rows = [_row(gain) for gain in report.engines if gain.seconds_after is not None]
    if rows:
        print_table(("engine", "before", "after", "times", "groups", "bytes read", "rows"), rows, (1, 2, 3, 4, 5, 6))
    for gain in report.engines:
        if gain.note:
            say(f"{gain.title}: {gain.note}")
    for gain in report.lost_rows:
        say(f"{gain.title} finds other rows with filters than without", "red")
    say(report.sentence, "red" if report.lost_rows else "green")


def _row(gain: Any) -> tuple[str, ...]:
    groups = "-" if gain.row_groups_after is None else f"{gain.row_groups_before:,} > {gain.row_groups_after:,}"
    read = "-" if gain.bytes_after is None else _from_to(gain.bytes_before, gain.bytes_after)
    return (
        f"{gain.title} {gain.version}", _ms(gain.seconds_before), _ms(gain.seconds_after), f"{gain.times:.1f}",
        groups, read, f"{gain.rows:,}{'' if gain.same_rows else ' !'}",
    )  # fmt: skip


def _from_to(before: int, after: int) -> str:
    """29.0 > 31.0 KiB"""
    (first, unit), second = size(before).split(" "), size(after)
    return f"{first} > {second}" if second.endswith(f" {unit}") else f"{first} {unit} > {second}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.{0 if seconds >= 0.1 else 1}f} ms"
