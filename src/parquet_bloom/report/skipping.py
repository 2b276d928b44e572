"""Reports of skipped row groups, with the reasons, for people and for programs."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from parquet_bloom.report.text import (
    LEAST_WIDTH,
    Column,
    Say,
    Table,
    gist,
    headline,
    plural,
    ranges,
    ranges_within,
    size,
    width_of,
)
from parquet_bloom.search.check import totals

if TYPE_CHECKING:
    from parquet_bloom.search.question import Cost
    from parquet_bloom.source.names import ShellCommand

_FILES_SHOWN = 20
_FILES_SHARE = 5  # a reason, so that they are summed and not listed
_RUNS_SHOWN = 20
_REASONS_SHOWN = 20
_WHICH = 18  # columns of row groups' numbers, of a terminal of 80


def line(verdicts: Sequence[Any], excluded: Sequence[Any]) -> str:
    """4 of 5 row groups skipped (filter 4), 248.8 KiB of 310.6 KiB; 240 bytes read"""
    t = totals(verdicts, excluded)
    by = ", ".join(f"{stage} {n:,}" for stage, n in t["by"].items())
    text = f"{t['row_groups_skipped']:,} of {plural(t['row_groups'], 'row group')} skipped"
    text += f" ({by})" if by else ""
    text += f", {size(t['bytes_skipped'])} of {size(t['bytes'])}; {t['bytes_read_to_decide']:,} bytes read"
    if not excluded:
        return text
    files_by = ", ".join(f"{stage} {n:,}" for stage, n in t["files_excluded_by"].items())
    there = f", {size(t['files_excluded_bytes'])}" if t["files_excluded_bytes"] else ""
    return f"{text}; {plural(len(excluded), 'file')} not opened ({files_by}){there}"


def print_checked(
    verdicts: Any, explain: bool, everything: bool, say: Say, after: Callable[[], None] = lambda: None
) -> None:
    """Print what was skipped, then the remaining row groups of each file, or with `explain` every one.

    verdicts  of search.check, with the files that were not opened
    after     is called behind the first line
    """
    say(line(verdicts, verdicts.excluded), "green" if verdicts.skipped or verdicts.excluded else "")
    after()
    if explain:
        if verdicts.index_cost.requests:
            say(index_line(verdicts.index_cost))
        print_explained(verdicts, verdicts.excluded, say, everything)
        return
    left: dict[str, list[int]] = {}
    of = Counter(v.path for v in verdicts)
    for v in verdicts:
        if not v.skipped:
            left.setdefault(v.path, []).append(v.row_group)
    most = None if everything else _RUNS_SHOWN
    if len(of) == 1 or len(left) == 1:
        for path, groups in left.items():
            headline(path, f"{'row groups' if len(groups) > 1 else 'row group'} {ranges(groups, most)}", say)
    elif left and not everything and len(verdicts) == sum(map(len, left.values())) and not verdicts.excluded:
        say(f"left: all {plural(len(verdicts), 'row group')} of {plural(len(of), 'file')}")
    elif left:
        say(f"left: {plural(sum(map(len, left.values())), 'row group')} in {len(left):,} of {plural(len(of), 'file')}")
        say(
            Table.of(
                list(left.items()),
                Column("file", lambda one: one[0], "name"),
                Column("left", lambda one: f"{len(one[1]):,} of {of[one[0]]:,}", "number"),
                Column("row groups", lambda one: ranges(one[1], most)),
                most=None if everything else _FILES_SHOWN,
                noun="file",
            )
        )


def log_read(verdicts: Callable[[], Iterable[Any]]) -> None:
    """Log why row groups are read, a line a reason: `-vv` prints it."""
    logger = logging.getLogger("parquet_bloom")
    if logger.isEnabledFor(logging.DEBUG):
        for number, where, _, _, why in summed((v for v in verdicts() if not v.skipped), "read"):
            logger.debug("read: %s of %s: %s", plural(int(number.replace(",", "")), "row group"), where, why)


def index_line(cost: Cost) -> str:
    """The reads of a key index in a line."""
    return f"{plural(cost.requests, 'read')} of the index, {size(cost.bytes_read)}"


def print_explained(
    verdicts: Sequence[Any], excluded: Sequence[Any], say: Say, everything: bool = False, file: IO[str] | None = None
) -> None:
    """Row groups that are read, and why; then how many are skipped by what, and files that were not opened.

    One line a reason, and of several files one a file that is read, but for reasons that many files share; with
    `everything` one a row group and a file. No line is folded.

    file  on which it is drawn; None: standard output
    """
    if everything:
        _print_every(verdicts, excluded, say)
        return
    left = [v for v in verdicts if not v.skipped]
    many = len({v.path for v in verdicts}) + len(excluded) > 1
    kept = alike(left)
    shared = [group for group in kept if many and len({v.path for v in group}) > _FILES_SHARE]
    width = width_of(file or sys.stdout)
    lines = _print_read_reasons([group for group in kept if group not in shared], say, width) if many else 0
    room = None if many else max(_WHICH, width - LEAST_WIDTH + _WHICH)
    rows = summed([v for group in shared for v in group] if many else left, "read", room)
    rows += summed([v for v in verdicts if v.skipped], "skip", room)
    rows += [one._replace(row_groups="-") for one in summed(excluded, "not opened")]
    if rows:
        say(summed_table(rows, many, _REASONS_SHOWN))
    if lines + len(rows) < len(verdicts) + len(excluded):
        say("a line a row group: check --explain --all")


def alike(ones: Iterable[Any]) -> list[list[Any]]:
    """Verdicts of row groups or files, those of the same reason together, the fewest first."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for one in ones:
        groups.setdefault((one.decided_by or "-", gist(one.reason)), []).append(one)
    return sorted(groups.values(), key=len)


