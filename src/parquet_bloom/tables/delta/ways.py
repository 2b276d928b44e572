"""How a file of a Delta table may get a new version: what deltalake can commit, and what the protocol asks of a commit.

deltalake's add action has a path, a size, partition values, a time and statistics. What else an entry has would be
lost, and with a deletion vector so would be the deletes. Source: the Delta protocol, "Add File and Remove File", "Row
Tracking", "IcebergCompatV1"; deltalake 1.6.6 as measured.
"""

from __future__ import annotations

from parquet_bloom.errors import TableFormatError
from parquet_bloom.storage.remote import Location
from parquet_bloom.tables.delta.actions import Add
from parquet_bloom.tables.delta.features import writer_features
from parquet_bloom.tables.delta.log_files import TableFolder
from parquet_bloom.tables.delta.replay import State
from parquet_bloom.tables.snapshot import Ways

# Writer features with which deltalake 1.6.6 commits.
_WRITTEN = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
    }
)
# Tags that Databricks gives every file, by which OPTIMIZE orders and sizes its work; the time of an entry says much the
# same. They do not come over.
_HINTS = frozenset({"INSERTION_TIME", "MAX_INSERTION_TIME", "MIN_INSERTION_TIME", "OPTIMIZE_TARGET_SIZE"})


def check_writable(table: object, state: State) -> None:
    """Raise TableFormatError for a table to which nothing can be committed that keeps all its promises."""
    if state.deep:
        reason = f"the statistics of {state.deep[:200]!r} are nested too deep: deltalake would end the process"
        raise TableFormatError(table, reason)
    features = writer_features(state.protocol)
    if "rowTracking" in features:
        raise TableFormatError(table, "row tracking is on: deltalake cannot carry the row ids of files over")
    if compatible := sorted(name for name in features if name.startswith("iceberg")):
        raise TableFormatError(
            table, f"{compatible[0]} is on: the table's Iceberg metadata would not follow the commit"
        )
    if unknown := sorted(features - _WRITTEN):
        raise TableFormatError(table, f"has features with which deltalake does not commit: {', '.join(unknown)}")


def ways_of(folder: TableFolder, add: Add, at: Location, respelled: bool) -> Ways:
    """How one file may get a new version. respelled: whether deltalake would write its path otherwise than the log."""
    reason = _refusal(folder, add, at)
    if not reason and respelled:
        reason = "its path is written in a way that deltalake would change"
    return Ways(None, reason, reason) if reason else Ways("new-path")


def _lost(add: Add) -> list[str]:
    """What an entry has beside what deltalake writes, and hints."""
    tags = {str(name) for name in dict(add.others.get("tags") or ())}
    return sorted({name for name in add.others if name != "tags"} | {f"the tag {tag}" for tag in tags - _HINTS})


def _refusal(folder: TableFolder, add: Add, at: Location) -> str:
    if add.vector is not None:
        return "rows of it are deleted by a deletion vector, which deltalake cannot carry over"
    if folder.relative(at) is None or folder.roots.no_change(at):
        return "it lies outside the table's folder, as in a shallow clone"
    if lost := _lost(add):
        return f"its entry in the log has {', '.join(lost)}, which deltalake cannot carry over"
    if add.stats is None and add.parsed is not None:
        return "its statistics are columns of a checkpoint alone, which deltalake cannot carry over"
    return ""
