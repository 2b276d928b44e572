"""Reports of `inspect`, `verify` and `status` for people: totals, a line a column and a file, outliers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from parquet_bloom.errors import parameter
from parquet_bloom.format.forms import format_named
from parquet_bloom.options import DEFAULT_FORM
from parquet_bloom.report.added import arrow, enumerated, print_files, say_travel
from parquet_bloom.report.gates import sampled_text, status_text
from parquet_bloom.report.text import (
    COMMAND,
    Column,
    Say,
    Table,
    between,
    count,
    gist,
    growth,
    headline,
    plural,
    ranges,
    share,
    size,
)

_WRONG_SHOWN = 20  # wrong statistics, a line for each of a column
# --- statistics -----------------------------------------------------------------------------------

_TEXTS_SHOWN = 5  # problems, notes or reasons of different kinds


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


# --- outliers -------------------------------------------------------------------------------------
#
# What stands out among many filters: row groups that lack one, and filters that are much fuller than the others.

_SHOWN = 3  # of a kind
_FULL = 0.05  # an fpp below it is no one's trouble
_TIMES = 4  # the column's median


def outlier_lines(files: Sequence[Any]) -> list[str]:
    """One line a column that row groups lack, and one each for the fullest filters.

    files  FileInfos of which some have filters
    """
    columns: dict[str, list[tuple[Any, Any]]] = {}
    for file in files:
        for f in file.filters:
            columns.setdefault(f.column, []).append((file, f))
    without = [line for name, found in columns.items() for line in _without(name, found, files)]
    if len(without) > _SHOWN:
        without[_SHOWN:] = [f"  ... and {plural(len(without) - _SHOWN, 'column')} more that some row groups lack"]
    return without + _fullest(columns, files)


def _without(column: str, found: Sequence[tuple[Any, Any]], files: Sequence[Any]) -> Iterator[str]:
    """The row groups that lack a filter on a column that others have."""
    there: dict[str, set[int]] = {}
    for file, f in found:
        there.setdefault(file.path, set()).add(f.row_group)
    lacking = {
        file.path: [n for n in range(file.row_groups) if n not in there.get(file.path, ())]
        for file in files
        if file.row_groups > len(there.get(file.path, ()))
    }
    count = sum(map(len, lacking.values()))
    if not 0 < 2 * count < sum(file.row_groups for file in files):  # where most lack one, the table says enough
        return
    groups = plural(count, "row group")
    if len(files) == 1:
        yield f"  without a filter on {column}: {groups}, {ranges(next(iter(lacking.values())), _SHOWN)}"
        return
    # Files with some filters are odder than those that nobody has touched.
    paths = sorted(lacking, key=lambda path: path not in there)
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    where = plural(len(paths), "file")
    yield f"  without a filter on {column}: {groups} in {where}, {', '.join(paths[:_SHOWN])}{more}"


def _fullest(columns: dict[str, list[tuple[Any, Any]]], files: Sequence[Any]) -> list[str]:
    """The fullest filters, where they are much fuller than the others of their column."""
    full = []
    for name, found in columns.items():
        filled = [(file, f) for file, f in found if f.num_bytes]
        usual = sorted(f.fpp for _, f in filled)[len(filled) // 2] if filled else 0.0
        full += [(f.fpp, name, usual, file, f) for file, f in filled if f.fpp >= max(_FULL, _TIMES * usual)]
    full.sort(key=lambda one: -one[0])
    lines = []
    for fpp, name, usual, file, f in full[:_SHOWN]:
        path = f"{file.path}, " if len(files) > 1 else ""
        bits = share(f.bits_set / (8 * f.num_bytes))
        lines.append(
            f"  very full: {path}row group {f.row_group}, {name}: fpp {share(fpp)} by {bits} of the bits of "
            f"{size(f.num_bytes)}, where {share(usual)} is usual"
        )
    if len(full) > _SHOWN:
        lines.append(f"  ... and {plural(len(full) - _SHOWN, 'filter')} more as full; --all has all")
    return lines


# --- filters --------------------------------------------------------------------------------------

_SHOWN_PAGES = 8  # columns


def _page_lines(files: Sequence[Any]) -> Iterator[str]:
    """Lines on the page indexes of files, and on the pages of each column that has them."""
    every = [one for file in files for one in file.page_indexes]
    groups = sum(file.row_groups for file in files)
    yield from _index_lines(every, lambda column: groups)
    if added := sum(one.added for one in every):
        yield f"  {added:,} of these page indexes were added by add"
    columns: dict[str, list[Any]] = {}
    for one in every:
        if one.read:
            columns.setdefault(one.column, []).append(one)
    texts = []
    for name, found in columns.items():
        sizes, rows = (sorted(getattr(one, key) for one in found) for key in ("page_bytes", "page_rows"))
        middle = len(found) // 2  # of several files, one's
        texts.append(f"{name} {size(sizes[middle])}, {plural(rows[middle], 'row')}")
    if texts:
        yield f"  pages (medians): {'; '.join(texts[:_SHOWN_PAGES])}" + (
            f"; and {plural(len(texts) - _SHOWN_PAGES, 'more column')}" if len(texts) > _SHOWN_PAGES else ""
        )


def _index_lines(every: Sequence[Any], chunks: Callable[[str], int]) -> list[str]:
    """Lines on page indexes: which columns have them, and in how many of its chunks."""
    lines = []
    for kind, counted in (("offset", "offset_indexes"), ("column", "column_indexes")):
        columns: dict[str, int] = {}
        for one in every:
            if number := getattr(one, counted):
                columns[one.column] = columns.get(one.column, 0) + number
        if columns:
            where = f"in {sum(columns.values()):,} of {sum(map(chunks, columns)):,} column chunks"
            lines.append(f"  {kind} indexes of {enumerated(list(columns))}: {where}")
    return lines


def print_inspected(files: Sequence[Any], everything: bool, say: Say) -> None:
    """Print FileInfos."""
    filters = [f for file in files for f in file.filters]
    form = _form(filters)
    _say_total(files, filters, f" ({form})" if form else "", say)
    if everything:
        for file in files:
            if len(files) > 1:
                _say_total([file], file.filters, "", say)
            if file.filters:
                _print_every(file.filters, not form, say)
    elif filters:
        _print_by_column(files, not form, say)
        for line in outlier_lines(files):
            say(line)
    for line in _page_lines(files):
        say(line)
    if older := sum(file.older_footers for file in files):
        taken = size(sum(file.older_footer_bytes for file in files))
        off = sum(file.tails for file in files)
        repaired = any(file.repaired for file in files)
        stay = "repair --undo takes a repair off" if repaired else "they stay, under another program's footer"
        what = f"remove takes {plural(off, 'tail')} off" if off else stay
        say(f"  {plural(older, 'older footer')} under tails, {taken}; {what}")
    _say_texts("problem", _texts(files, "problems"), say)
    _say_texts("note", _texts(files, "notes"), say)
    if len(files) > 1 and filters and not everything:
        # What stands out comes first; the sort is stable.
        files = sorted(files, key=lambda file: (-file.problems, len(file.filters) / max(1, file.row_groups)))
        rows = [
            (file.path, file.row_groups, len(file.filters), size(file.filter_bytes), file.problems) for file in files
        ]
        print_files(("file", "row groups", "filters", "bytes", "problems"), rows, everything, say)


def _say_total(files: Sequence[Any], filters: Sequence[Any], form: str, say: Say) -> None:
    rows, groups = sum(f.rows for f in files), sum(f.row_groups for f in files)
    taken, whole = sum(f.num_bytes for f in filters), sum(f.size for f in files)
    problems = sum(f.problems for f in files)
    bad = f", {plural(problems, 'problem')}" if problems else ""
    of = "it" if len(files) == 1 else "them"
    part = f", {size(taken)} ({share(taken / whole if whole else 0)} of {of})"
    found = f"{plural(len(filters), 'filter')}{form}{part}" if filters else "no filter"
    style = "red" if problems else "green" if filters else ""
    _say_of(files, f"{rows:,} rows, {plural(groups, 'row group')}, {found}{bad}", say, style)


def _say_of(files: Sequence[Any], what: str, say: Say, style: str) -> None:
    """Say something of one file, or of all."""
    if len(files) == 1:
        headline(files[0].path, what, say, style)
    else:
        say(f"{plural(len(files), 'file')}: {what}", style)


def _form(filters: Sequence[Any]) -> str:
    """Spec and place, where these are the same for all filters."""
    forms = {(f.spec or "?", f.place) for f in filters}
    return "{}, {}".format(*forms.pop()) if len(forms) == 1 else ""


def _by_column(filters: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    for f in filters:
        found.setdefault(f.column, []).append(f)
    return list(found.items())


def _print_by_column(files: Sequence[Any], with_form: bool, say: Say) -> None:
    groups = sum(file.row_groups for file in files)
    columns = _by_column(f for file in files for f in file.filters)
    say(
        Table.of(
            columns,
            Column("column", lambda one: one[0], "name"),
            with_form and Column("form", lambda one: _forms(one[1])),
            Column("filters", lambda one: f"{len(one[1]):,} of {groups:,}", "number"),
            Column("bytes", lambda one: size(sum(f.num_bytes for f in one[1])), "number"),
            Column("bits set", lambda one: _range([f.bits_set / (8 * f.num_bytes) for f in _filled(one[1])]), "number"),
            Column("fpp", lambda one: _range([f.fpp for f in _filled(one[1])]), "number"),
            Column("distinct", lambda one: _distinct(one[1]), "number"),
            # Columns of nothing but zeros would push others together.
            any(map(_problems, columns)) and Column("problems", _problems, "number"),
            style=lambda one: "red" if _problems(one) else "",
        )
    )


def _problems(of_column: tuple[str, list[Any]]) -> int:
    return sum(len(f.problems) for f in of_column[1])


def _filled(filters: Sequence[Any]) -> list[Any]:
    return [f for f in filters if f.num_bytes]


def _forms(filters: Sequence[Any]) -> str:
    return _form(filters) or plural(len({(f.spec, f.place) for f in filters}), "form")


def _distinct(filters: Sequence[Any]) -> str:
    return between(list(dict.fromkeys(map(_short, sorted(f.estimated_ndv for f in _filled(filters)))))) or "-"


def _print_every(filters: Sequence[Any], with_form: bool, say: Say) -> None:
    say(
        Table.of(
            filters,
            Column("row group", lambda f: f.row_group, "number"),
            Column("column", lambda f: f.column, "name"),
            with_form and Column("form", lambda f: f"{f.spec or '?'}, {f.place}"),
            Column("offset", lambda f: "-" if f.offset is None else f.offset, "number"),
            Column("bytes", lambda f: size(f.num_bytes), "number"),
            Column("bits set", lambda f: share(f.bits_set / (8 * f.num_bytes)) if f.num_bytes else "-", "number"),
            Column("fpp", lambda f: share(f.fpp) if f.num_bytes else "-", "number"),
            Column("distinct", lambda f: count(f.estimated_ndv), "number"),
            style=lambda f: "red" if f.problems else "",
        )
    )


def print_verified(files: Sequence[Any], everything: bool, say: Say) -> None:
    """Print VerifiedFiles."""
    filters = [f for file in files for f in file.filters]
    wrong = sum(len(file.wrong) for file in files)
    compared = [file for file in files if file.statistics is not None]
    bad = f"{wrong:,} wrong" if wrong else "none wrong" if filters or compared else "nothing to verify"
    some = f", {sampled}" if (sampled := sampled_text(files)) else ""
    if files:
        style = "red" if wrong else "green" if filters else ""
        _say_of(files, f"{plural(len(filters), 'filter')}, {bad}{some}", say, style)
    if everything:
        for file in files:
            if len(files) > 1:
                headline(file.path, f"{plural(len(file.filters), 'filter')}, {len(file.wrong):,} wrong", say)
            if file.filters:
                _print_verdicts(file.filters, say)
    elif filters:
        _print_verdicts_by_column(filters, say)
    for status in ("wrong", "unknown"):
        found = [
            (file.path if len(files) > 1 else "", f, f.reason)
            for file in files
            for f in file.filters
            if f.status == status
        ]
        _say_texts(status, found, say)
    if len(files) > 1 and filters and not everything:
        files = sorted(files, key=lambda file: -len(file.wrong))
        rows = [(f.path, f.row_groups, len(f.filters), len(f.wrong)) for f in files]
        print_files(("file", "row groups", "filters", "wrong"), rows, everything, say)
    if compared:
        print_statistics([(file.path, file.statistics) for file in compared], everything, say)


def _print_verdicts(filters: Sequence[Any], say: Say) -> None:
    say(
        Table.of(
            filters,
            Column("row group", lambda f: f.row_group, "number"),
            Column("column", lambda f: f.column, "name"),
            Column("spec", lambda f: f.spec or "?"),
            Column("values", lambda f: f"{f.values:,}", "number"),
            Column("missed", lambda f: f"{f.missed:,}", "number"),
            Column("measured fpp", lambda f: share(f.measured_fpp), "number"),
            Column("verdict", lambda f: f.status),
            style=lambda f: "red" if f.status == "wrong" else "",
        )
    )


def _print_verdicts_by_column(filters: Sequence[Any], say: Say) -> None:
    say(
        Table.of(
            _by_column(filters),
            Column("column", lambda one: one[0], "name"),
            Column("spec", lambda one: ", ".join(sorted({f.spec or "?" for f in one[1]}))),
            Column("filters", lambda one: f"{len(one[1]):,}", "number"),
            Column("values", lambda one: f"{sum(f.values for f in one[1]):,}", "number"),
            Column("missed", lambda one: f"{sum(f.missed for f in one[1]):,}", "number"),
            Column("measured fpp", lambda one: share(_measured(one[1])), "number"),
            Column("verdict", lambda one: _verdict(one[1])),
            style=lambda one: "red" if "wrong" in _verdict(one[1]) else "",
        )
    )


def _measured(filters: Sequence[Any]) -> float | None:
    absent = sum(f.absent for f in filters)
    admitted = sum(f.measured_fpp * f.absent for f in filters if f.measured_fpp is not None)
    return admitted / absent if absent else None


def _verdict(filters: Sequence[Any]) -> str:
    states = Counter(f.status for f in filters)
    return ", ".join(f"{states[s]:,} {s}" for s in ("wrong", "unknown", "right") if states[s])


def _texts(files: Sequence[Any], kind: str) -> list[tuple[str, Any, str]]:
    many = len(files) > 1
    return [(file.path if many else "", f, text) for file in files for f in file.filters for text in getattr(f, kind)]


def _say_texts(what: str, found: Sequence[tuple[str, Any, str]], say: Say) -> None:
    """Print texts about filters: those that differ in numbers alone once, by the first filter."""
    groups: dict[str, list[tuple[str, Any, str]]] = {}
    for one in found:
        groups.setdefault(gist(one[2]), []).append(one)
    for group in list(groups.values())[:_TEXTS_SHOWN]:
        path, f, text = group[0]
        where = f"{path}, " * bool(path) + f"row group {f.row_group}, column {f.column}"
        many = f"{plural(len(group), 'filter')}, the first: " if len(group) > 1 else ""
        say(f"  {what}: {many}{where}: {text}")
    if len(groups) > _TEXTS_SHOWN:
        say(f"  ... and {len(groups) - _TEXTS_SHOWN:,} more; --json has all")


def _range(shares: Sequence[float]) -> str:
    """31 %, 31-35 % or up to 35 %."""
    texts = list(dict.fromkeys(map(share, (min(shares), max(shares)) if shares else ())))
    if len(texts) == 2 and texts[0].startswith("<"):
        return f"up to {texts[1]}"
    return "-" if not texts else texts[0] if len(texts) == 1 else f"{texts[0].removesuffix(' %')}-{texts[1]}"


def _short(number: float) -> str:
    """About so many."""
    return count(number) if number < 10_000 or number == float("inf") else f"{number:.2g}"


# --- status ---------------------------------------------------------------------------------------
#
# What `status` found, for people: a line a column, what is missing in words, and the command that adds it.


def print_status(report: Any, name: str, say: Say) -> None:
    """Print a StatusReport; name: what was named, or nothing."""
    of = ", ".join([*([name] if name else []), *([f"version {report.version}"] if report.version else [])])
    looked = f"{plural(report.files, 'file')}, {plural(report.row_groups, 'row group')}"
    say(f"{of}: {looked}" if of else looked)
    groups = {one.column: one.row_groups for one in report.page_indexes}
    for line in _index_lines(report.page_indexes, groups.__getitem__):
        say(line)
    if not report.columns:
        say("  no column has a filter; `parquet-bloom add` gives them some, `parquet-bloom advise` says which")
        return
    lost = any(one.row_groups_lost for one in report.columns)
    say(
        Table.of(
            report.columns,
            Column("column", lambda one: one.column, "name"),
            Column("have", lambda one: f"{one.row_groups - one.row_groups_lacking:,}", "number"),
            Column("lack", lambda one: f"{one.row_groups_lacking:,}", "number"),
            lost and Column("lost", lambda one: f"{one.row_groups_lost:,}", "number"),
            lost and Column("since", lambda one: one.lost_since or "-", "number"),
            Column("whole files", lambda one: f"{one.files - one.files_lacking:,} of {one.files:,}", "number"),
            Column("bytes", lambda one: size(one.filter_bytes), "number"),
            Column("worst fpp", lambda one: share(one.fpp), "number"),
            style=lambda one: "red" if one.incomplete else "",
        )
    )
    for one in report.columns:
        if one.row_groups_lacking:
            say(f"  {status_text(one)}" + (f"; none is worth its bytes: {one.no_gain}" if one.no_gain else ""))
    if report.complete:
        but = ", but for columns that gain nothing by them" if any(one.no_gain for one in report.columns) else ""
        say(f"  each row group that holds a value has its filters{but}")
    if report.mend:
        say("  to add what is missing:")
    for command in report.mend:
        say(command, COMMAND)
    lacking_some = [one for one in report.columns if one.incomplete]
    if report.mend and (unknown := [one.column for one in lacking_some if one.fpp_target is None]):
        whom = "new filters get" if len(unknown) == len(lacking_some) else f"on {', '.join(unknown)} they get"
        rate = share(format_named(DEFAULT_FORM).fpp)
        say(f"  {whom} the default false positive rate, {rate}; " + parameter("fpp") + " sets another")
