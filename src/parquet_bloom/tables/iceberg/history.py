"""When the files of a snapshot came: an entry has the number of the commit that added it, whether or not that expired.

A file that grew on its path keeps its entry's numbers, so these say nothing of a tail. One that a commit of ours
brought has the data sequence number of the file whose place it took: that of the commit with which its rows came.
Tables of format version 1 have no numbers.
"""

from __future__ import annotations

from pyiceberg.table import Table as IcebergLog

from parquet_bloom.tables.columns import identities
from parquet_bloom.tables.history import History, Version, filter_commit
from parquet_bloom.tables.iceberg.entries import Entry
from parquet_bloom.tables.snapshot import Snapshot


def read_history(log: IcebergLog, snapshot: Snapshot) -> History:
    """Read what the metadata say; no file is opened."""
    came = {}
    for file in snapshot.files:
        entry: Entry = file.entry
        number, by = entry.record.file_sequence_number, entry.record.snapshot_id
        if number and by is not None:
            came[file.path] = Version(number, str(by))
    commits, today = [], identities(snapshot.fields)
    now = log.snapshot_by_id(int(snapshot.version))
    seen: set[int] = set()
    names: dict[int, Version] = {}
    while now is not None and now.snapshot_id not in seen:
        seen.add(now.snapshot_id)
        version = Version(now.sequence_number or 0, str(now.snapshot_id))
        names[version.order] = version
        told = now.summary.additional_properties if now.summary is not None else {}
        if version.order and (ours := filter_commit(version, told, today)) is not None:
            commits.append(ours)
        now = None if now.parent_snapshot_id is None else log.snapshot_by_id(now.parent_snapshot_id)
    brought = {commit.version for commit in commits}
    rows_since = {path: version for path, version in came.items() if version not in brought}
    for file in snapshot.files:
        known = names.get(file.entry.sequence)
        if came.get(file.path) in brought and known is not None and known not in brought:
            rows_since[file.path] = known
    return History(came, rows_since, came, commits[::-1], grows=True)
