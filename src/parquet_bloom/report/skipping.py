"""What a search skipped and why, for people and for programs."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import IO, Any

from parquet_bloom.report.tables import plural, print_table, ranges, size
from parquet_bloom.report.text import Say, gist, headline
from parquet_bloom.search.check import totals
from parquet_bloom.storage.secrets import may_be_secret
from parquet_bloom.tables.named.names import named_table

VERDICTS_SHOWN = 50
_FILES_SHOWN = 20
_RUNS_SHOWN = 20
_REASONS_SHOWN = 20
_SPANS = 3  # of row groups in a row of reasons
_SOURCES_SHOWN = 60  # characters


def line(verdicts: Sequence[Any], excluded: Sequence[Any] = ()) -> str:
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


def print_checked(verdicts: Any, explain: bool, everything: bool, say: Say) -> None:
    """Tell what was skipped, then which row groups of which files are left, or with `explain` about every one.

    verdicts  of search.check, with the files that were not opened
    """
    say(line(verdicts, verdicts.excluded))
    if explain:
        print_excluded(verdicts.excluded, None if everything else VERDICTS_SHOWN)
        print_verdicts(verdicts, None if everything else VERDICTS_SHOWN)
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
    elif left:
        say(f"left: {plural(sum(map(len, left.values())), 'row group')} in {len(left):,} of {plural(len(of), 'file')}")
        shown = list(left.items()) if everything else list(left.items())[:_FILES_SHOWN]
        rows = [(path, f"{len(groups):,} of {of[path]:,}", ranges(groups, most)) for path, groups in shown]
        print_table(("file", "left", "row groups"), rows, right=(1,), paths=(0,))
        if len(shown) < len(left):
            say(f"... and {plural(len(left) - len(shown), 'file')} more; --all has all")


def print_verdicts(verdicts: Sequence[Any], most: int | None = VERDICTS_SHOWN, file: IO[str] | None = None) -> None:
    """One line a row group: what it fell to. Where these are more than `most` (None: any), one line a reason."""
    if most is not None and len(verdicts) > most:
        _print_reasons(verdicts, file)
        return
    many = len({v.path for v in verdicts}) > 1
    rows = []
    for v in verdicts:
        row = (v.row_group, "skip" if v.skipped else "read", v.decided_by or "-", v.bytes_read, v.reason)
        rows.append((v.path, *row) if many else row)
    headings = ("row group", "verdict", "decided by", "bytes read", "why")
    if rows:
        right, paths = ((1, 4), (0,)) if many else ((0, 3), ())
        print_table(("file", *headings) if many else headings, rows, right, file, paths)


def _print_reasons(verdicts: Sequence[Any], file: IO[str] | None) -> None:
    """One line for all row groups that fell to the same, or are read: those that are read first, then the fewest."""
    groups: dict[tuple[bool, str, str], list[Any]] = {}
    for v in verdicts:
        groups.setdefault((v.skipped, v.decided_by or "-", gist(v.reason)), []).append(v)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], len(item[1])))
    many = len({v.path for v in verdicts}) > 1
    rows = []
    for (skipped, by, _), group in ordered[:_REASONS_SHOWN]:
        paths = list(dict.fromkeys(v.path for v in group))
        if many:
            where = paths[0] if len(paths) == 1 else plural(len(paths), "file")
        else:
            where = ranges([v.row_group for v in group], _SPANS)
        verdict = "skip" if skipped else "read"
        rows.append((f"{len(group):,}", where, verdict, by, size(sum(v.bytes_read for v in group)), group[0].reason))
    headings = ("row groups", "in" if many else "which", "verdict", "decided by", "bytes read", "why (the first)")
    print_table(headings, rows, (0, 4), file, names=(1,) if many else ())
    if len(ordered) > len(rows):
        print(f"... and {plural(len(ordered) - len(rows), 'reason')} more", file=file or sys.stdout)
    print("a line a row group: check --explain --all", file=file or sys.stdout)


def print_excluded(excluded: Sequence[Any], most: int | None = VERDICTS_SHOWN, file: IO[str] | None = None) -> None:
    """One line a file that was not opened: why. At most so many of them (None: all), and how many more there are."""
    rows = [(one.path, "skip", one.decided_by, one.reason) for one in excluded[:most]]
    if rows:
        print_table(("file", "verdict", "decided by", "why"), rows, (), file, (0,))
    if len(rows) < len(excluded):
        more = f"... and {plural(len(excluded) - len(rows), 'file')} more; check --explain --all has all"
        print(more, file=file or sys.stdout)


def unfiltered_lines(
    columns: Sequence[Any], sources: Sequence[str], catalog_properties: Mapping[str, str] | None = None
) -> list[str]:
    """Which columns of a predicate lack filters where these could help, and what to type.

    columns  ColumnFilters
    sources  the files as they were named
             or a table, whose latest version alone is changed, by a commit
    catalog_properties  of the table's catalog; those that may be secrets are not shown
    """
    table = named_table(sources)
    lacking = [c for c in columns if c.with_filter < c.row_groups]
    lines = []
    for c in lacking:
        without = f"{c.row_groups - c.with_filter:,} of the " if c.with_filter else "the "
        what = plural(c.row_groups, "row group")
        where = f", in {c.files_without:,} files" if c.files_without > 1 else ""
        lines.append(f"{c.column} has no filter in {without}{what} left{where}")
    if lacking:
        names = " ".join(f"--column {shlex.quote(c.column)}" for c in lacking)
        files = " ".join(map(shlex.quote, sources))
        files = files if len(files) <= _SOURCES_SHOWN else "FILES"
        where = " --in-place"
        if table is not None:
            pairs = [f"{name}={value}" for name, value in (catalog_properties or {}).items()]
            shown = [pair for pair in pairs if not may_be_secret(pair)]
            files = shlex.quote(table.unversioned)
            where = "".join(f" --catalog-property {shlex.quote(pair)}" for pair in shown)
        which = "one" if len(lacking) == 1 else "them"
        lines.append(f"to add {which}: parquet-bloom add {files} {names}{where}")
    return lines
