"""What `inspect` and `verify` found, for people: totals, a line a column and a file; every filter if asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from parquet_bloom.report.added import print_files
from parquet_bloom.report.outliers import outlier_lines
from parquet_bloom.report.tables import between, count, plural, print_table, share, size
from parquet_bloom.report.text import Say, gist, headline

_TEXTS_SHOWN = 5  # problems, notes or reasons of different kinds


def print_inspected(files: Sequence[Any], everything: bool, say: Say) -> None:
    """Tell of FileInfos."""
    filters = [f for file in files for f in file.filters]
    form = _form(filters)
    _say_total(files, filters, f" ({form})" if form else "", say)
    if everything:
        for file in files:
            if len(files) > 1:
                _say_total([file], file.filters, "", say)
            if file.filters:
                _print_every(file.filters, not form)
    elif filters:
        _print_by_column(files, not form)
        for line in outlier_lines(files):
            say(line)
    if older := sum(file.older_footers for file in files):
        taken = size(sum(file.older_footer_bytes for file in files))
        off = sum(file.tails for file in files)
        what = f"remove takes {plural(off, 'tail')} off" if off else "they stay, under another program's footer"
        say(f"  {plural(older, 'older footer')} under tails, {taken}; {what}")
    _say_texts("problem", _texts(files, "problems"), say)
    _say_texts("note", _texts(files, "notes"), say)
    if len(files) > 1 and filters and not everything:
        # What stands out comes first; the sort is stable.
        files = sorted(files, key=lambda file: (-file.problems, len(file.filters) / max(1, file.row_groups)))
        rows = [(file.path, file.row_groups, len(file.filters), size(file.filter_bytes), file.problems)
                for file in files]  # fmt: skip
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


def _print_by_column(files: Sequence[Any], with_form: bool) -> None:
    groups = sum(file.row_groups for file in files)
    rows = []
    for column, filters in _by_column(f for file in files for f in file.filters).items():
        filled = [f for f in filters if f.num_bytes]
        set_shares = sorted(f.bits_set / (8 * f.num_bytes) for f in filled)
        ndvs = sorted(f.estimated_ndv for f in filled)
        forms = [_form(filters) or plural(len({(f.spec, f.place) for f in filters}), "form")] if with_form else []
        rows.append((
            column, *forms, f"{len(filters):,} of {groups:,}", size(sum(f.num_bytes for f in filters)),
            _range(set_shares), _range(sorted(f.fpp for f in filled)),
            between(list(dict.fromkeys(map(_short, ndvs)))) or "-", sum(len(f.problems) for f in filters),
        ))  # fmt: skip
    forms = ["form"] if with_form else []
    headings = ("column", *forms, "filters", "bytes", "bits set", "fpp", "distinct", "problems")
    # Columns of nothing but zeros would push others together.
    shown = len(headings) if any(row[-1] for row in rows) else len(headings) - 1
    first = 1 + len(forms)
    bad = dict.fromkeys([number for number, row in enumerate(rows) if row[-1]], "red")
    print_table(headings[:shown], [row[:shown] for row in rows], range(first, shown), names=(0,), styles=bad)


def _print_every(filters: Sequence[Any], with_form: bool) -> None:
    rows = []
    for f in filters:
        form = [f"{f.spec or '?'}, {f.place}"] if with_form else []
        bits = share(f.bits_set / (8 * f.num_bytes)) if f.num_bytes else "-"
        offset = "-" if f.offset is None else f.offset
        rate = share(f.fpp) if f.num_bytes else "-"
        rows.append((f.row_group, f.column, *form, offset, size(f.num_bytes), bits, rate, count(f.estimated_ndv)))
    first = 3 if with_form else 2
    headings = ("row group", "column", *["form"] * with_form, "offset", "bytes", "bits set", "fpp", "distinct")
    bad = dict.fromkeys([number for number, f in enumerate(filters) if f.problems], "red")
    print_table(headings, rows, right=(0, *range(first, first + 5)), names=(1,), styles=bad)


def print_verified(files: Sequence[Any], everything: bool, say: Say) -> None:
    """Tell of VerifiedFiles."""
    filters = [f for file in files for f in file.filters]
    wrong = sum(len(file.wrong) for file in files)
    bad = f"{wrong:,} wrong" if wrong else "none wrong" if filters else "nothing to verify"
    looked, groups = sum(f.sampled for f in files), sum(f.row_groups for f in files)
    some = f", {looked:,} of {groups:,} row groups looked at" if looked < groups else ""
    if files:
        style = "red" if wrong else "green" if filters else ""
        _say_of(files, f"{plural(len(filters), 'filter')}, {bad}{some}", say, style)
    if everything:
        for file in files:
            if len(files) > 1:
                headline(file.path, f"{plural(len(file.filters), 'filter')}, {len(file.wrong):,} wrong", say)
            _print_verdicts(file.filters)
    elif filters:
        _print_verdicts_by_column(filters)
    for status in ("wrong", "unknown"):
        found = [(file.path if len(files) > 1 else "", f, f.reason)
                 for file in files for f in file.filters if f.status == status]  # fmt: skip
        _say_texts(status, found, say)
    if len(files) > 1 and filters and not everything:
        files = sorted(files, key=lambda file: -len(file.wrong))
        rows = [(f.path, f.row_groups, len(f.filters), len(f.wrong)) for f in files]
        print_files(("file", "row groups", "filters", "wrong"), rows, everything, say)


def _print_verdicts(filters: Sequence[Any]) -> None:
    if filters:
        rows = [
            (f.row_group, f.column, f.spec or "?", f"{f.values:,}", f"{f.missed:,}", share(f.measured_fpp), f.status)
            for f in filters
        ]
        headings = ("row group", "column", "spec", "values", "missed", "measured fpp", "verdict")
        bad = dict.fromkeys([number for number, f in enumerate(filters) if f.status == "wrong"], "red")
        print_table(headings, rows, right=(0, 3, 4, 5), names=(1,), styles=bad)


def _print_verdicts_by_column(filters: Sequence[Any]) -> None:
    rows = []
    for column, found in _by_column(filters).items():
        absent = sum(f.absent for f in found)
        admitted = sum(f.measured_fpp * f.absent for f in found if f.measured_fpp is not None)
        states = Counter(f.status for f in found)
        verdict = ", ".join(f"{states[s]:,} {s}" for s in ("wrong", "unknown", "right") if states[s])
        specs = ", ".join(sorted({f.spec or "?" for f in found}))
        counts = (len(found), sum(f.values for f in found), sum(f.missed for f in found))
        rows.append((column, specs, *map("{:,}".format, counts), share(admitted / absent if absent else None), verdict))
    headings = ("column", "spec", "filters", "values", "missed", "measured fpp", "verdict")
    bad = dict.fromkeys([number for number, row in enumerate(rows) if "wrong" in row[-1]], "red")
    print_table(headings, rows, right=(2, 3, 4, 5), names=(0,), styles=bad)


def _by_column(filters: Iterable[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for f in filters:
        found.setdefault(f.column, []).append(f)
    return found


def _texts(files: Sequence[Any], kind: str) -> list[tuple[str, Any, str]]:
    many = len(files) > 1
    return [(file.path if many else "", f, text)
            for file in files for f in file.filters for text in getattr(f, kind)]  # fmt: skip


def _say_texts(what: str, found: Sequence[tuple[str, Any, str]], say: Say) -> None:
    """Tell texts about filters: those that differ in numbers alone once, by the first filter."""
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
    """31 %, 31-35 % or up to 35 %, of sorted shares."""
    texts = list(dict.fromkeys(share(s) for s in (*shares[:1], *shares[-1:])))
    if len(texts) == 2 and texts[0].startswith("<"):
        return f"up to {texts[1]}"
    return "-" if not texts else texts[0] if len(texts) == 1 else f"{texts[0].removesuffix(' %')}-{texts[1]}"


def _short(number: float) -> str:
    """About so many."""
    return count(number) if number < 10_000 or number == float("inf") else f"{number:.2g}"
