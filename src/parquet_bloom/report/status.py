"""What `status` found, for people: a line a column, what is missing in words, and the command that adds it."""

from __future__ import annotations

from typing import Any

from parquet_bloom.formats.forms.known import DEFAULT_SPEC, format_named
from parquet_bloom.report.gates import status_text
from parquet_bloom.report.tables import plural, print_table, share, size
from parquet_bloom.report.text import Say


def print_status(report: Any, name: str, say: Say, paste: Say) -> None:
    """Tell of a StatusReport.

    name   what was named, or nothing
    paste  prints a command
    """
    of = ", ".join([*([name] if name else []), *([f"version {report.version}"] if report.version else [])])
    looked = f"{plural(report.files, 'file')}, {plural(report.row_groups, 'row group')}"
    say(f"{of}: {looked}" if of else looked)
    if not report.columns:
        say("  no column has a filter; `parquet-bloom add` gives them some, `parquet-bloom advise` says which")
        return
    lost = any(one.row_groups_lost for one in report.columns)
    rows = []
    for one in report.columns:
        gone = [f"{one.row_groups_lost:,}", one.lost_since or "-"] if lost else []
        whole = f"{one.files - one.files_lacking:,} of {one.files:,}"
        counts = (f"{one.row_groups - one.row_groups_lacking:,}", f"{one.row_groups_lacking:,}", *gone, whole)
        rows.append((one.column, *counts, size(one.filter_bytes), share(one.fpp)))
    headings = ("column", "have", "lack", *(["lost", "since"] if lost else []), "whole files", "bytes", "worst fpp")
    lacking = {number: "red" for number, one in enumerate(report.columns) if one.row_groups_lacking}
    print_table(headings, rows, range(1, len(headings)), names=(0,), styles=lacking)
    for one in report.columns:
        if one.row_groups_lacking:
            say(f"  {status_text(one)}")
    if report.complete:
        say("  each row group that holds a value has its filters")
    for number, command in enumerate(report.mend):
        if number == 0:
            say("  to add what is missing:")
        paste(command)
    lacking_some = [one for one in report.columns if one.row_groups_lacking]
    if report.mend and (unknown := [one.column for one in lacking_some if one.fpp_target is None]):
        whom = "new filters get" if len(unknown) == len(lacking_some) else f"on {', '.join(unknown)} they get"
        say(f"  {whom} the default rate, {share(format_named(DEFAULT_SPEC).fpp)}, unless another is named (fpp)")
