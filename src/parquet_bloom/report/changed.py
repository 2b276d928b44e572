"""Reports of `delete` and `upsert` for people: counts of rows and files, and the commit; files on demand."""

from __future__ import annotations

from typing import Any

from parquet_bloom.report.added import print_files
from parquet_bloom.report.text import Say, headline, plural, size


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
