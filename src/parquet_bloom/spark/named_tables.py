"""A table that is named on Spark: the driver reads its log, and sends to executors what they need of its files.

    Snapshot   -> the same without files, once a job
    TableFile  -> its place, constants and fields, what the log said to a predicate; where rows are read, its deletes

What travels needs no library of the table's format. Local paths become absolute: executors have folders of their own.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from parquet_bloom.errors import RequestError
from parquet_bloom.options import ReadOptions, TableOptions
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.source.source import CallSource, source_of
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.remote import Location

_SHARED = "file system"  # stands for the snapshot's, which travels once


@dataclass(frozen=True, slots=True)
class Asked:
    """A live file, as executors get it.

    outcome      what a predicate may give over its rows, by the log
    has_deletes  whether the table has deleted rows of it; these themselves travel where rows are read
    """

    file: TableFile
    outcome: int
    has_deletes: bool

    def __str__(self) -> str:
        return str(self.file)


def spark_source(paths: Sequence[str], options: ReadOptions | TableOptions) -> CallSource:
    """What a function of Spark works on. Raises RequestError for a table among several names, or options of tables."""
    source = source_of(list(paths), None, options)
    if source.table_name is None:
        source.access.refuse_files()
    return source


def live_files(source: CallSource, stored_only: bool = False) -> Snapshot:
    """The snapshot of a table. Arguments and errors as CallSource.found has them."""
    return source.resolve(stored_only).snapshot


def bare(file: TableFile, outcome: int, deletes: bool = False) -> Asked:
    """What executors need of a file; with `deletes`, the deletes too."""
    own = replace(
        file,
        shown=str(file),
        opened=[],
        constants=dict(file.constants),
        bounds={},
        buckets=(),
        entry=None,
        deletes=file.deletes if deletes else None,
    )
    return Asked(own, outcome, file.deletes is not None)


def sent_table(snapshot: Snapshot) -> bytes:
    """A snapshot without its files. Raises RequestError for a file system that cannot be sent."""
    return sendable(replace(snapshot, files=[], filter_settings={}), snapshot.table)


def sent(part: Any, snapshot: Snapshot) -> bytes:
    """Something that names files of a snapshot, without its file system. Raises RequestError as sent_table."""
    return sendable(part, snapshot.table, snapshot.filesystem)


def received(data: bytes, table: Snapshot) -> Any:
    """What `sent` sent, on the snapshot's file system."""
    return _Receiver(io.BytesIO(data), table.filesystem).load()


def sendable(value: Any, table: str, shared: Any = None) -> bytes:
    """A pickle with absolute paths, and without the file system that is `shared`. Raises RequestError as sent_table."""
    out = io.BytesIO()
    try:
        _Sender(out, shared).dump(value)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        what = "what executors need of it cannot be sent to them, such as a file system that is only of this process"
        raise RequestError(f"{without_secret(table)}: {what} ({reason}); leave Spark out") from error
    return out.getvalue()


class _Sender(pickle.Pickler):
    def __init__(self, out: io.BytesIO, filesystem: Any) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._filesystem = filesystem

    def persistent_id(self, value: Any) -> str | None:
        return _SHARED if self._filesystem is not None and value is self._filesystem else None

    def reducer_override(self, value: Any) -> Any:
        """Local places get absolute paths, wherever they stand in what is sent."""
        if isinstance(value, Location) and value.is_local and not os.path.isabs(value.path):
            return replace(value, path=os.path.abspath(value.path)).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


class _Receiver(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, filesystem: Any) -> None:
        super().__init__(data)
        self._filesystem = filesystem

    def persistent_load(self, name: str) -> Any:
        return self._filesystem
