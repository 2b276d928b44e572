"""Bloom filters in Parquet: add them to files that exist, read them back, skip row groups with them.

    import parquet_bloom

    parquet_bloom.add_filters("events.parquet", "events-with-filters.parquet", columns=["trace_id"])
    parquet_bloom.check("events-with-filters.parquet", "trace_id = '4bf92f3577b34da6'")

    add_filters      give existing files filters          write_table      write a new file with filters
    check            which row groups can match           inspect, verify  filters: what is there, is it right
    read_table       the rows that match, as a Table      remove_filters   give files back without filters
    read_batches     the same, batch by batch             advise           which columns filters help
    dataset          for DuckDB, DataFusion and others    status           which columns lack or lost filters
    scan_polars      for Polars                           engines          which engines use filters
    count, prune     how many rows, which row groups      write_report     one HTML page about files
    build_index      a key index beside the data          locate           the row groups of many keys
    update_index     bring it up to date                  rebuild_index    build it again
    delete_keys      rows deleted by their keys           upsert           rows put in the place of others
    repair           write wrong statistics right         set_limits       of memory and footers

Source(paths) is files or a table as a value: one listing, or one version, for several questions; the functions are
its methods. Each function is one command of `parquet-bloom` too. Importing this package is cheap: pyarrow and
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
from parquet_bloom.options import (
    AddOptions,
    CommitOptions,
    Draft2015,
    Limits,
    ReadOptions,
    RemoveOptions,
    RepairOptions,
    TableOptions,
    WriteOptions,
    set_limits,
)
from parquet_bloom.storage.display import draw_with

if TYPE_CHECKING:
    from parquet_bloom.advice.advise import Advice, ColumnAdvice, advise
    from parquet_bloom.advice.status import ColumnStatus, PageIndexStatus, StatusReport, status
    from parquet_bloom.advice.survey import Gain
    from parquet_bloom.api import Source
    from parquet_bloom.change import add_filters, remove_filters, repair
    from parquet_bloom.changes.rows import DeleteOptions, RowOptions, delete_keys, upsert
    from parquet_bloom.changes.values import KeyChanges, RewrittenFile
    from parquet_bloom.edit.plan import SkippedColumn
    from parquet_bloom.edit.repair import RepairedFile, RepairReport
    from parquet_bloom.edit.reports import AddedFile, AddedFilter, AddReport, RemovedFile, RemoveReport, TableCommit
    from parquet_bloom.edit.sample import Interval
    from parquet_bloom.edit.write import FilterWriter, NewFileOptions, WriterOptions, write_table
    from parquet_bloom.facts.report import EngineAnswer, EngineHazard, EngineInfo, EnginesReport, engines
    from parquet_bloom.filters.inspect import FileInfo, FilterInfo, InspectReport, PageIndexInfo, inspect
    from parquet_bloom.filters.verify import VerifiedFile, VerifiedFilter, VerifyReport, verify
    from parquet_bloom.filters.wrong_statistics import FileStatistics, WrongStatistic
    from parquet_bloom.keys.build import build_index
    from parquet_bloom.keys.locate import locate
    from parquet_bloom.keys.plan import IndexedColumn, KeyIndexReport
    from parquet_bloom.keys.update import UpdateReport, rebuild_index, update_index
    from parquet_bloom.predicates.outcomes import Outcomes
    from parquet_bloom.read import PrunedFiles, count, dataset, prune, read_batches, read_table, scan_polars
    from parquet_bloom.report.page.page import ReportPage, write_report
    from parquet_bloom.rows.scan import Scan
    from parquet_bloom.search.check import ColumnFilters, ExcludedFile, RowGroupVerdict, Verdicts, check
    from parquet_bloom.search.options import AskOptions, FooterCache, SearchOptions
    from parquet_bloom.storage.paths import FailedFile
    from parquet_bloom.storage.workers import Progress

_HOMES = {
    "AddReport": "edit.reports",
    "AddedFile": "edit.reports",
    "AddedFilter": "edit.reports",
    "Advice": "advice.advise",
    "AskOptions": "search.options",
    "ColumnAdvice": "advice.advise",
    "ColumnFilters": "search.check",
    "ColumnStatus": "advice.status",
    "EngineAnswer": "facts.report",
    "EngineHazard": "facts.report",
    "EngineInfo": "facts.report",
    "EnginesReport": "facts.report",
    "ExcludedFile": "search.check",
    "FailedFile": "storage.paths",
    "FileInfo": "filters.inspect",
    "FileStatistics": "filters.wrong_statistics",
    "FilterInfo": "filters.inspect",
    "FilterWriter": "edit.write",
    "FooterCache": "search.options",
    "Gain": "advice.survey",
    "IndexedColumn": "keys.plan",
    "KeyChanges": "changes.values",
    "KeyIndexReport": "keys.plan",
    "InspectReport": "filters.inspect",
    "Interval": "edit.sample",
    "NewFileOptions": "edit.write",
    "Outcomes": "predicates.outcomes",
    "PageIndexInfo": "filters.inspect",
    "PageIndexStatus": "advice.status",
    "Progress": "storage.workers",
    "PrunedFiles": "read",
    "RemoveReport": "edit.reports",
    "RemovedFile": "edit.reports",
    "RepairReport": "edit.repair",
    "RepairedFile": "edit.repair",
    "ReportPage": "report.page.page",
    "RewrittenFile": "changes.values",
    "RowGroupVerdict": "search.check",
    "DeleteOptions": "changes.rows",
    "RowOptions": "changes.rows",
    "Scan": "rows.scan",
    "SearchOptions": "search.options",
    "SkippedColumn": "edit.plan",
    "Source": "api",
    "StatusReport": "advice.status",
    "TableCommit": "edit.reports",
    "UpdateReport": "keys.update",
    "Verdicts": "search.check",
    "VerifiedFile": "filters.verify",
    "VerifiedFilter": "filters.verify",
    "VerifyReport": "filters.verify",
    "add_filters": "change",
    "WriterOptions": "edit.write",
    "WrongStatistic": "filters.wrong_statistics",
    "advise": "advice.advise",
    "build_index": "keys.build",
    "check": "search.check",
    "count": "read",
    "delete_keys": "changes.rows",
    "dataset": "read",
    "engines": "facts.report",
    "inspect": "filters.inspect",
    "locate": "keys.locate",
    "prune": "read",
    "read_batches": "read",
    "read_table": "read",
    "remove_filters": "change",
    "repair": "change",
    "scan_polars": "read",
    "rebuild_index": "keys.update",
    "status": "advice.status",
    "update_index": "keys.update",
    "upsert": "changes.rows",
    "verify": "filters.verify",
    "write_report": "report.page.page",
    "write_table": "edit.write",
}

__all__ = [  # noqa: RUF022 - functions first, then what they return and take, then errors
    "add_filters",
    "check",
    "read_table",
    "read_batches",
    "dataset",
    "scan_polars",
    "count",
    "prune",
    "inspect",
    "verify",
    "status",
    "remove_filters",
    "repair",
    "write_table",
    "build_index",
    "rebuild_index",
    "update_index",
    "locate",
    "delete_keys",
    "upsert",
    "advise",
    "engines",
    "write_report",
    "set_limits",
    "AddOptions",
    "AddReport",
    "AddedFile",
    "AddedFilter",
    "Advice",
    "AskOptions",
    "ColumnAdvice",
    "ColumnFilters",
    "ColumnStatus",
    "CommitOptions",
    "DeleteOptions",
    "Draft2015",
    "EngineAnswer",
    "EngineHazard",
    "EngineInfo",
    "EnginesReport",
    "ExcludedFile",
    "FailedFile",
    "FileInfo",
    "FileStatistics",
    "FilterInfo",
    "FilterWriter",
    "FooterCache",
    "Gain",
    "IndexedColumn",
    "InspectReport",
    "Interval",
    "KeyChanges",
    "KeyIndexReport",
    "Limits",
    "NewFileOptions",
    "Outcomes",
    "PageIndexInfo",
    "PageIndexStatus",
    "Progress",
    "PrunedFiles",
    "ReadOptions",
    "RemoveOptions",
    "RemoveReport",
    "RemovedFile",
    "RepairOptions",
    "RepairReport",
    "RepairedFile",
    "ReportPage",
    "RewrittenFile",
    "RowGroupVerdict",
    "RowOptions",
    "Scan",
    "SearchOptions",
    "SkippedColumn",
    "Source",
    "StatusReport",
    "TableCommit",
    "TableOptions",
    "UpdateReport",
    "Verdicts",
    "VerifiedFile",
    "VerifiedFilter",
    "VerifyReport",
    "WriteOptions",
    "WriterOptions",
    "WrongStatistic",
    "ConflictError",
    "DamagedFileError",
    "EncryptedFileError",
    "EncryptedFooterError",
    "FileChangedError",
    "FileError",
    "FilterFormatError",
    "FilterShapeError",
    "FilterWarning",
    "FooterError",
    "FooterLimitError",
    "LayoutError",
    "LimitError",
    "NotParquetError",
    "ParquetBloomError",
    "RefusedTypeError",
    "RequestError",
    "SparkJobError",
    "StaleIndexError",
    "StorageError",
    "TableFormatError",
    "TableWarning",
    "TextError",
    "UnknownColumnError",
    "UnknownCommitError",
    "UnknownFilterError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"parquet_bloom.{_HOMES[name]}"), name)
    return found


class _Function(str):
    """The name of a function, which sorts before all other names in `dir`; shells sort by themselves."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return not isinstance(other, _Function) or str.__lt__(self, other)

    def __gt__(self, other: str) -> bool:
        return isinstance(other, _Function) and str.__gt__(self, other)


def __dir__() -> list[str]:
    return [_Function(name) if name[0].islower() else name for name in __all__]


def _html_of(result: Any) -> str:
    from parquet_bloom.report.page.notebook import html_of

    return html_of(result)


draw_with(_html_of)
