"""States of tables, kept for the process: a log whose files are proved unchanged is not read twice.

    name of the table, version --> tokens of the log's files now = tokens before they were read --> the same state
                                   otherwise                                                    --> read again

A version's number proves nothing: a table that was made again at the same place has the same numbers. Tokens are those
of storage.version_token that prove equal bytes. So nothing is kept on storages without such tokens (NFS, HDFS), or of a
log that was written in the last tenth of a second. Of Iceberg the metadata that the catalog names are read each time,
and are a part of the proof.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.process import ForkSafe
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
