"""Reports of `add`, `remove`, `delete` and `upsert` for people: totals, columns, files; every row on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from parquet_bloom.report.text import Column, Say, Table, gist, growth, headline, plural, share, size

FILES_SHOWN = 20
_NAMES_SHOWN = 6
_KEPT = "filters are there already and stay; --replace rebuilds them"
_UNWRITTEN = "no byte of them changes, the commit alone names another size of each"
_OTHERS = ("ducklake:", "iceberg:")  # a Delta table is called by its folder
_UNNOTICED = (
    "deltalake's optimize, delete() without a predicate and overwrite do not notice this commit if they began before "
    "it: let none of them end now"
)


def print_added(files: Sequence[Any], everything: bool, say: Say) -> None:
    """Print AddedFiles: one in a line, several with totals first."""
    if len(files) == 1:
        _print_one(files[0], say)
    elif files:
        _print_totals(files, say)
        print_columns(files, say)
    for line in [*skipped_lines(files, None if everything else _NAMES_SHOWN), *_index_lines(files)]:
        say(line)
    if everything:
        _print_filters(files, say)
    if len(files) > 1 and (everything or any(map(_number, files))):
        files = sorted(files, key=lambda f: not _number(f))  # stable
        print_files(
            ("file", "filters", "bytes", "grows"),
            [(f.source, _number(f), size(f.planned_bytes if f.dry_run else f.filter_bytes), _growth(f)) for f in files],
            everything,
            say,
        )


def print_removed(files: Sequence[Any], everything: bool, say: Say) -> None:
    """Print RemovedFiles: one in a line, several with totals first."""
    for file in files if len(files) == 1 else ():
        headline(arrow(file), _removed([file]), say, _style(file.removed + file.indexes))
        say_travel(file, say)
    if len(files) < 2:
        return
    say(f"{plural(len(files), 'file')}: {_removed(files)}", _style(sum(f.removed for f in files)))
    _say_travel_of_all(files, say)
    rows = [(f.source, f.removed, size(f.bytes_before - f.bytes_after)) for f in files]
    shown = 2 if files[0].dry_run else 3  # how much less that is, only the work shows
    print_files(("file", "filters", "less")[:shown], [row[:shown] for row in rows], everything, say)


def _style(filters: int) -> str:
    return "green" if filters else ""


def _removed(files: Sequence[Any]) -> str:
    """The removed filters of files, or those a dry run would remove."""
    removed, dry = sum(f.removed for f in files), files[0].dry_run
    indexes = sum(f.indexes for f in files)
    others = sum(f.others for f in files)
    if others:
        others_stay = f"; {plural(others, 'filter')} of other programs {'stays' if others == 1 else 'stay'}"
        others_stay += " (--all-writers or --column removes them)"
    else:
        others_stay = ""
    if not removed and not indexes:
        return f"nothing to remove{others_stay}"
    saved = "" if dry else f", {size(sum(f.bytes_before - f.bytes_after for f in files))} less"
    stay = sum(f.bytes_stay for f in files)
    behind = f"; {stay:,} left their bytes behind, as nothing could be cut safely" if stay else ""
    parts = [plural(removed, "filter")] if removed else []
    parts += [f"{indexes:,} page {'index' if indexes == 1 else 'indexes'}"] if indexes else []
    return f"{'would remove' if dry else 'removed'} {' and '.join(parts)}{saved}{behind}{others_stay}"


def print_commits(report: Any, say: Say) -> None:
    """Print a table's commits, or the commit modes of a dry run; nothing for files."""
    for commit in report.commits:
        same = f", {commit.same_path:,} on the same path" if commit.same_path else ""
        made = f"version {commit.version} of {commit.table}"
        if commit.table.startswith("ducklake:"):
            made = f"to {commit.table}"  # no snapshot is made: the same ones have other files
        say(f"committed {made}: {plural(commit.files, 'file')}{same}")
    if any(commit.same_path < commit.files and not commit.table.startswith(_OTHERS) for commit in report.commits):
        say(f"  {_UNNOTICED}")
    left = [file for file in report.files if not file.dry_run and file.way and not file.written]
    if left:
        say(f"  {plural(len(left), 'file')}: {_UNWRITTEN}")
    ways: dict[tuple[str, str, bool], list[Any]] = {}
    for file in report.files:
        if file.dry_run and file.way:
            ways.setdefault((file.way, file.why, file.written), []).append(file)
    for (way, why, written), files in ways.items():
        reason = f", as {why}" if why else ""
        say(f"  {way}: {plural(len(files), 'file')}{reason}; {_write_summary(way, files) if written else _UNWRITTEN}")


