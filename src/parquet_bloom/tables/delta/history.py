"""When the files of a version came, as far back as the log reaches.

A file is another one where its size is: filters may have come behind it, on the same path. One that a commit adds again
as it was, as with a deletion vector, is still the file that it was. In a commit of ours a file takes the place of one
whose name its own begins with: then its rows came when those did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import unquote

from parquet_bloom.tables.columns import identities
from parquet_bloom.tables.delta.actions import Actions, read_checkpoint, read_commits
from parquet_bloom.tables.delta.log_files import LogFiles, TableFolder
from parquet_bloom.tables.history import FilterCommit, History, Identities, Version, filter_commit
from parquet_bloom.tables.new_names import first_name
from parquet_bloom.tables.snapshot import Snapshot


def read_history(folder: TableFolder, snapshot: Snapshot) -> History:
    """Read all commits up to a version that are still there. Raises StorageError, TableFormatError."""
    version, past = int(snapshot.version), _Past(identities(snapshot.fields))
    known = LogFiles(folder).since_the_beginning(version)
    base = Version(known.version - len(known.commits), "")  # "": it, or one before it
    for actions in read_checkpoint(folder, known.checkpoint):
        past.live |= {unquote(add.path): _Live(add.size, base, base) for add in actions.adds}
    for number, actions in enumerate(read_commits(folder, known.commits), base.order + 1):
        past.apply(Version(number, str(number)), actions)
    nothing = _Live(0, base, base)
    came = {file.path: past.live.get(unquote(file.entry.path), nothing) for file in snapshot.files}
    since = {path: file.since for path, file in came.items() if file.since.name}
    rows_since = {path: file.rows_since for path, file in came.items() if file.rows_since.name}
    until = {path: file.since for path, file in came.items() if file.size}
    return History(since, rows_since, until, past.commits)


class _Live(NamedTuple):
    """A live file: its size, the version with which it got that, and the one with which its rows came."""

    size: int
    since: Version
    rows_since: Version


class _Past:
    """The live files, by path, while the log is replayed."""

    def __init__(self, today: Identities) -> None:
        self._today = today
        self.live: dict[str, _Live] = {}
        self.commits: list[FilterCommit] = []

    def apply(self, version: Version, actions: Actions) -> None:
        """One commit after all before it."""
        ours = filter_commit(version, actions.info, self._today)
        added = {unquote(add.path): add.size for add in actions.adds}
        removed = {unquote(path) for path, _ in actions.removed} - added.keys()
        origins = {} if ours is None else self._origins(added, removed)
        for path in removed:
            self.live.pop(path, None)
        for path, size in added.items():
            known = self.live.get(path)
            if known is None or known.size != size:
                self.live[path] = _Live(size, version, version if ours is None else origins[path])
        if ours is not None:
            self.commits.append(ours)

    def _origins(self, added: Collection[str], removed: Collection[str]) -> dict[str, Version]:
        """For files that a commit of ours added, when their rows came; a version without a name where that is open."""
        unknown, by_name = Version(0, ""), defaultdict(list)
        for path in removed:
            by_name[first_name(path)].append(path)
        found = {}
        for path in added:
            before = [path] if path in self.live else by_name[first_name(path)]
            one = self.live.get(before[0]) if len(before) == 1 else None
            found[path] = unknown if one is None else one.rows_since
        return found
