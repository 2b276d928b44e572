"""An advice as people read it: what to do first, then why, then the rest."""

from __future__ import annotations

from collections.abc import Sequence

from parquet_bloom.edit.sample import Interval
from parquet_bloom.report.tables import plural, print_table, share, size
from parquet_bloom.report.text import Say
from parquet_bloom.worth.advice.advise import Advice, ColumnAdvice


def print_advice(advice: Advice, show_all: bool, say: Say, paste: Say) -> None:
    """Columns that are advised, with gain and cost; why others are not; flags; commands, which `paste` prints."""
    some = "" if advice.footers_read == advice.files else f" (by the footers of {advice.footers_read:,})"
    shape = f"{plural(advice.files, 'file')}, {plural(advice.row_groups, 'row group')}, {plural(advice.rows, 'row')}"
    say(f"{shape}, {size(advice.bytes)}{some}")
    if advice.queries is not None:
        understood, lost = advice.queries
        say(f"{understood:,} of the log's {understood + lost:,} queries are understood")
    advised = [column for column in advice.columns if column.advised]
    if advised:
        today = filters_today(advised)
        say(f"{plural(len(advised), 'column')} should have filters{'; ' if today else ''}{today}", "magenta")
    else:
        say("no column needs a filter that it lacks", "green")
    if advised:
        rows = [_row(column) for column in advised]
        head = ("column", "fpp", "filters", "to add", "absent key", "present key", "in vain")
        print_table(head, rows, right=(1, 2, 3, 4, 5, 6), names=(0,))
        say("absent, present key: the share of all row groups that a lookup is spared, beyond what bounds spare it; "
            "in vain: row groups that it reads because a filter errs")  # fmt: skip
        for used, names in _by_engines(advised).items():
            say(f"{', '.join(names)}: {used}")
    others = [column for column in advice.columns if not column.advised]
    shown = others if show_all or len(others) <= 20 else others[:20]
    if shown:
        print_table(("column", "not advised, as"), [(column.column, column.reason) for column in shown], names=(0,))
    if len(shown) < len(others):
        say(f"... and {plural(len(others) - len(shown), 'column')} more; --all has all")
    for line in advice.flags:
        say("note: " + line)
    for command in advice.commands:
        paste(command, "bold")


def filters_today(advised: Sequence[ColumnAdvice]) -> str:
    """How many row groups have filters on columns that should have them everywhere; empty where none has."""
    shares = sorted(column.with_filter for column in advised)
    if not shares or not shares[-1]:
        return ""
    low, high = share(shares[0]), share(shares[-1])
    return f"{low if low == high else f'{low} to {high}'} of the row groups have one today"


def _row(column: ColumnAdvice) -> tuple[str, ...]:
    assert column.filter_bytes is not None
    assert column.seconds is not None
    assert column.absent is not None
    assert column.present is not None
    low, _, high = column.filter_bytes
    least, most = size(round(low)), size(round(high))
    taken = least if least == most else f"{least} to {most}"
    return (
        column.column, share(column.fpp), taken, in_seconds(column.seconds), in_percent(column.absent.row_groups),
        in_percent(column.present.row_groups), f"{column.in_vain:.2g}",
    )  # fmt: skip


def _by_engines(columns: Sequence[ColumnAdvice]) -> dict[str, list[str]]:
    """Who uses the filters -> the columns."""
    used: dict[str, list[str]] = {}
    for column in columns:
        engines = ", ".join(["this package", *column.engines])
        used.setdefault(f"used by {engines}" if column.engines else "used by this package only", []).append(
            column.column
        )
    return used


def in_percent(interval: Interval) -> str:
    """A share as people read it: "98 to 100 %"."""
    low, high = (round(100 * end) for end in (interval.low, interval.high))
    return f"{low} %" if low == high else f"{low} to {high} %"


def in_seconds(interval: Interval) -> str:
    """Seconds as people read them: "< 1 s", "3 to 10 s"."""
    if interval.high < 1:
        return "< 1 s"
    low, high = round(interval.low), max(1, round(interval.high))
    return f"{high} s" if low == high else f"{low} to {high} s"