def _write_summary(way: str, files: Sequence[Any]) -> str:
    if way == "same-path":
        what = "a footer is" if hasattr(files[0], "mended") else "filters and a footer are"  # of a repair
        return f"{what} written behind each"
    old = sum(f.bytes_before for f in files)
    return f"files of {size(old)} are written again, and the old ones stay until the table's clean-up"


def print_files(headings: Sequence[str], rows: Sequence[Sequence[object]], everything: bool, say: Say) -> None:
    """A line a file, of many files the first; the first column is the path, the others are numbers."""
    columns = [Column(text, itemgetter(at), "number" if at else "name") for at, text in enumerate(headings)]
    say(Table.of(rows, *columns, most=None if everything else FILES_SHOWN, noun="file"))


def skipped_lines(files: Sequence[Any], names_shown: int | None) -> list[str]:
    """Lines on columns without a filter, each reason once; names_shown None: each with its own numbers."""
    reasons: dict[str, _SkippedForReason] = {}
    for file in files:
        for one in file.skipped:
            left = reasons.setdefault(one.reason if names_shown is None else gist(one.reason), _SkippedForReason())
            left.reasons.setdefault(one.reason)
            left.columns.setdefault(one.column)
            left.files.setdefault(file.source)
            if one.row_group is not None:
                left.row_groups += 1
                left.row_group = one.row_group
    from parquet_bloom.edit.plan import HAS_FILTER  # here, as inspect and verify print files with this module too

    lines = []
    for left in reasons.values():
        columns = left.columns_shown(names_shown, len(files))
        kept = left.reason == HAS_FILTER
        lines.append(f"  {columns}: {_KEPT}" if kept else f"  no filter on {columns}: " + left.reason)  # a Message
    return lines


@dataclass
class _SkippedForReason:
    """Columns that were skipped for one reason; dicts are sets in order."""

    reasons: dict[str, None] = field(default_factory=dict)
    columns: dict[str, None] = field(default_factory=dict)
    files: dict[str, None] = field(default_factory=dict)
    row_groups: int = 0
    row_group: int = 0

    @property
    def reason(self) -> str:
        first, *others = self.reasons
        return first + " (the first; the others differ in numbers)" if others else first

    def columns_shown(self, names_shown: int | None, files: int) -> str:
        names = enumerated(list(self.columns), names_shown)
        where = []
        if self.row_groups == 1:
            where.append(f"row group {self.row_group}")
        elif self.row_groups:
            chunks = "row group" if len(self.columns) == 1 else "column chunk"
            where.append(plural(self.row_groups, chunks))
        if files > 1:
            where.append(plural(len(self.files), "file"))
        return f"{names} ({', '.join(where)})" if where else names


def enumerated(names: Sequence[str], most: int | None = _NAMES_SHOWN) -> str:
    """a, b, c and 12 more"""
    if most is None or len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most:,} more"


def _indexes(files: Sequence[Any]) -> str:
    """The page indexes that files got, or would get; "" without any."""
    taken = None if files[0].dry_run else sum(f.index_bytes for f in files)
    return indexes_text(sum(f.offset_indexes for f in files), sum(f.column_indexes for f in files), taken)


def indexes_text(offsets: int, columns: int, taken: int | None) -> str:
    """Numbers of page indexes, and the bytes that they take; "" without any."""
    counts = {"offset": offsets, "column": columns}
    parts = [f"{n:,} {kind} {'index' if n == 1 else 'indexes'}" for kind, n in counts.items() if n]
    if parts and taken is not None:
        parts[-1] += f", {size(taken)}"
    return " and ".join(parts)


