"""What `write_report` wrote, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field

from parquet_bloom.source.results import Printed
from parquet_bloom.storage.paths import FailedFile


@dataclass(slots=True, repr=False)
class ReportPage(Printed):
    """A page that was written.

    path, bytes  of the page
    files        that it is about; `drawn`: the one of them that its pictures show, the largest
    advised      columns that should have filters
    skipped      of the predicate's `row_groups`, how many are skipped; None without a predicate
    """

    path: str
    bytes: int
    files: int
    drawn: str
    advised: list[str] = field(default_factory=list)
    row_groups: int | None = None
    skipped: int | None = None
    failed: list[FailedFile] = field(default_factory=list)
