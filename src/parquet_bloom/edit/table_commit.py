"""Files of a table get new versions, and commits put these into its log: all in one, or so many files in each.

    snapshot -> the way of each file -> work -> new files and tails, which no version names yet
                                     -> Table.commit -> a version names them
                another commit was first -> a newer snapshot: what still fits is kept, the rest is worked on again

Until a commit has landed, whatever goes wrong removes the new files. A run that is killed between leaves them: no
version names them, so that the table's own clean-up (VACUUM, remove_orphan_files) takes them. A tail stays in its
file, and the next run commits it. A file that a version may name is never removed here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from parquet_bloom._version import __version__
from parquet_bloom.edit.reports import FileReport, TableCommit
from parquet_bloom.errors import (
    ConflictError,
    ParquetBloomError,
    RequestError,
    TableFormatError,
    UnknownCommitError,
    parameter,
)
from parquet_bloom.filters.tails import as_it_was, files_at_once
from parquet_bloom.options import CommitMode, CommitOptions
from parquet_bloom.output.s3 import one_client
from parquet_bloom.output.target import Writing, remove_unnamed, size_of
from parquet_bloom.source.snapshot import (
    Change,
    CommitModes,
    Field,
    LeafPath,
    Snapshot,
    Table,
    TableFile,
)
from parquet_bloom.source.truth import LeafTruth
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import FailedFile
from parquet_bloom.storage.remote import Location, in_order
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.workers import Meter, signals_wait

if TYPE_CHECKING:
    from parquet_bloom.source.history import FilterOptions, Identity


R = TypeVar("R", bound=FileReport)
FAR_FILES = 16  # on other storages that get new versions at a time
_CONFLICTS = 10  # in a row, of one commit, before it is given up


@dataclass(frozen=True, slots=True)
class Committing:
    """How new versions get into the table.

    operation  "add", "remove" or "repair"
    way        of all files; None: the one that keeps every promise of the table, for each
    files      in a commit; None: all
    dry_run    no version is made
    append     on the same path, write behind the file itself
    newcomers  files that came with another commit, which was first, are worked on too
    """

    operation: str
    way: CommitMode | None = None
    files: int | None = None
    dry_run: bool = False
    append: bool = False
    newcomers: bool = True

    @classmethod
    def checked(cls, operation: str, options: CommitOptions, how: Writing) -> Committing:
        """The same from a function's options. Raises RequestError."""
        way, files = options.get("commit"), options.get("files_per_commit")
        if way not in (None, "same-path", "new-path"):
            raise RequestError(parameter("commit") + f" {way!r} is neither 'same-path' nor 'new-path'")
        if files is not None and files < 1:
            raise RequestError(parameter("files_per_commit") + f" {files} is not positive")
        return cls(operation, way, files, how.dry_run, how.append)


@dataclass(frozen=True, slots=True)
class FileOutcome(Generic[R]):
    """The outcome of the work on one file.

    size, footer_size  of its new version, as Change has them; 0: there is none
    columns   of the table that got filters in it, or lost them
    complete  columns that need no filter more in it, or None where that was not the question
    choice    of its request, as Request has it
    options   what was asked of the filters of these columns
    begun     where it has no new version: something may lie at the target all the same
    truth     as Change has it
    log_only  the file stays as it is, to the byte: the commit has other statistics of it
    """

    report: R
    size: int = 0
    footer_size: int = 0
    columns: frozenset[str] = frozenset()
    complete: frozenset[str] | None = None
    choice: str = ""
    options: Mapping[str, FilterOptions] = field(default_factory=dict)
    begun: bool = True
    truth: Mapping[LeafPath, LeafTruth] = field(default_factory=dict)
    log_only: bool = False


class FileWork(Protocol[R]):
    """Makes the new version of one file of a snapshot."""

    def __call__(self, file: TableFile, target: Location, look_only: bool, /) -> FileOutcome[R]:
        """Rewrite a file. target is the file itself, or the place of its successor; `look_only` writes nothing."""


