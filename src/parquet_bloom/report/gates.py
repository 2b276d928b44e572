"""Conditions for continuous integration: gates, and annotations of a GitHub workflow run.

Source of the annotations' form: "Workflow commands for GitHub Actions", notice, warning and error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from parquet_bloom.report.text import plural

_SHOWN = 10  # annotations of one kind that a run shows
_ESCAPED = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_NAMES = {**_ESCAPED, ":": "%3A", ",": "%2C"}


class Gate(NamedTuple):
    """One condition: its option, whether it is met, and why not."""

    gate: str
    holds: bool
    reason: str = ""


def min_skipped(verdicts: Any, percent: float) -> Gate:
    """Whether so many percent of the row groups are skipped; of no row groups, all are.

    A file that was not opened counts as one row group where no index knows how many it has.
    """
    known = [1 if one.row_groups is None else one.row_groups for one in verdicts.excluded]
    total, skipped = len(verdicts) + sum(known), verdicts.skipped + sum(known)
    holds = 100 * skipped >= percent * total
    share = f"{skipped:,} of {plural(total, 'row group')} skipped"
    found = f"{share}, {100 * skipped / total:.4g} %" if total else share
    return Gate("min-skipped", holds, "" if holds else f"{found}; at least {percent:g} % were asked for")


def assert_filters(files: Sequence[Any], columns: Sequence[str]) -> Gate:
    """Whether the columns have a sound filter in each row group that holds a value, by FileInfo's `lacking`."""
    lacking = [(file.path, column, groups) for file in files for column, groups in file.lacking.items()]
    if not lacking:
        return Gate("assert-filters", True)
    path, column, groups = lacking[0]
    more = f"; {plural(len(lacking) - 1, 'more column')} of files" if len(lacking) > 1 else ""
    return Gate("assert-filters", False, f"{path}: {lacking_text(column, groups)}{more}")


def status_gates(report: Any, columns: Sequence[str], complete: bool) -> list[Gate]:
    """Of a StatusReport: whether the columns that were named have all filters, and whether all columns have."""
    asked = [("assert-filters", {*report.asserted})] if columns else []
    asked += [("assert-complete", {one.column for one in report.columns})] if complete else []
    gates = []
    for name, wanted in asked:
        lacking = [one for one in report.columns if one.column in wanted and one.incomplete]
        more = f"; {plural(len(lacking) - 1, 'more column')}" if len(lacking) > 1 else ""
        gates.append(Gate(name, not lacking, status_text(lacking[0]) + more if lacking else ""))
    return gates


def status_text(one: Any) -> str:
    """The missing filters of a ColumnStatus, in words."""
    of, files = plural(one.row_groups, "row group"), f"{one.files_lacking:,} of {plural(one.files, 'file')}"
    if not one.row_groups_lost:
        lack = "lacks" if one.row_groups_lacking == 1 else "lack"
        return f"{one.row_groups_lacking:,} of {of} {lack} a filter on {one.column} ({files})"
    others = one.row_groups_lacking - one.row_groups_lost
    more = f"; {others:,} more {'lacks' if others == 1 else 'lack'} it" if others else ""
    have = "has" if one.row_groups_lost == 1 else "have"
    since = f"no filter on {one.column} since version {one.lost_since}"
    return f"{one.row_groups_lost:,} of {of} {have} {since}{more} ({files})"


def lacking_text(column: str, groups: Sequence[int]) -> str:
    """The missing filters of a column, in words."""
    shown = ", ".join(map(str, groups[:_SHOWN])) + (", ..." if len(groups) > _SHOWN else "")
    return f"{column} has no sound filter in {plural(len(groups), 'row group')} ({shown})"


