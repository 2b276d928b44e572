"""A result as HTML for a notebook: the summary that the command prints, and below it what people want of each row.

    print_added, print_inspected ... -> lines and tables -> a Sheet -> HTML

What is left to be read comes before what is skipped, and that is summed by reason. Nothing of a file is believed: all
texts are escaped, secrets and invisible characters taken out, lines and rows are few however large the result is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any
from xml.etree.ElementTree import Element, tostring

from parquet_bloom.report.added import print_added, print_changes, print_columns, print_commits, print_removed
from parquet_bloom.report.filters import print_inspected, print_status, print_verified
from parquet_bloom.report.page.markup import element
from parquet_bloom.report.skipping import adding, line, print_checked, summed, summed_table, unfiltered_lines
from parquet_bloom.report.text import COMMAND, Cell, Column, Say, Table, failure_lines, plural, ranges, share, size
from parquet_bloom.source.names import ShellCommand
from parquet_bloom.source.results import Result, plain
from parquet_bloom.storage.display import filled, names_of, quantity

_ROWS = 20  # of a table
_LINES = 40
_TEXT = 400  # characters of a line or a cell
_RUNS = 6  # stretches of row groups in a cell
_WHICH = 40  # characters of them, where skipped ones are summed
_FOR_COMMANDS = re.compile(r"--(?:all|json) has all|check --explain --all has all")


class Sheet:
    """Lines and tables, in order, as HTML."""

    def __init__(self) -> None:
        self._parts: list[Element] = []
        self._lines: list[str] = []
        self._left = 0

    def __call__(self, part: str | Table, style: str = "") -> None:
        """Draw a part: what a command says of its options becomes what one calls here.

        A command, to be pasted, becomes the Python that does the same, and is never cut.
        """
        if isinstance(part, Table):
            self._table(part)
        elif style == COMMAND:
            self._end_lines()
            self._parts.append(element("pre", part.python if isinstance(part, ShellCommand) else part))
        elif len(self._parts) + len(self._lines) >= _LINES:
            self._left += 1
        else:
            self._lines.append(_FOR_COMMANDS.sub("to_dict() has all", part))

    def _table(self, table: Table) -> None:
        """A table, of many rows the first."""
        self._end_lines()
        right = table.places("number")
        head = element("tr", *(_cell("th", one.heading, at in right) for at, one in enumerate(table.columns)))
        rows = table.rows[:_ROWS]
        body = [element("tr", *(_cell("td", one, at in right) for at, one in enumerate(row))) for row in rows]
        self._parts.append(element("table", element("thead", head), element("tbody", *body)))
        more = [f"and {plural(len(table.rows) - _ROWS, 'row')} more; to_dict() has all"] if table.rows[_ROWS:] else []
        for text in (*more, *table.notes):
            self(text)

    def html(self) -> str:
        """All of it."""
        if self._left:
            self._lines.append(f"and {plural(self._left, 'line')} more; to_dict() has all")
        self._end_lines()
        return tostring(element("div", *self._parts), encoding="unicode", method="html")

    def _end_lines(self) -> None:
        """Lines become paragraphs; one that begins with blanks belongs to the one before it."""
        for text in self._lines:
            inner = text.startswith(" ")
            self._parts.append(element("p", _short(text.strip()), style=_INNER if inner else _OUTER))
        self._lines = []


_OUTER, _INNER = "margin: 0.3em 0", "margin: 0.3em 0 0.3em 1.5em"


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT // 2]}\u2026{text[-_TEXT // 2 :]}"


def _cell(tag: str, cell: Cell, number: bool) -> Element:
    text = cell if isinstance(cell, str) else cell[0]
    return element(tag, _short(text), style=f"text-align: {'right' if number else 'left'}")


def html_of(result: Any) -> str:
    """A result of this package, of its fields where there is no summary of it."""
    sheet = Sheet()
    draw = next((_DRAWN[kind.__name__] for kind in type(result).__mro__ if kind.__name__ in _DRAWN), _draw_fields)
    draw(result, sheet)
    for text in failure_lines(getattr(result, "failed", ())):
        sheet(text)
    for text in getattr(result, "notes", ()):
        sheet(f"note: {text}")
    return sheet.html()


# --- files ------------------------------------------------------------------------------------------


def _draw_added(files: Sequence[Any], say: Say) -> None:
    print_added(files, False, say)
    if len(files) == 1:  # of several it is there already
        print_columns(files, say)
    for text in dict.fromkeys(one for file in files for one in (*file.warnings, *file.engine_notes)):
        say(text)


def _draw_add_report(report: Any, say: Say) -> None:
    _draw_added(report.files, say)
    print_commits(report, say)


def _draw_remove_report(report: Any, say: Say) -> None:
    print_removed(report.files, False, say)
    print_commits(report, say)


# --- row groups -------------------------------------------------------------------------------------


def _draw_verdicts(verdicts: Any, say: Say) -> None:
    """Draw the row groups that are read, or their files; then the skipped ones, summed by reason."""
    left = [v for v in verdicts if not v.skipped]
    many = len({v.path for v in verdicts}) > 1
    if len(left) > _ROWS:
        print_checked(verdicts, False, False, say)
    else:
        say(line(verdicts, verdicts.excluded))
    if 0 < len(left) <= _ROWS:
        say(
            Table.of(
                left,
                many and Column("file", lambda v: v.path),
                Column("row group", lambda v: v.row_group, "number"),
                Column("verdict", lambda v: "read"),
                Column("why", lambda v: v.reason),
                Column("rows", lambda v: f"{v.rows:,}", "number"),
                Column("bytes", lambda v: size(v.size), "number"),
            )
        )
    if skipped := summed((v for v in verdicts if v.skipped), "skip", None if many else _WHICH):
        say(summed_table(skipped, many))
    if closed := summed(verdicts.excluded, "not opened"):
        say(summed_table(closed, True, first="files"))
    *lines, last = unfiltered_lines(verdicts.columns) or [""]
    for text in lines:
        say(text)
    if (command := adding(verdicts.columns, verdicts.named)) is not None:
        say(last)
        say(command, COMMAND)
    for part, reason in verdicts.unused:
        say(f"not used to skip: {part}: {reason}")
    for text in verdicts.notes:
        say(text)


def _draw_pruned(pruned: Any, say: Say) -> None:
    kept = sum(len(groups) for _, groups in pruned)
    say(f"{kept:,} of {plural(pruned.row_groups, 'row group')} can match, in {plural(len(pruned), 'file')}")
    deleted = set(pruned.with_deletes)

    def keys(one: tuple[str, list[int]]) -> str:
        most = max((n for g in one[1] if (n := pruned.hits.get((one[0], g))) is not None), default=None)
        return "" if most is None else f"{most:,}"

    table = Table.of(
        list(pruned),
        Column("file", lambda one: one[0]),
        Column("row groups", lambda one: ranges(one[1], _RUNS)),
        bool(pruned.hits) and Column("keys at most, a row group", keys, "number"),
        bool(deleted) and Column("note", lambda one: "has deleted rows" if one[0] in deleted else ""),
    )
    if table.rows:
        say(table)


# --- zone indexes -----------------------------------------------------------------------------------


def _draw_built(report: Any, say: Say) -> None:
    over = plural(report.fragments, "fragment")
    say(f"{quantity(len(report.indexes), 'indexes')} over {over}, {report.seconds:.2f} s")
    say(
        Table.of(
            report.indexes,
            Column("column", lambda one: one.column),
            Column("type", lambda one: one.type),
            Column("zones", lambda one: f"{one.zones:,}", "number"),
            Column("bytes", lambda one: size(one.bytes), "number"),
            Column("file", lambda one: one.path),
        )
    )


def _draw_index(info: Any, say: Say) -> None:
    of = f" of {info.column} ({info.type})" if info.column else ""
    say(f"{info.path}: {plural(len(info.zones), 'zone')}{of}, {info.items:,} rows each for {info.probability:g}")
    say(
        Table.of(
            sorted(info.zones, key=lambda zone: not zone.problems),
            Column("fragment", lambda z: z.fragment_id, "number"),
            Column("start", lambda z: f"{z.zone_start:,}", "number"),
            Column("rows", lambda z: f"{z.zone_length:,}", "number"),
            Column("bytes", lambda z: size(z.bytes), "number"),
            Column("fpp", lambda z: share(z.fpp), "number"),
            any(zone.problems for zone in info.zones) and Column("problems", lambda z: "; ".join(z.problems)),
        )
    )


def _draw_matches(found: Any, say: Say) -> None:
    rows = f"{found.rows:,} of {plural(found.total_rows, 'row')}"
    say(f"{len(found.zones):,} of {plural(found.total_zones, 'zone')} may match, {rows}")
    table = Table.of(
        found.zones,
        Column("file", lambda z: z.path or f"fragment {z.fragment}"),
        Column("from row", lambda z: f"{z.start:,}", "number"),
        Column("rows", lambda z: f"{z.length:,}", "number"),
    )
    if table.rows:
        say(table)
    if found.uncovered:
        say(f"no index covers fragments {ranges(sorted(found.uncovered), _RUNS)}: read them whole")
    for part, reason in found.unused:
        say(f"not used to skip: {part}: {reason}")


# --- one row ----------------------------------------------------------------------------------------


def _draw_fields(result: Any, say: Say) -> None:
    """Its fields that are not empty, and the properties that count; then results in it, each a table of its own."""
    fields = dict(filled(result)) | {name: getattr(result, name) for name in result._more}
    fields.pop("failed", None)
    inner = {name: one for name, one in fields.items() if isinstance(one, Result) or _are_results(one)}
    say(type(result).__name__)
    plain_ones = [one for one in fields.items() if one[0] not in inner]
    say(Table.of(plain_ones, Column("field", itemgetter(0)), Column("value", lambda one: _value(one[1]))))
    for one in inner.values():
        if isinstance(one, Result):
            _draw_fields(one, say)
        else:
            say(Table.of(one, *map(_field, names_of(one[0]))))


def _field(name: str) -> Column:
    return Column(name.replace("_", " "), lambda one: _value(getattr(one, name)))


def _are_results(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Result) for one in value)


def _value(one: Any) -> str:
    if isinstance(one, bool):
        return "yes" if one else "no"
    if isinstance(one, int):
        return f"{one:,}"
    if isinstance(one, float):
        return f"{one:.4g}"
    if isinstance(one, list | tuple) and all(isinstance(part, str) for part in one):
        return ", ".join(one)
    return "" if one is None else str(plain(one))


def _draw_advice(advice: Any, say: Say) -> None:
    from parquet_bloom.report.advice import print_advice

    print_advice(advice, False, say)


def _draw_engines(report: Any, say: Say) -> None:
    from parquet_bloom.report.advice import print_engines

    print_engines(report, say)


_DRAWN: dict[str, Callable[[Any, Say], None]] = {
    "AddReport": _draw_add_report,
    "AddedFile": lambda file, say: _draw_added([file], say),
    "RemoveReport": _draw_remove_report,
    "RemovedFile": lambda file, say: print_removed([file], False, say),
    "InspectReport": lambda report, say: print_inspected(report.files, False, say),
    "FileInfo": lambda file, say: print_inspected([file], False, say),
    "StatusReport": lambda report, say: print_status(report, report.table or "", say),
    "VerifyReport": lambda report, say: print_verified(report.files, False, say),
    "VerifiedFile": lambda file, say: print_verified([file], False, say),
    "Verdicts": _draw_verdicts,
    "PrunedFiles": _draw_pruned,
    "Advice": _draw_advice,
    "KeyChanges": lambda report, say: print_changes(report, True, say),
    "EnginesReport": _draw_engines,
    "BuildReport": _draw_built,
    "IndexInfo": _draw_index,
    "Matches": _draw_matches,
}