class Summed(NamedTuple):
    """Row groups that fell to the same: how many, where, the verdict, by which evidence, why."""

    row_groups: str
    where: str
    verdict: str
    by: str
    why: str


def summed_table(rows: Sequence[Summed], many: bool, most: int | None = None, first: str = "row groups") -> Table:
    """Sums as a table; many: of several files."""
    return Table.of(
        rows,
        Column(first, lambda one: one.row_groups, "number"),
        Column("in" if many else "which", lambda one: one.where, "name" if many else "text"),
        Column("verdict", lambda one: one.verdict),
        Column("by", lambda one: one.by),
        Column("why", lambda one: one.why, "end"),
        style=lambda one: "" if one.verdict == "read" else "green",
        most=most,
        noun="reason",
        rest="",
    )


def summed(ones: Iterable[Any], verdict: str, room: int | None = None) -> list[Summed]:
    """A row a reason.

    room  of verdicts of one file: columns for the numbers of row groups, which then stand where files do
    """
    rows = []
    for group in alike(ones):
        where = _files(list(dict.fromkeys(one.path for one in group))) if room is None else _which(group, room)
        rows.append(Summed(f"{len(group):,}", where, verdict, group[0].decided_by or "-", _reason(group)))
    return rows


def _print_read_reasons(groups: Sequence[Sequence[Any]], say: Say, width: int) -> int:
    """A line a file and a reason why row groups of it are read; returns how many lines that would be of all."""
    by_file: dict[tuple[str, int], list[Any]] = {}
    for number, group in enumerate(groups):
        for v in group:
            by_file.setdefault((v.path, number), []).append(v)
    kept = list(by_file.values())
    room = max(_WHICH, width // 5)
    table = Table.of(
        kept[:_FILES_SHOWN],
        Column("file", lambda some: some[0].path, "name"),
        Column("row groups", lambda some: _which(some, room)),
        Column("why", lambda some: some[0].reason, "end"),
    )
    if kept:
        say(table)
    if others := kept[_FILES_SHOWN:]:
        more = plural(sum(map(len, others)), "row group")
        say(f"... and {more} more, in {plural(len({some[0].path for some in others}), 'file')}")
    return len(kept)


def _which(group: Sequence[Any], room: int) -> str:
    """The row groups of a file, as many as have room."""
    return ranges_within([v.row_group for v in group], room)


def _files(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else plural(len(paths), "file")


def _reason(group: Sequence[Any]) -> str:
    """Why, in words; some of the others may differ in numbers."""
    first: str = group[0].reason
    return first if all(one.reason == first for one in group) else f"{first} (the first)"


def _print_every(verdicts: Sequence[Any], excluded: Sequence[Any], say: Say) -> None:
    """A line a row group, those that are read first, and a line a file that was not opened."""
    ordered = sorted(verdicts, key=lambda v: v.skipped)  # stable
    file, by = Column("file", lambda v: v.path, "name"), Column("by", lambda v: v.decided_by or "-")
    why = Column("why", lambda v: v.reason, "end")
    if ordered:
        say(
            Table.of(
                ordered,
                len({v.path for v in verdicts}) > 1 and file,
                Column("row group", lambda v: v.row_group, "number"),
                Column("verdict", lambda v: "skip" if v.skipped else "read"),
                by,
                any(v.bytes_read for v in verdicts) and Column("bytes read", lambda v: f"{v.bytes_read:,}", "number"),
                why,
                style=lambda v: "green" if v.skipped else "",
            )
        )
    if excluded:
        say(Table.of(excluded, file, Column("verdict", lambda v: "not opened"), by, why, style=lambda v: "green"))


def unfiltered_lines(columns: Sequence[Any]) -> list[str]:
    """Lines on the columns of a predicate, its ColumnFilters, that lack filters where these could help."""
    lines = []
    for c in _lacking(columns):
        without = f"{c.row_groups - c.with_filter:,} of the " if c.with_filter else "the "
        what = plural(c.row_groups, "row group")
        where = f", in {c.files_without:,} files" if c.files_without > 1 else ""
        lines.append(f"{c.column} has no filter in {without}{what} left{where}")
    if lines:
        lines.append(f"to add {'one' if len(lines) == 1 else 'them'}:")
    return lines


def adding(
    columns: Sequence[Any], sources: Sequence[str], catalog_properties: Mapping[str, str] | None = None
) -> ShellCommand | None:
    """The command that adds these filters; None where none is missing, or none can name the source.

    sources  the files as they were named, or a table, whose latest version alone is changed, by a commit
    catalog_properties  of the table's catalog
    """
    lacking = [c.column for c in _lacking(columns)]
    if not lacking or not sources:
        return None
    from parquet_bloom.source.names import add_command

    return add_command(sources, lacking, catalog_properties=catalog_properties)


def _lacking(columns: Sequence[Any]) -> list[Any]:
    return [c for c in columns if c.with_filter < c.row_groups]