def none_wrong(files: Sequence[Any]) -> Gate:
    """Whether no filter and no statistic is wrong; files are VerifiedFile."""
    wrong = [(file.path, one) for file in files for one in file.wrong]
    if wrong:
        path, first = wrong[0]
        many = f"{plural(len(wrong), 'filter')} wrong; the first: " if len(wrong) > 1 else "a filter is wrong: "
        return Gate("verify", False, f"{many}{path}, {_of(first)}: {first.reason}")
    lies = [(file.path, one) for file in files for one in file.wrong_statistics]
    if lies:
        path, first = lies[0]
        many = f"{plural(len(lies), 'statistic')} wrong; the first: " if len(lies) > 1 else "a statistic is wrong: "
        return Gate("verify", False, f"{many}{path}, {first.text}")
    return Gate("verify", True)


def sampled_text(files: Sequence[Any]) -> str:
    """How many row groups a sample of VerifiedFiles leaves unread; empty where all were read."""
    read, groups = sum(f.sampled for f in files), sum(f.row_groups for f in files)
    return f"{read:,} of {plural(groups, 'row group')} verified" if read < groups else ""


# --- annotations --------------------------------------------------------------------------------------


def annotation(level: str, text: str, title: str, file: str | None = None) -> str:
    """One line that GitHub shows beside a run, or beside a file of it. level: notice, warning or error."""
    names = {"file": file, "title": title}
    given = ",".join(f"{name}={_escaped(value, _IN_NAMES)}" for name, value in names.items() if value)
    return f"::{level} {given}::{_escaped(text, _ESCAPED)}"


def of_check(verdicts: Any, gates: Sequence[Gate]) -> Iterator[str]:
    """The sums of a check, files that failed, gates that do not hold."""
    from parquet_bloom.report.skipping import line  # loads pyarrow

    title = "parquet-bloom check"
    yield annotation("notice", line(verdicts, verdicts.excluded), title)
    yield from of_failed(verdicts.failed, title)
    yield from _of_gates(gates, title)


def of_inspect(report: Any, gates: Sequence[Gate]) -> Iterator[str]:
    """Files whose filters have problems, or that lack filters; files that failed."""
    title = "parquet-bloom inspect"
    for file in report.files:
        odd = [one for one in file.filters if one.problems]
        if odd:
            text = f"{plural(len(odd), 'filter')} with problems; the first: {_of(odd[0])}: {odd[0].problems[0]}"
            yield annotation("warning", text, title, file.path)
        for column, groups in file.lacking.items():
            yield annotation("error", lacking_text(column, groups), title, file.path)
    yield from of_failed(report.failed, title)
    yield from _of_gates([gate for gate in gates if gate.gate != "assert-filters"], title)


def of_status(report: Any, gates: Sequence[Gate]) -> Iterator[str]:
    """Columns that lack filters: an error where a gate names them, else a warning; files that failed."""
    title = "parquet-bloom status"
    for one in report.columns:
        if one.incomplete:
            level = "error" if not all(gate.holds for gate in gates) else "warning"
            yield annotation(level, status_text(one), title)
    yield from of_failed(report.failed, title)


def of_verify(report: Any) -> Iterator[str]:
    """Files with wrong filters or statistics, files that failed."""
    title = "parquet-bloom verify"
    for file in report.files:
        if file.wrong:
            first = file.wrong[0]
            text = f"{plural(len(file.wrong), 'filter')} wrong; the first: {_of(first)}: {first.reason}"
            yield annotation("error", text, title, file.path)
        if file.wrong_statistics:
            lies = plural(len(file.wrong_statistics), "statistic")
            text = f"{lies} wrong; the first: {file.wrong_statistics[0].text}"
            yield annotation("error", text, title, file.path)
    if some := sampled_text(report.files):
        yield annotation("notice", some, title)
    yield from of_failed(report.failed, title)


def of_failed(failed: Iterable[Any], title: str) -> Iterator[str]:
    """Files that could not be read."""
    for one in failed:
        yield annotation("error", one.reason, title, one.path)


def _of_gates(gates: Sequence[Gate], title: str) -> Iterator[str]:
    for gate in gates:
        if not gate.holds:
            yield annotation("error", gate.reason, title)


def _of(one: Any) -> str:
    return f"row group {one.row_group}, {one.column}"


def _escaped(text: str, signs: dict[str, str]) -> str:
    return "".join(signs.get(sign, sign) for sign in text)
