"""When the files of a version came, as far back as the log reaches.

A file is another one where its size is: filters may have come behind it, on the same path. One that a commit adds again
as it was, as with a deletion vector, is still the file that it was.
"""

from __future__ import annotations

from urllib.parse import unquote

from parquet_bloom.tables.columns import identities
from parquet_bloom.tables.delta.actions import Actions, read_checkpoint, read_commits
from parquet_bloom.tables.delta.log_files import LogFiles, TableFolder
from parquet_bloom.tables.history import FilterCommit, History, Identities, Version, filter_commit
from parquet_bloom.tables.snapshot import Snapshot


def read_history(folder: TableFolder, snapshot: Snapshot) -> History:
    """Read all commits up to a version that are still there. Raises StorageError, TableFormatError."""
    version, past = int(snapshot.version), _Past(identities(snapshot.fields))
    known = LogFiles(folder).since_the_beginning(version)
    base = Version(known.version - len(known.commits), "")  # "": it, or one before it
    for actions in read_checkpoint(folder, known.checkpoint):
        past.live |= {unquote(add.path): (add.size, base) for add in actions.adds}
    for number, actions in enumerate(read_commits(folder, known.commits), base.order + 1):
        past.apply(Version(number, str(number)), actions)
    came = {file.path: past.live.get(unquote(file.entry.path), (0, base)) for file in snapshot.files}
    since = {path: version for path, (_, version) in came.items() if version.name}
    until = {path: version for path, (size, version) in came.items() if size}
    return History(since, until, past.commits)


class _Past:
    """The live files while the log is replayed: path -> its size, and the version with which it got that."""

    def __init__(self, today: Identities) -> None:
        self._today = today
        self.live: dict[str, tuple[int, Version]] = {}
        self.commits: list[FilterCommit] = []

    def apply(self, version: Version, actions: Actions) -> None:
        """One commit after all before it."""
        added = {unquote(add.path): add.size for add in actions.adds}
        for path in {unquote(path) for path, _ in actions.removed} - added.keys():
            self.live.pop(path, None)
        for path, size in added.items():
            if self.live.get(path, (None,))[0] != size:
                self.live[path] = (size, version)
        if (ours := filter_commit(version, actions.info, self._today)) is not None:
            self.commits.append(ours)
