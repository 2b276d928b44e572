"""Bloom filters in Parquet: add them to files that exist, read them back, skip row groups with them.

    import parquet_bloom

    parquet_bloom.add_filters("events.parquet", "events-with-filters.parquet", columns=["trace_id"])
    parquet_bloom.check("events-with-filters.parquet", "trace_id = '4bf92f3577b34da6'")

Each function is one command of `parquet-bloom` too. Importing this package is cheap: pyarrow and
numba are loaded by the functions that need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parquet_bloom._version import __version__
from parquet_bloom.errors import (
    ConflictError,
    DamagedFileError,
    EncryptedFileError,
    EncryptedFooterError,
    FileChangedError,
    FileError,
    FilterFormatError,
    FilterShapeError,
    FilterWarning,
    FooterError,
    FooterLimitError,
    LayoutError,
    LimitError,
    NotParquetError,
    ParquetBloomError,
    RefusedTypeError,
    RequestError,
    SparkJobError,
    StaleIndexError,
    StorageError,
    TableFormatError,
    TableWarning,
    TextError,
    UnknownColumnError,
    UnknownCommitError,
    UnknownFilterError,
)
from parquet_bloom.limits import Limits, set_limits

if TYPE_CHECKING:
    from parquet_bloom.audit.inspect import FileInfo, FilterInfo, InspectReport, inspect
    from parquet_bloom.audit.verify import VerifiedFile, VerifiedFilter, VerifyReport, verify
    from parquet_bloom.change import add_filters, remove_filters
    from parquet_bloom.chunks.footer_cache import FooterCache
    from parquet_bloom.edit.plan import SkippedColumn
    from parquet_bloom.edit.reports import AddedFile, AddedFilter, AddReport, RemovedFile, RemoveReport, TableCommit
    from parquet_bloom.edit.sample import Interval
    from parquet_bloom.edit.write import FilterWriter, write_table
    from parquet_bloom.edit.writer_options import WriterOptions
    from parquet_bloom.polars_scan import scan_polars
    from parquet_bloom.predicates.outcomes import Outcomes
    from parquet_bloom.read import PrunedFiles, count, dataset, prune, read_batches, read_table
    from parquet_bloom.report.page.write import write_report
    from parquet_bloom.report.written import ReportPage
    from parquet_bloom.search.check import ColumnFilters, Verdicts, check
    from parquet_bloom.search.options import SearchOptions
    from parquet_bloom.search.scan import Scan
    from parquet_bloom.search.verdicts import ExcludedFile, RowGroupVerdict
    from parquet_bloom.storage.paths import FailedFile
    from parquet_bloom.storage.progress import Progress
    from parquet_bloom.worth.advice.advise import Advice, ColumnAdvice, advise
    from parquet_bloom.worth.advice.gain import Gain
    from parquet_bloom.worth.bench import BenchReport, EngineGain, bench
    from parquet_bloom.worth.engines import EngineAnswer, EngineHazard, EngineInfo, EnginesReport, engines

_HOMES = {
    "AddReport": "edit.reports",
    "AddedFile": "edit.reports",
    "AddedFilter": "edit.reports",
    "Advice": "worth.advice.advise",
    "BenchReport": "worth.bench",
    "ColumnAdvice": "worth.advice.advise",
    "ColumnFilters": "search.check",
    "EngineAnswer": "worth.engines",
    "EngineHazard": "worth.engines",
    "EngineGain": "worth.bench",
    "EngineInfo": "worth.engines",
    "EnginesReport": "worth.engines",
    "ExcludedFile": "search.verdicts",
    "FailedFile": "storage.paths",
    "FileInfo": "audit.inspect",
    "FilterInfo": "audit.inspect",
    "FilterWriter": "edit.write",
    "FooterCache": "chunks.footer_cache",
    "Gain": "worth.advice.gain",
    "InspectReport": "audit.inspect",
    "Interval": "edit.sample",
    "Outcomes": "predicates.outcomes",
    "Progress": "storage.progress",
    "PrunedFiles": "read",
    "RemoveReport": "edit.reports",
    "RemovedFile": "edit.reports",
    "ReportPage": "report.written",
    "RowGroupVerdict": "search.verdicts",
    "Scan": "search.scan",
    "SearchOptions": "search.options",
    "SkippedColumn": "edit.plan",
    "TableCommit": "edit.reports",
    "Verdicts": "search.check",
    "VerifiedFile": "audit.verify",
    "VerifiedFilter": "audit.verify",
    "VerifyReport": "audit.verify",
    "add_filters": "change",
    "WriterOptions": "edit.writer_options",
    "advise": "worth.advice.advise",
    "bench": "worth.bench",
    "check": "search.check",
    "count": "read",
    "dataset": "read",
    "engines": "worth.engines",
    "inspect": "audit.inspect",
    "prune": "read",
    "read_batches": "read",
    "read_table": "read",
    "remove_filters": "change",
    "scan_polars": "polars_scan",
    "verify": "audit.verify",
    "write_report": "report.page.write",
    "write_table": "edit.write",
}

__all__ = [
    "AddReport",
    "AddedFile",
    "AddedFilter",
    "Advice",
    "BenchReport",
    "ColumnAdvice",
    "ColumnFilters",
    "ConflictError",
    "DamagedFileError",
    "EncryptedFileError",
    "EncryptedFooterError",
    "EngineAnswer",
    "EngineGain",
    "EngineHazard",
    "EngineInfo",
    "EnginesReport",
    "ExcludedFile",
    "FailedFile",
    "FileChangedError",
    "FileError",
    "FileInfo",
    "FilterFormatError",
    "FilterInfo",
    "FilterShapeError",
    "FilterWarning",
    "FilterWriter",
    "FooterCache",
    "FooterError",
    "FooterLimitError",
    "Gain",
    "InspectReport",
    "Interval",
    "LayoutError",
    "LimitError",
    "Limits",
    "NotParquetError",
    "Outcomes",
    "ParquetBloomError",
    "Progress",
    "PrunedFiles",
    "RefusedTypeError",
    "RemoveReport",
    "RemovedFile",
    "ReportPage",
    "RequestError",
    "RowGroupVerdict",
    "Scan",
    "SearchOptions",
    "SkippedColumn",
    "SparkJobError",
    "StaleIndexError",
    "StorageError",
    "TableCommit",
    "TableFormatError",
    "TableWarning",
    "TextError",
    "UnknownColumnError",
    "UnknownCommitError",
    "UnknownFilterError",
    "Verdicts",
    "VerifiedFile",
    "VerifiedFilter",
    "VerifyReport",
    "WriterOptions",
    "__version__",
    "add_filters",
    "advise",
    "bench",
    "check",
    "count",
    "dataset",
    "engines",
    "inspect",
    "prune",
    "read_batches",
    "read_table",
    "remove_filters",
    "scan_polars",
    "set_limits",
    "verify",
    "write_report",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"parquet_bloom.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