def _index_lines(files: Sequence[Any]) -> list[str]:
    """Each reason why there are no page indexes, once, with the number of files."""
    counts = Counter(note for file in files for note in file.index_notes)
    return [f"  {note}" + (f" ({plural(n, 'file')})" if len(files) > 1 else "") for note, n in counts.items()]


def _number(file: Any) -> int:
    """How many filters a file got, or would get."""
    return file.planned_filters if file.dry_run else len(file.filters)


def _print_one(file: Any, say: Say) -> None:
    names, indexes = enumerated(file.columns), _indexes([file])
    if not _number(file) and indexes:
        what = f"would add {indexes}" if file.dry_run else f"{indexes} (file {_growth(file)}), {file.seconds:.2f} s"
    elif not _number(file):
        what = "nothing to add"
        if file.dry_run and file.source != file.output:
            what += f"; a copy needs up to {size(file.bytes_needed)} of disk"
    elif file.dry_run:
        what = (
            f"would add {plural(file.planned_filters, 'filter')} on {names}; up to {size(file.planned_bytes)}; "
            f"needs up to {size(file.bytes_needed)} of disk"
        )
    else:
        what = (
            f"{plural(len(file.filters), 'filter')} on {names} in {plural(file.row_groups, 'row group')}, "
            f"{size(file.filter_bytes)} (file {_growth(file)}), {file.seconds:.2f} s"
        )
    headline(arrow(file), what, say, _style(_number(file) or len(indexes)))
    if _number(file) and indexes:
        say(f"  and {indexes}")
    say_travel(file, say)
    worst: dict[str, list[Any]] = {}
    for f in file.filters:
        if not f.reached:
            worst.setdefault(f.column, []).append(f)
    for column, filters in worst.items():
        where = f"row group {filters[0].row_group}" if len(filters) == 1 else plural(len(filters), "row group")
        most = max(filters, key=lambda f: f.fpp)
        at_worst = "" if len(filters) == 1 else " at worst"
        say(f"  {column}, {where}: {size(most.num_bytes)} reach an fpp of {share(most.fpp)}{at_worst}")


def _print_totals(files: Sequence[Any], say: Say) -> None:
    dry = files[0].dry_run
    filters = sum(map(_number, files))
    before = sum(f.bytes_before for f in files)
    nothing, indexes = sum(not _number(f) for f in files), _indexes(files)
    of_files = f"{plural(len(files), 'file')}, {size(before)}"
    if dry:
        would = f"would add {plural(filters, 'filter')}, up to {size(sum(f.planned_bytes for f in files))}"
        say(f"{of_files}: {would if filters else 'nothing to add'}", _style(filters))
        if filters or any(f.source != f.output for f in files):
            say(f"  needs up to {size(disk_for(files))} of disk")
    else:
        added = sum(f.filter_bytes for f in files)
        grown = growth(before, sum(f.bytes_after for f in files))
        seconds = sum(f.seconds for f in files)
        what = f"{plural(filters, 'filter')}, {size(added)} (files {grown})" if filters else "nothing to add"
        say(f"{of_files}: {what}, {seconds:.2f} s", _style(filters))
    if indexes:
        say(f"  {'would add ' if dry else ''}{indexes}")
    if 0 < nothing < len(files):
        say(f"  {plural(nothing, 'file')}: nothing to add")
    _say_travel_of_all(files, say)


def disk_for(files: Sequence[Any]) -> int:
    """Bytes of disk that a dry run's files need at most: in place, one old file at a time lies beside its new one."""
    here = [f for f in files if f.source == f.output]
    there: int = sum(f.bytes_needed for f in files if f.source != f.output)
    return there + sum(int(f.planned_bytes) for f in here) + max((int(f.bytes_needed) for f in here), default=0)