@dataclass(slots=True)
class SourceChange(Generic[R]):
    """The changes of a source, by file, and its commits."""

    files: list[R] = field(default_factory=list)
    failed: list[FailedFile] = field(default_factory=list)
    commits: list[TableCommit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Pending(Generic[R]):
    """A new version that waits for its commit."""

    change: Change
    outcome: FileOutcome[R]
    fields: tuple[Field, ...]  # of the snapshot that it was made of

    @property
    def report(self) -> R:
        """The report of its new version."""
        return self.outcome.report


_Rewritten: TypeAlias = tuple[FileOutcome[R], Change | None]  # the change of a file that has a new version


def change_table(
    table: Table, snapshot: Snapshot, work_on: Callable[[Snapshot], FileWork[R]], how: Committing, meter: Meter
) -> SourceChange[R]:
    """Work on every file of a table's latest snapshot and commit what changed.

    work_on  gives the work for the files of one snapshot: this one, or a later one
    meter    is told of the files of this one
    Raises TableFormatError where the table refuses, ConflictError where other commits were first again and again,
    StorageError: what was not committed by then is removed.
    """
    run = _Run(table, work_on, how)
    try:
        with one_client() if files_at_once(snapshot.files) else nullcontext():
            run.work(snapshot, meter)
    except BaseException:  # a signal too
        run.remove_new_files()
        raise
    return run.changed


def commit_mode_of(ways: CommitModes, wanted: CommitMode | None) -> tuple[CommitMode | None, str]:
    """The commit mode of a file and the reason for it; None, and why there is none."""
    if wanted is None:
        if ways.default is None:
            return None, ways.refusal
        return ways.default, ways.no_same_path if ways.default == "new-path" else ways.no_new_path
    refusal = ways.no_same_path if wanted == "same-path" else ways.no_new_path
    return (None, refusal) if refusal else (wanted, "")


def target_of(table: Table, file: TableFile, way: CommitMode | None) -> Location:
    """The place of a file's new version.

    Where neither way is open it is only looked whether anything is to be done, as a copy can have it all.
    """
    return Location(file.path, file.filesystem, file.shown) if way == "same-path" else table.new_location(file)


class _Run(Generic[R]):
    """One call: what is done, and which new files no version names yet."""

    def __init__(self, table: Table, work_on: Callable[[Snapshot], FileWork[R]], how: Committing) -> None:
        self._table, self._work_on, self._how = table, work_on, how
        self.changed: SourceChange[R] = SourceChange()
        self._seen: set[str] = set()  # paths of files that are done, whatever came of them
        self._wanted: set[str] = set()  # paths of files to work on, of all snapshots so far
        self._pending: list[_Pending[R]] = []  # in files, and not in a version yet
        self._new: dict[str, Location] = {}  # by path: files that an error or a signal has to remove
        self._modes: tuple[Snapshot, Mapping[str, CommitModes]] | None = None

    def work(self, snapshot: Snapshot, meter: Meter) -> None:
        """Until every file is done, or an error."""
        # A turn fills one commit and makes it. Three things end it: all is committed, another commit was first, or more
        # files wait for the next commit. In the last two, the next turn begins with a newer snapshot.
        conflicts = 0
        self._wanted = {file.path for file in snapshot.files}
        self._refuse_whole(snapshot)
        while True:
            all_done = self._gather(snapshot, meter)
            if not self._pending:
                return
            try:
                self._commit(snapshot)
            except ConflictError as error:
                conflicts += 1
                self._modes = None
                if conflicts == _CONFLICTS:
                    raise self._conflict_error(error) from error
                snapshot = self._rebase()
                meter = Meter(None)  # progress counts each file once
                continue
            if all_done:
                return
            snapshot, conflicts = self._table.snapshot(stored_only=True), 0

    def _modes_of(self, snapshot: Snapshot) -> Mapping[str, CommitModes]:
        if self._modes is None or self._modes[0] is not snapshot:
            self._modes = snapshot, self._table.commit_modes(snapshot)
        return self._modes[1]

    def _refuse_whole(self, snapshot: Snapshot) -> None:
        modes = self._modes_of(snapshot)
        chosen = [commit_mode_of(modes[file.path], self._how.way) for file in snapshot.files]
        if chosen and all(mode is None for mode, _ in chosen):
            if self._how.way is not None and any(modes[file.path].default for file in snapshot.files):
                reason = f"none of its files can be changed so: {chosen[0][1]}; leave out "
                raise TableFormatError(self._table.name, reason + parameter("commit", self._how.way))
            raise TableFormatError(self._table.name, f"its files cannot get new versions: {chosen[0][1]}")

    def _gather(self, snapshot: Snapshot, meter: Meter) -> bool:
        """Rewrite files until a commit is full; True if all are done."""
        modes, work = self._modes_of(snapshot), self._work_on(snapshot)
        ahead = files_at_once(snapshot.files, None if self._how.dry_run else FAR_FILES)
        first: dict[str, TableFile] = {}  # a log may name a path twice
        for file in snapshot.files:
            if file.path in self._wanted and file.path not in self._seen:
                first.setdefault(file.path, file)
        waiting = list(first.values())

        def rewrite(file: TableFile) -> _Rewritten[R]:
            return self._rewrite_file(file, modes[file.path], work)

        while waiting:
            # Not every file gets a new version, so a commit may take several batches. A batch is never larger than the
            # room that is left, so no file is begun in vain.
            room = len(waiting) if self._how.files is None else self._how.files - len(self._pending)
            if room <= 0:
                return False
            batch, waiting = waiting[:room], waiting[room:]
            # On an error, what has begun ends before new files are removed.
            with closing(in_order(rewrite, batch, ahead, settle=True)) as results:
                for file, result in zip(batch, results, strict=True):
                    meter.start()
                    self._seen.add(file.path)
                    try:
                        self._record(snapshot, result())
                    except ParquetBloomError as error:
                        self.changed.failed.append(FailedFile(str(file), error))
                    meter.finish()
        return True

    def _rewrite_file(self, file: TableFile, ways: CommitModes, work: FileWork[R]) -> _Rewritten[R]:
        """Make the new version of one file; several threads may."""
        # A file without a commit mode is worked on too, as a dry run: if it needs no new version, nothing is wrong.
        mode, reason = commit_mode_of(ways, self._how.way)
        target = target_of(self._table, file, mode)
        look_only = self._how.dry_run or mode is None
        if mode == "new-path" and not look_only:
            self._new[target.path] = target  # before it is there: a signal may come at any time
        try:
            try:
                outcome = work(file, target, look_only)
            except ConflictError:  # another run put a tail behind the file meanwhile; with that it is tried once more
                outcome = work(file, target, look_only)
        except ParquetBloomError:
            self._remove(target.path)
            raise
        if outcome.size:
            if mode is None:
                raise TableFormatError(file, f"cannot get a new version: {reason}")
            if outcome.log_only:
                self._remove(target.path)
                target = target_of(self._table, file, "same-path")
            else:
                outcome.report.way, outcome.report.why = mode, reason
            if not look_only:
                return outcome, Change(file, target, outcome.size, outcome.footer_size, outcome.truth)
        elif outcome.begun:
            self._remove(target.path)
        else:
            self._new.pop(target.path, None)
        return outcome, None

    def _record(self, snapshot: Snapshot, rewritten: _Rewritten[R]) -> None:
        """Keep a new version for the commit; report a file that has none."""
        outcome, change = rewritten
        if change is None:
            self.changed.files.append(outcome.report)
        else:
            self._pending.append(_Pending(change, outcome, snapshot.fields))

    def _commit(self, snapshot: Snapshot) -> None:
        """Raises errors of ours: nothing was committed then, but for UnknownCommitError."""
        changes = [one.change for one in self._pending]
        unnamed, self._new = self._new, {}  # from here on a version may name them
        with signals_wait():
            try:
                version = self._table.commit(snapshot, changes, self._properties())
            except UnknownCommitError:  # a version may name the new files, so none of them is removed
                raise
            except ParquetBloomError:
                self._new = unnamed
                raise
            self.changed.files += [one.report for one in self._pending]
            same_path = sum(change.same_path for change in changes)
            self.changed.commits.append(TableCommit(self._table.name, version, len(changes), same_path))
            # In the next snapshot the new files are files of the table, which need no more work.
            self._seen.update(change.location.path for change in changes)
            self._pending = []

    def _properties(self) -> Mapping[str, str]:
        """The properties of a commit: a file may be of an earlier snapshot, whose names meant other columns."""
        from parquet_bloom.source.columns import identities
        from parquet_bloom.source.history import properties_of  # nothing is loaded for it where files are changed

        known = {fields: identities(fields) for fields in dict.fromkeys(one.fields for one in self._pending)}

        def identified(one: _Pending[R], names: frozenset[str]) -> set[tuple[str, Identity]]:
            return {(name, known[one.fields][name]) for name in names if name in known[one.fields]}

        # A commit names each column that some file got filters for, complete columns only if they are so in every file,
        # and a choice only if all files agree on it.
        columns = [identified(one, one.outcome.columns) for one in self._pending]
        complete = [identified(one, one.outcome.complete) for one in self._pending if one.outcome.complete is not None]
        told = properties_of(
            self._how.operation,
            set().union(*columns),
            set.intersection(*complete) if len(complete) == len(self._pending) else None,
            choices.pop() if len(choices := {one.outcome.choice for one in self._pending}) == 1 else "",
            {
                column: one.outcome.options[column[0]]
                for one in self._pending
                for column in identified(one, frozenset(one.outcome.options))
            },
        )
        return {**told, "parquet-bloom.version": __version__}

    def _rebase(self) -> Snapshot:
        """After another commit: keep versions that still fit the table, and let other files be rewritten again."""
        snapshot = self._table.snapshot(stored_only=True)
        ways = self._table.commit_modes(snapshot)
        live = {file.path: file for file in snapshot.files}
        pending, self._pending = self._pending, []
        for one in pending:
            change = one.change
            # A new version fits if its file is in the new snapshot with the same size and rows, may still be changed
            # in the same commit mode, and if the new version itself is still there.
            now = live.get(change.file.path)
            fits = now is not None and _is_as_it_was(one, now, ways[now.path], self._how.way)
            if fits and now is not None and size_of(change.location) == change.size:  # no clean-up took it for litter
                self._pending.append(replace(one, change=change._replace(file=now)))
            else:
                self._remove(change.location.path)
                self._seen.discard(change.file.path)
                if now is None:
                    self.changed.notes.append(f"{change.file}: another commit removed it meanwhile")
        if self._how.newcomers:
            self._wanted.update(live)
        return snapshot

    def _conflict_error(self, error: ConflictError) -> ConflictError:
        made = len(self.changed.commits)
        before = f"; the {made} commits before it stay" if made else ""
        return ConflictError(
            self._table.name, f"other commits were first {_CONFLICTS} times, the last time: {error}{before}"
        )

    def _remove(self, path: str) -> None:
        target = self._new.pop(path, None)
        if target is not None:
            with contextlib.suppress(ParquetBloomError):  # then it stays, as after a kill
                remove_unnamed(target)

    def remove_new_files(self) -> None:
        """Remove what no version names."""
        for path in list(self._new):
            self._remove(path)


def _is_as_it_was(one: _Pending[R], now: TableFile, ways: CommitModes, wanted: CommitMode | None) -> bool:
    """Whether a new version that was made of a file may still take its place."""
    change = one.change
    if (now.size, now.rows) != (change.file.size, change.file.rows):
        return False
    way = commit_mode_of(ways, wanted)[0]
    if one.outcome.log_only:
        return way is not None
    return way == ("same-path" if change.same_path else "new-path")


# --- one file of a table, and its log -------------------------------------------------------------
#
# One file of a table: whether it is what the log says, and what the log is to say of its new version.


class _ThroughLog(Tables):
    """Lets files of a table change: the commit puts them into its log."""

    def check_target(self, at: Location, target: Location, force: bool) -> None:
        """Nothing is refused."""


THROUGH_LOG = _ThroughLog()


def check_size(file: TableFile, source: OpenFile) -> bool:
    """Whether a file is longer than its table's log says, by a tail of ours that no commit names yet.

    Raises TableFormatError where it has another size for another reason.
    """
    was = as_it_was(source, file.size or source.size)
    if was is not None:
        return was is not source
    reason = f"has {source.size:,} bytes, and {file.size:,} by the table's log: another program changed it"
    raise TableFormatError(file, reason)


def footer_bytes(at: Location) -> int:
    """Bytes of a file's Thrift footer."""
    with OpenFile(at) as source:
        return len(source.footer().data)
