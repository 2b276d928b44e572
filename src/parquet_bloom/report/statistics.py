"""Reports of statistics for people: those of `verify --statistics`, and of `repair`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parquet_bloom.report.added import arrow, print_files, say_travel
from parquet_bloom.report.text import Say, gist, growth, headline, plural

_WRONG_SHOWN = 20  # wrong statistics, a line for each of a column
_TEXTS_SHOWN = 5  # notes of different kinds


def print_statistics(found: Sequence[tuple[str, Any]], everything: bool, say: Say) -> None:
    """Print verdicts on statistics: a line for each statistic of a column that is wrong somewhere.

    found  of each file its path, and its FileStatistics, or what has the same fields
    """
    wrong = [(path, one) for path, file in found for one in file.wrong]
    chunks = plural(sum(file.chunks for _, file in found), "column chunk")
    bad = f"{len(wrong):,} wrong in {plural(len({path for path, _ in wrong}), 'file')}" if wrong else "none wrong"
    say(f"statistics of {chunks}, {bad}", "red" if wrong else "green")
    groups: dict[Any, list[tuple[str, Any]]] = {}
    for number, (path, one) in enumerate(wrong):
        groups.setdefault(number if everything else (one.column, one.statistic), []).append((path, one))
    shown = list(groups.values()) if everything else list(groups.values())[:_WRONG_SHOWN]
    for group in shown:
        path, one = group[0]
        where = f"{path}, " if len(found) > 1 else ""
        many = f"{len(group):,} times, the first: " if len(group) > 1 else ""
        say(f"  wrong: {many}{where}{one.text}")
    if len(shown) < len(groups):
        say(f"  ... and {len(groups) - len(shown):,} more; --all has all")
    if len(found) > 1 and wrong:
        worst = sorted(((path, file) for path, file in found if file.wrong), key=lambda one: -len(one[1].wrong))
        rows = [(path, file.chunks, len(file.wrong)) for path, file in worst]
        print_files(("file", "column chunks", "wrong statistics"), rows, everything, say)
    for kind, what in (("notes", "note"), ("unchecked", "not compared")):
        first: dict[str, str] = {}
        for path, file in found:
            where = f"{path}, " if len(found) > 1 else ""
            for text in getattr(file, kind):
                first.setdefault(where + text if everything else gist(text), f"  {what}: {where}{text}")
        for line in list(first.values())[: None if everything else _TEXTS_SHOWN]:
            say(line)
        if not everything and len(first) > _TEXTS_SHOWN:
            say(f"  ... and {len(first) - _TEXTS_SHOWN:,} more; --all has all")


def print_repaired(files: Sequence[Any], undo: bool, everything: bool, say: Say) -> None:
    """Print RepairedFiles; undo: whether repairs were taken off."""
    for file in files if len(files) == 1 else ():
        headline(arrow(file), _undone([file]) if undo else _mended([file]), say, _style(files))
        say_travel(file, say)
    if len(files) > 1:
        say(f"{plural(len(files), 'file')}: {_undone(files) if undo else _mended(files)}", _style(files))
    if not undo:
        print_statistics([(file.source, file) for file in files], everything, say)


def _style(files: Sequence[Any]) -> str:
    return "green" if any(file.mended or file.mended_log or file.undone for file in files) else ""


def _mended(files: Sequence[Any]) -> str:
    chunks, changed = sum(file.mended for file in files), [file for file in files if file.wrong]
    if not changed:
        return "no statistic is wrong, nothing to repair"
    verb = "would be" if files[0].dry_run else "are"
    many = f" in {plural(len(changed), 'file')}" if len(files) > 1 else ""
    bytes_of = sum(file.bytes_before for file in files), sum(file.bytes_after for file in files)
    more = "" if files[0].dry_run or not chunks else f", {growth(*bytes_of)}"
    logged = sum(file.mended_log for file in files)
    of = [plural(chunks, "column chunk")] if chunks or not logged else []
    of += [plural(logged, "column") + " in the table's log"] if logged else []
    return f"statistics of {' and '.join(of)}{many} {verb} written right{more}"


def _undone(files: Sequence[Any]) -> str:
    off = sum(file.undone for file in files)
    if not off:
        return "no repair to take off"
    verb = "would be" if files[0].dry_run else "is" if off == 1 else "are"
    return f"{plural(off, 'repair')} {verb} taken off"