def print_columns(files: Sequence[Any], say: Say) -> None:
    """Print the filters of each column, over several files."""
    dry, many = files[0].dry_run, len(files)
    sums: dict[str, _Sum] = {}
    for file in files:
        for column, n in file.planned.items() if dry else ():
            sums.setdefault(column, _Sum(column)).add(file, n)
        for f in file.filters:
            sums.setdefault(f.column, _Sum(f.column)).add(file, 1, f.length, f.fpp)
    table = Table.of(
        list(sums.values()),
        Column("column", lambda one: one.column, "name"),
        Column("files", lambda one: f"{len(one.files):,} of {many:,}", "number"),
        Column("filters", lambda one: f"{one.filters:,}", "number"),
        not dry and Column("bytes", lambda one: size(one.bytes), "number"),
        not dry and Column("worst fpp", lambda one: share(one.fpp), "number"),
    )
    if sums:
        say(table)


@dataclass
class _Sum:
    """The filters of a column; files by their sources."""

    column: str
    files: set[str] = field(default_factory=set)
    filters: int = 0
    bytes: int = 0
    fpp: float = 0.0

    def add(self, file: Any, filters: int, length: int = 0, fpp: float = 0.0) -> None:
        self.files.add(file.source)
        self.filters, self.bytes, self.fpp = self.filters + filters, self.bytes + length, max(self.fpp, fpp)


def _print_filters(files: Sequence[Any], say: Say) -> None:
    for file in files:
        if file.filters:
            if len(files) > 1:
                say(file.source)
            say(
                Table.of(
                    file.filters,
                    Column("row group", lambda f: f.row_group, "number"),
                    Column("column", lambda f: f.column, "name"),
                    Column("bytes", lambda f: size(f.num_bytes), "number"),
                    Column("fpp", lambda f: share(f.fpp), "number"),
                    Column("distinct", lambda f: f"{f.estimated_ndv:,.0f}", "number"),
                )
            )


def say_travel(file: Any, say: Say) -> None:
    """For a file on another storage: what went over the wire, and why it had to."""
    if file.remote and not file.dry_run:
        copied = f", {size(file.bytes_copied)} copied inside the store" if file.bytes_copied else ""
        why = f": {file.why_travelled}" if file.why_travelled else ""
        say(f"  {size(file.bytes_travelled)} travelled{copied}{why}")


def _say_travel_of_all(files: Sequence[Any], say: Say) -> None:
    remote = [f for f in files if f.remote and not f.dry_run]
    if remote:
        copied = sum(f.bytes_copied for f in remote)
        inside = f", {size(copied)} copied inside the store" if copied else ""
        say(f"  {size(sum(f.bytes_travelled for f in remote))} travelled{inside}")
        for why in dict.fromkeys(f.why_travelled for f in remote if f.why_travelled):
            say(f"  {why}")


def _growth(file: Any) -> str:
    return "-" if file.dry_run else growth(file.bytes_before, file.bytes_after)


def arrow(file: Any) -> str:
    """The file and its output, where that is another one."""
    return str(file.source) if file.source == file.output else f"{file.source} -> {file.output}"


# --- rows changed ---------------------------------------------------------------------------------


def print_changes(report: Any, everything: bool, say: Say) -> None:
    """Print a KeyChanges; its files if everything is to be shown."""
    counts = [
        (report.deleted, "row", "deleted"),
        (report.replaced, "row", "replaced"),
        (report.appended, "new row", "appended"),
    ]
    rows = ", ".join(f"{plural(n, noun)} {done}" for n, noun, done in counts if n) or "no row has a key"
    headline(report.source, rows, say, "green" if any(n for n, _, _ in counts) else "")
    files = report.rewritten
    some = f"{len(files):,} of {plural(report.files, 'file')}"
    if report.dry_run:
        say(f"  would rewrite {some}; nothing was written")
    elif report.rewritten or report.commit is not None:
        committed = "" if report.commit is None else f"; committed version {report.commit}"
        say(f"  rewrote {some}, wrote {size(report.bytes_written)}{committed}")
    if everything and files:
        shown = 4 if report.dry_run else 5
        rows_of = [(one.path, one.rows, one.deleted, size(one.bytes_before), size(one.bytes_after)) for one in files]
        headings = ("file", "rows", "of these gone", "bytes", "bytes after")
        print_files(headings[:shown], [row[:shown] for row in rows_of], everything, say)
