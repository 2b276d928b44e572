"""A result as HTML for a notebook: the summary that the command prints, and below it what people want of each row.

    print_added, print_inspected ... -> lines and tables -> a Sheet -> HTML

What is left to be read comes before what is skipped, and that is summed by reason. Nothing of a file is believed: all
texts are escaped, secrets and invisible characters taken out, lines and rows are few however large the result is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from xml.etree.ElementTree import Element, tostring

from parquet_bloom.report.added import print_added, print_columns, print_commits, print_removed
from parquet_bloom.report.page.markup import element
from parquet_bloom.report.skipping import adding, line, print_checked, summed, summed_headings, unfiltered_lines
from parquet_bloom.report.text import drawn_by, failure_lines, plural, ranges, share, size
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

    def say(self, text: str, style: str = "") -> None:
        """A line; what a command says of its options becomes what one calls here."""
        if len(self._parts) + len(self._lines) >= _LINES:
            self._left += 1
        else:
            self._lines.append(_FOR_COMMANDS.sub("to_dict() has all", text))

    def paste(self, text: str, style: str = "") -> None:
        """A command, to be pasted, as the Python that does the same: never cut."""
        self._end_lines()
        self._parts.append(element("pre", text.python if isinstance(text, ShellCommand) else text))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[int] = ()) -> None:
        """A table, of many rows the first."""
        self._end_lines()
        head = element("tr", *(_cell("th", text, at in right) for at, text in enumerate(headings)))
        body = [element("tr", *(_cell("td", one, at in right) for at, one in enumerate(row))) for row in rows[:_ROWS]]
        self._parts.append(element("table", element("thead", head), element("tbody", *body)))
        if len(rows) > _ROWS:
            self.say(f"and {plural(len(rows) - _ROWS, 'row')} more; to_dict() has all")

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


def _cell(tag: str, value: object, number: bool) -> Element:
    return element(tag, _short(str(value)), style=f"text-align: {'right' if number else 'left'}")


def html_of(result: Any) -> str:
    """A result of this package, of its fields where there is no summary of it."""
    sheet = Sheet()
    draw = next((_DRAWN[kind.__name__] for kind in type(result).__mro__ if kind.__name__ in _DRAWN), _draw_fields)
    with drawn_by(sheet.table):
        draw(result, sheet)
    for text in failure_lines(getattr(result, "failed", ())):
        sheet.say(text)
    for text in getattr(result, "notes", ()):
        sheet.say(f"note: {text}")
    return sheet.html()


# --- files ------------------------------------------------------------------------------------------


def _draw_added(files: Sequence[Any], sheet: Sheet) -> None:
    print_added(files, False, sheet.say)
    if len(files) == 1:  # of several it is there already
        print_columns(files)
    for text in dict.fromkeys(one for file in files for one in (*file.warnings, *file.engine_notes)):
        sheet.say(text)


def _draw_add_report(report: Any, sheet: Sheet) -> None:
    _draw_added(report.files, sheet)
    print_commits(report, sheet.say)


def _draw_remove_report(report: Any, sheet: Sheet) -> None:
    print_removed(report.files, False, sheet.say)
    print_commits(report, sheet.say)


def _draw_inspected(files: Sequence[Any], sheet: Sheet) -> None:
    from parquet_bloom.report.filters import print_inspected

    print_inspected(files, False, sheet.say)


def _draw_verified(files: Sequence[Any], sheet: Sheet) -> None:
    from parquet_bloom.report.filters import print_verified

    print_verified(files, False, sheet.say)


def _draw_status(report: Any, sheet: Sheet) -> None:
    from parquet_bloom.report.filters import print_status

    print_status(report, report.table or "", sheet.say, sheet.paste)


# --- row groups -------------------------------------------------------------------------------------


def _draw_verdicts(verdicts: Any, sheet: Sheet) -> None:
    """Draw the row groups that are read, or their files; then the skipped ones, summed by reason."""
    left = [v for v in verdicts if not v.skipped]
    many = len({v.path for v in verdicts}) > 1
    if len(left) > _ROWS:
        print_checked(verdicts, False, False, sheet.say)
    else:
        sheet.say(line(verdicts, verdicts.excluded))
    if 0 < len(left) <= _ROWS:
        rows = [(*([v.path] if many else []), v.row_group, "read", v.reason, f"{v.rows:,}", size(v.size)) for v in left]
        headings = ("row group", "verdict", "why", "rows", "bytes")
        first = int(many)
        sheet.table(("file", *headings) if many else headings, rows, (first, first + 3, first + 4))
    if skipped := summed((v for v in verdicts if v.skipped), "skip", None if many else _WHICH):
        sheet.table(summed_headings(many), skipped, (0,))
    if closed := summed(verdicts.excluded, "not opened"):
        sheet.table(("files", *summed_headings(True)[1:]), closed, (0,))
    *lines, last = unfiltered_lines(verdicts.columns) or [""]
    for text in lines:
        sheet.say(text)
    if (command := adding(verdicts.columns, verdicts.named)) is not None:
        sheet.say(last)
        sheet.paste(command)
    for part, reason in verdicts.unused:
        sheet.say(f"not used to skip: {part}: {reason}")
    for text in verdicts.notes:
        sheet.say(text)


def _draw_pruned(pruned: Any, sheet: Sheet) -> None:
    kept = sum(len(groups) for _, groups in pruned)
    sheet.say(f"{kept:,} of {plural(pruned.row_groups, 'row group')} can match, in {plural(len(pruned), 'file')}")
    deleted = set(pruned.with_deletes)
    rows = []
    for path, groups in pruned:
        keys = [n for g in groups if (n := pruned.hits.get((path, g))) is not None]
        rows.append(
            (
                path,
                ranges(groups, _RUNS),
                f"{max(keys):,}" if keys else "",
                "has deleted rows" if path in deleted else "",
            )
        )
    shown = [True, True, bool(pruned.hits), bool(deleted)]
    headings = ("file", "row groups", "keys at most, a row group", "note")
    if rows:
        picked = [[one for one, there in zip(row, shown, strict=True) if there] for row in rows]
        sheet.table([one for one, there in zip(headings, shown, strict=True) if there], picked, (2,) * shown[2])


# --- figures ----------------------------------------------------------------------------------------


def _draw_advice(advice: Any, sheet: Sheet) -> None:
    from parquet_bloom.report.advice import print_advice

    print_advice(advice, False, sheet.say, sheet.paste)


def _draw_engines(report: Any, sheet: Sheet) -> None:
    from parquet_bloom.report.advice import print_engines

    print_engines(report, sheet.say)


# --- zone indexes -----------------------------------------------------------------------------------


def _draw_built(report: Any, sheet: Sheet) -> None:
    over = plural(report.fragments, "fragment")
    sheet.say(f"{quantity(len(report.indexes), 'indexes')} over {over}, {report.seconds:.2f} s")
    rows = [(one.column, one.type, f"{one.zones:,}", size(one.bytes), one.path) for one in report.indexes]
    sheet.table(("column", "type", "zones", "bytes", "file"), rows, (2, 3))


def _draw_index(info: Any, sheet: Sheet) -> None:
    of = f" of {info.column} ({info.type})" if info.column else ""
    sheet.say(f"{info.path}: {plural(len(info.zones), 'zone')}{of}, {info.items:,} rows each for {info.probability:g}")
    odd = any(zone.problems for zone in info.zones)
    rows = [
        (
            z.fragment_id,
            f"{z.zone_start:,}",
            f"{z.zone_length:,}",
            size(z.bytes),
            share(z.fpp),
            *(["; ".join(z.problems)] if odd else []),
        )
        for z in sorted(info.zones, key=lambda zone: not zone.problems)
    ]
    sheet.table(("fragment", "start", "rows", "bytes", "fpp", *(["problems"] if odd else [])), rows, range(5))


def _draw_matches(found: Any, sheet: Sheet) -> None:
    sheet.say(
        f"{len(found.zones):,} of {plural(found.total_zones, 'zone')} may match, {found.rows:,} of "
        f"{plural(found.total_rows, 'row')}"
    )
    rows = [(z.path or f"fragment {z.fragment}", f"{z.start:,}", f"{z.length:,}") for z in found.zones]
    if rows:
        sheet.table(("file", "from row", "rows"), rows, (1, 2))
    if found.uncovered:
        sheet.say(f"no index covers fragments {ranges(sorted(found.uncovered), _RUNS)}: read them whole")
    for part, reason in found.unused:
        sheet.say(f"not used to skip: {part}: {reason}")


# --- one row ----------------------------------------------------------------------------------------


def _draw_fields(result: Any, sheet: Sheet) -> None:
    """Its fields that are not empty, and the properties that count; then results in it, each a table of its own."""
    fields = dict(filled(result)) | {name: getattr(result, name) for name in result._more}
    fields.pop("failed", None)
    inner = {name: one for name, one in fields.items() if isinstance(one, Result) or _are_results(one)}
    sheet.say(type(result).__name__)
    sheet.table(("field", "value"), [(name, _value(one)) for name, one in fields.items() if name not in inner])
    for one in inner.values():
        if isinstance(one, Result):
            _draw_fields(one, sheet)
        else:
            names = names_of(one[0])
            sheet.table(
                [name.replace("_", " ") for name in names], [[_value(getattr(r, n)) for n in names] for r in one]
            )


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


_DRAWN: dict[str, Callable[[Any, Sheet], None]] = {
    "AddReport": _draw_add_report,
    "AddedFile": lambda file, sheet: _draw_added([file], sheet),
    "RemoveReport": _draw_remove_report,
    "RemovedFile": lambda file, sheet: print_removed([file], False, sheet.say),
    "InspectReport": lambda report, sheet: _draw_inspected(report.files, sheet),
    "FileInfo": lambda file, sheet: _draw_inspected([file], sheet),
    "StatusReport": _draw_status,
    "VerifyReport": lambda report, sheet: _draw_verified(report.files, sheet),
    "VerifiedFile": lambda file, sheet: _draw_verified([file], sheet),
    "Verdicts": _draw_verdicts,
    "PrunedFiles": _draw_pruned,
    "Advice": _draw_advice,
    "EnginesReport": _draw_engines,
    "BuildReport": _draw_built,
    "IndexInfo": _draw_index,
    "Matches": _draw_matches,
}
