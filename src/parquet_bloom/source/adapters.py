"""Shared by adapters of tables: states that are kept, and the form of changes of rows.

A state is kept for the process: a log whose files are proved unchanged is not read twice.

    name of the table, version --> tokens of the log's files now = tokens before they were read --> the same state
                                   otherwise                                                    --> read again

A version's number proves nothing: a table that was made again at the same place has the same numbers. Tokens are those
of storage.version_token that prove equal bytes. So nothing is kept on storages without such tokens (NFS, HDFS), or of a
log that was written in the last tenth of a second. Of Iceberg the metadata that the catalog names are read each time,
and are a part of the proof.

A change of rows has one form for Delta and Iceberg: files go, new files come, in one commit.

    snapshot -> Table -> RowChanges -> write -> new files, which no version names yet
                                    -> commit -> a version names them, and old files no more

An adapter does it by its format's library.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.process import ForkSafe
from parquet_bloom.source.snapshot import Snapshot, Table, TableFile
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location, side_by_side
from parquet_bloom.storage.store import Store

_MOST_FILES = 100_000  # of all states together
BYTES_A_FILE = 1500  # of a state
_MOST_STATES = 8
_MOST_TOKENS = 64  # files of a log on a store; each costs a request

T = TypeVar("T")
Proof = tuple[Any, ...]


def proof_of(places: Sequence[Location], opened: Callable[[Location], OpenFile] = OpenFile) -> Proof | None:
    """Tokens of the files of a log; equal ones prove equal bytes. None where there is no proof.

    opened  opens a file as the reader of the log does, or raises a ParquetBloomError for one that it refuses
    """
    if not places or (not places[0].is_local and len(places) > _MOST_TOKENS):
        return None

    def token(at: Location) -> object:
        with opened(at) as source:
            return source.lasting_token()

    try:
        tokens = list(map(token, places)) if places[0].is_local else side_by_side(token, places)
    except ParquetBloomError:  # the reader of the log raises it
        return None
    return None if None in tokens else tuple((at.path, token) for at, token in zip(places, tokens, strict=True))


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    key: Hashable
    store: Store
    proof: Proof
    files: int
    state: T


class KeptStates(Generic[T]):
    """A few states of tables, the latest used last. Threads may share it, and a forked process goes on with a copy."""

    def __init__(self) -> None:
        self._lock = ForkSafe(threading.Lock)
        self._kept: list[_Kept[T]] = []

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Hashable, store: Store, proof: Proof) -> T | None:
        """The state that was read of a log with these bytes; None: there is none."""
        with self._lock.own:
            for i, one in enumerate(self._kept):
                if one.key == key and one.proof == proof and one.store.same(store):
                    self._kept.append(self._kept.pop(i))
                    return one.state
        return None

    def keep(self, key: Hashable, store: Store, proof: Proof, files: int, state: T) -> None:
        """Keep a state of so many files; the least recently used ones make room.

        proof  of before the log was read
        """
        if files > _MOST_FILES:
            return
        with self._lock.own:
            others = [one for one in self._kept if one.key != key or not one.store.same(store)]
            self._kept = [*others, _Kept(key, store, proof, files, state)]
            while len(self._kept) > _MOST_STATES or sum(one.files for one in self._kept) > _MOST_FILES:
                self._kept.pop(0)

    def clear(self) -> None:
        """Forget all states."""
        with self._lock.own:
            self._kept = []


# --- changes of rows ------------------------------------------------------------------------------


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
