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
    UnknownFilterError,
)
from parquet_bloom.limits import Limits, set_limits

if TYPE_CHECKING:
    from parquet_bloom.files.add import add_filters
    from parquet_bloom.files.cache import FooterCache
    from parquet_bloom.files.check import ColumnFilters, RowGroupVerdict, Verdicts, check
    from parquet_bloom.files.inspect import FileInfo, FilterInfo, InspectReport, inspect
    from parquet_bloom.files.options import SearchOptions
    from parquet_bloom.files.paths import Failed
    from parquet_bloom.files.plan import Skipped
    from parquet_bloom.files.progress import Progress
    from parquet_bloom.files.read import Pruned, count, dataset, prune, read_batches, read_table
    from parquet_bloom.files.remove import remove_filters
    from parquet_bloom.files.reports import AddedFile, AddedFilter, AddReport, RemovedFile, RemoveReport
    from parquet_bloom.files.scan import Scan
    from parquet_bloom.files.verify import Verified, VerifiedFile, VerifyReport, verify
    from parquet_bloom.files.write import FilterWriter, write_table
    from parquet_bloom.predicates.outcomes import Outcomes

_HOMES = {
    "AddReport": "reports",
    "AddedFile": "reports",
    "AddedFilter": "reports",
    "ColumnFilters": "check",
    "Failed": "paths",
    "FileInfo": "inspect",
    "FilterInfo": "inspect",
    "FilterWriter": "write",
    "FooterCache": "cache",
    "InspectReport": "inspect",
    "Outcomes": "check",
    "Progress": "progress",
    "Pruned": "read",
    "RemoveReport": "reports",
    "RemovedFile": "reports",
    "RowGroupVerdict": "check",
    "Scan": "scan",
    "SearchOptions": "options",
    "Skipped": "plan",
    "Verdicts": "check",
    "Verified": "verify",
    "VerifiedFile": "verify",
    "VerifyReport": "verify",
    "add_filters": "add",
    "check": "check",
    "count": "read",
    "dataset": "read",
    "inspect": "inspect",
    "prune": "read",
    "read_batches": "read",
    "read_table": "read",
    "remove_filters": "remove",
    "verify": "verify",
    "write_table": "write",
}

__all__ = [
    "AddReport",
    "AddedFile",
    "AddedFilter",
    "ColumnFilters",
    "ConflictError",
    "DamagedFileError",
    "EncryptedFileError",
    "EncryptedFooterError",
    "Failed",
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
    "InspectReport",
    "LayoutError",
    "LimitError",
    "Limits",
    "NotParquetError",
    "Outcomes",
    "ParquetBloomError",
    "Progress",
    "Pruned",
    "RefusedTypeError",
    "RemoveReport",
    "RemovedFile",
    "RequestError",
    "RowGroupVerdict",
    "Scan",
    "SearchOptions",
    "Skipped",
    "SparkJobError",
    "StaleIndexError",
    "StorageError",
    "TableFormatError",
    "TableWarning",
    "TextError",
    "UnknownColumnError",
    "UnknownFilterError",
    "Verdicts",
    "Verified",
    "VerifiedFile",
    "VerifyReport",
    "__version__",
    "add_filters",
    "check",
    "count",
    "dataset",
    "inspect",
    "prune",
    "read_batches",
    "read_table",
    "remove_filters",
    "set_limits",
    "verify",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"parquet_bloom.files.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
