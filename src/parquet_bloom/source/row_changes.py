"""Changes of a table's rows, in one form for Delta and Iceberg: files go, new files come, in one commit.

    snapshot -> Table -> RowChanges -> write -> new files, which no version names yet
                                    -> commit -> a version names them, and old files no more

An adapter does it by its format's library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from parquet_bloom.source.snapshot import Snapshot, Table, TableFile


class NewFile(NamedTuple):
    """A new data file, which no version names yet.

    file   as a snapshot would have it, with its size
    entry  the adapter's own record of it
    """

    file: TableFile
    entry: Any


class RowChanges(Protocol):
    """One change of rows of a table's snapshot. Made for a table that allows none, it raises TableFormatError."""

    def check(self, files: Sequence[TableFile]) -> None:
        """Raise TableFormatError for a file that cannot be taken out of the table."""

    def write(self, rows: pa.Table) -> list[NewFile]:
        """Write rows as new files, one or more for each partition. Raises StorageError, RequestError for such rows."""

    def commit(self, gone: Sequence[TableFile], new: Sequence[NewFile], properties: Mapping[str, str]) -> str:
        """Take files out of the table and put new ones in, in one commit; returns the new version.

        properties  what the log tells of the commit
        Raises ConflictError where another commit came first; StorageError where nothing was committed for another
        reason; UnknownCommitError, after which new files must stay.
        """

    def discard(self) -> None:
        """Remove what was written, as far as that is possible: nothing was committed."""


class RowTable(Table, Protocol):
    """A table whose rows may change."""

    def row_changes(self, snapshot: Snapshot) -> RowChanges:
        """A change of rows of its latest snapshot. Raises TableFormatError where the table allows none."""
