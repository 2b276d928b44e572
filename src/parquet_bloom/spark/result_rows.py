"""The rows of inspect, verify, check and prune, as executors make them of what parquet_bloom's own functions say.

files, or a table's files --> together, or one by one where that fails --> rows     a bad file is a row with its error
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa

from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.filters.inspect import InspectReport
from parquet_bloom.filters.verify import VerifyReport
from parquet_bloom.search.check import ExcludedFile, sizes_of, verdicts_of
from parquet_bloom.search.search import FileResult, Search, open_groups

T = TypeVar("T")
Row = dict[str, Any]
RowsOf = Callable[[FileResult], Iterable[Row]]

_TEXT, _LONG, _DOUBLE, _TEXTS = pa.string(), pa.int64(), pa.float64(), pa.list_(pa.string())
INSPECTED = pa.schema(
    [
        ("path", _TEXT),
        ("row_group", pa.int32()),
        ("column", _TEXT),
        ("spec", _TEXT),
        ("rule", _TEXT),
        ("offset", _LONG),
        ("length", _LONG),
        ("place", _TEXT),
        ("num_bytes", _LONG),
        ("fpp", _DOUBLE),
        ("estimated_ndv", _DOUBLE),
        ("problems", _TEXTS),
        ("notes", _TEXTS),
        ("error", _TEXT),
    ]
)
VERIFIED = pa.schema(
    [
        ("path", _TEXT),
        ("row_group", pa.int32()),
        ("column", _TEXT),
        ("status", _TEXT),
        ("spec", _TEXT),
        ("values", _LONG),
        ("missed", _LONG),
        ("measured_fpp", _DOUBLE),
        ("reason", _TEXT),
        ("error", _TEXT),
    ]
)
CHECKED = pa.schema(
    [
        ("path", _TEXT),
        ("row_group", pa.int32()),
        ("outcome", _TEXTS),
        ("skipped", pa.bool_()),
        ("decided_by", _TEXT),
        ("bytes_read", _LONG),
        ("reason", _TEXT),
        ("rows", _LONG),
        ("size", _LONG),
        ("error", _TEXT),
    ]
)
PRUNED = pa.schema(
    [
        ("path", _TEXT),
        ("row_groups", pa.list_(pa.int32())),
        ("rows", _LONG),
        ("size", _LONG),
        ("has_deletes", pa.bool_()),
        ("error", _TEXT),
    ]
)
TOGETHER = 256  # files that are looked at side by side on a remote store
_ROWS = 4096


def some_of(items: Iterator[T], count: int) -> Iterator[list[T]]:
    """Items, so many at a time."""
    while some := list(islice(items, count)):
        yield some


def batches_of(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as record batches."""
    for batch in some_of(rows, _ROWS):
        yield pa.RecordBatch.from_pylist(batch, schema)


def each_or_error(files: Sequence[T], work: Callable[[Sequence[T]], Iterable[Row]]) -> Iterator[Row]:
    """The rows of some files; of one that cannot be worked on a row with its error."""
    if len(files) > 1:
        try:
            yield from list(work(files))
            return
        except ImportError:
            raise
        except Exception:  # of which file, the next lines say
            pass
    for file in files:
        try:
            yield from list(work([file]))
        except ParquetBloomError as error:
            yield failed(file, error)
        except ImportError:  # what executors lack is not the file's doing
            raise
        except Exception as error:  # one file must not end the job of a million others
            yield failed(file, f"{type(error).__name__}: {error}")


def failed(file: object, error: object) -> Row:
    """The row of a file that could not be read."""
    return {"path": str(file), "error": " ".join(str(error).split())}


def filters_of(report: InspectReport | VerifyReport, schema: pa.Schema) -> Iterator[Row]:
    """A row a filter, with what the schema names of it."""
    names = [name for name in schema.names if name not in ("path", "error")]
    for file in report.files:
        for one in file.filters:
            yield {"path": file.path} | {name: getattr(one, name) for name in names}
    yield from (failed(one.path, one.error) for one in report.failed)


def searched(search: Search, rows_of: RowsOf) -> Iterator[Row]:
    """The rows of the files of a search; of one that cannot be read its error."""
    for one in search:
        if isinstance(one, tuple):
            yield failed(*one)
        else:
            yield from rows_of(one)


def verdicts(searched: FileResult) -> Iterator[Row]:
    """A row a row group."""
    for verdict in verdicts_of(searched):
        row = verdict._asdict()
        row["outcome"] = verdict.outcome.names
        yield row


def excluded(file: ExcludedFile) -> Row:
    """The row of a file that the log of its table excludes: of no row group."""
    return {
        "path": file.path,
        "skipped": True,
        "decided_by": file.decided_by,
        "reason": file.reason,
        "rows": file.rows,
        "size": file.size,
    }


def kept(searched: FileResult) -> Iterator[Row]:
    """A row for a file with row groups in which a row can match."""
    outline, groups = searched.outline, open_groups(searched)
    if outline is None or not groups:
        return
    yield {
        "path": str(searched.file),
        "row_groups": groups,
        "rows": int(outline.rows[groups].sum()),
        "size": int(sizes_of(outline)[groups].sum()),
        "has_deletes": False,
    }
