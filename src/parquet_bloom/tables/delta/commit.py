"""Commits of new versions of files, which change no row, in one step with the check that nobody was faster.

    versions after the snapshot   read: none may touch a file of ours, the schema or the protocol
    deltalake, at the last one    commits as the next version and no other: it retries nothing
    another commit came first     that version is read too, and so on

deltalake alone would not do: it lets an append by after a compaction that removed the file, whose rows then come twice.
The log is read again after each attempt, as an error does not tell that nothing was written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from parquet_bloom.errors import (
    ConflictError,
    ParquetBloomError,
    RequestError,
    StorageError,
    TableFormatError,
    UnknownCommitError,
    first_line,
)
from parquet_bloom.extras import to_install
from parquet_bloom.source.history import described
from parquet_bloom.source.snapshot import Change
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.remote import Location, arrow_options, s3_endpoint, side_by_side, storage_error
from parquet_bloom.storage.stores import store_of
from parquet_bloom.tables.delta.actions import Actions, Add, read_commits
from parquet_bloom.tables.delta.log import LogFiles, TableFolder, check_all, read_file

_ATTEMPTS = 20  # of one commit, while those of other programs come first
_REASON = re.compile(r"([A-Z][\w ]{0,100}\(os error \d+\))")
_TOKEN = "parquetBloomCommit"  # a name in commitInfo, by which a commit is known for ours


def commit(
    folder: TableFolder, version: int, identity: str, changes: Sequence[Change], properties: Mapping[str, str]
) -> int:
    """Commit new versions of files that a version has; returns the version that they are in.

    identity  of the table, as its metaData action has it
    Raises RequestError without deltalake, and as source.snapshot.Table.commit.
    """
    if not changes:
        return version
    transaction = Replacement(folder, identity, changes, properties)
    for _ in range(_ATTEMPTS):
        version = transaction.check(version)
        transaction.check_files()
        if transaction.attempt(version, transaction.actions()):
            return version + 1
    raise ConflictError(folder.at, f"other commits were faster {_ATTEMPTS} times; nothing was committed, try again")


class Transaction:
    """One commit, while it is tried."""

    def __init__(self, folder: TableFolder, identity: str, properties: Mapping[str, Any]) -> None:
        self.library = deltalake()
        self.folder = folder
        self._identity = identity
        self._token = uuid.uuid4().hex
        # deltalake calls the operation WRITE and lets nobody else name it; histories show this text beside it.
        self._properties = {**properties, "userMetadata": described(properties), _TOKEN: self._token}

    def attempt(self, version: int, actions: Sequence[Any]) -> bool:
        """Commit as the version after one; False: another commit is there."""
        library = self.library
        more = library.CommitProperties(custom_metadata=self._properties, max_commit_retries=0)
        # A checkpoint or a cleaning that fails after the commit would look as if that had failed.
        hooks = library.PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        failure: BaseException | None = None
        try:
            # deltalake writes the version behind the one that it has open, if nobody has written that: no retries. The
            # mode says that no rows are replaced; adds and removes are those of the actions.
            table = open_delta_table(self.folder, version, self._identity)
            table.create_write_transaction(
                list(actions),
                mode="append",
                schema=table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=more,
                post_commithook_properties=hooks,
            )
        except ConflictError:
            raise
        except BaseException as error:
            if not is_failure(error):
                raise
            failure = error
        landed = self._landed(version + 1, failure)
        if landed is None:
            raise self._failed(failure) from failure
        return landed

    def _landed(self, version: int, failure: BaseException | None) -> bool | None:
        """Whether a version is ours; None: there is no such version."""
        at = self.folder.below(f"_delta_log/{version:020d}.json")
        try:
            if store_of(at).size(at.path) is None:
                return None
            data = read_file(at)
        except Exception as error:
            said = error_text(failure or error)
            reason = f"it is not known whether version {version} is this commit ({said}); its files stay"
            raise UnknownCommitError(self.folder.at, without_secret(reason)) from error
        if failure is None and self._token.encode() not in data:
            raise UnknownCommitError(
                self.folder.at, f"deltalake committed, but not as version {version}; its files stay"
            )
        return self._token.encode() in data

    def _failed(self, failure: BaseException | None) -> Exception:
        if failure is None:
            return UnknownCommitError(self.folder.at, "deltalake committed, but the log does not have the version yet")
        if isinstance(failure, ParquetBloomError):  # it was not even opened
            return failure
        said = without_secret(error_text(failure))
        if self.folder.at.is_local or isinstance(failure, self.library.refusals):
            return StorageError(self.folder.at, f"deltalake did not commit: {said}; nothing was committed")
        # What was sent may still arrive.
        return UnknownCommitError(self.folder.at, f"it is not known whether the commit landed ({said}); its files stay")


class Replacement(Transaction):
    """A commit of new versions of files."""

    def __init__(
        self, folder: TableFolder, identity: str, changes: Sequence[Change], properties: Mapping[str, str]
    ) -> None:
        super().__init__(folder, identity, properties)
        self._changes = changes
        self._ours = {unquote(change.file.entry.path): change.file for change in changes}

    def check(self, version: int) -> int:
        """Read what was committed after a version; returns the latest. Raises ConflictError, StorageError."""
        # A version is a file of the log with its number as a name (Delta protocol, "Delta Log Entries").
        try:
            later = LogFiles(self.folder).commits_after(version)
        except TableFormatError as error:
            reason = f"what was committed after version {version} cannot be read any more; nothing was committed"
            raise ConflictError(self.folder.at, reason) from error
        for (number, _), actions in zip(later, read_commits(self.folder, [name for _, name in later]), strict=True):
            self._check_one(number, actions)
        return max([version, *(number for number, _ in later)])

    def _check_one(self, number: int, actions: Actions) -> None:
        # Appends and deletes of other files do not matter. The rest makes what we prepared doubtful.
        if actions.protocol is not None or actions.metadata is not None:
            reason = f"version {number} changed the schema, the properties or the protocol; nothing was committed"
            raise ConflictError(self.folder.at, reason)
        # An add of a path that the table has replaces its entry: statistics, tags or a deletion vector changed.
        touched = [add.path for add in actions.adds] + [path for path, _ in actions.removed]
        for path in touched:
            if (file := self._ours.get(unquote(path))) is not None:
                reason = f"was removed or changed by version {number} of the table; nothing was committed"
                raise ConflictError(file, reason)

    def check_files(self) -> None:
        """Raise ConflictError where a new version is not there as it was written: a vacuum takes what no log names.

        At its old path a file may be longer: bytes behind the size in the log are no part of it.
        """
        side_by_side(lambda change: check_size(change.location, change.size, change.same_path), self._changes)

    def actions(self) -> list[Any]:
        """The adds and removes of the commit."""
        # One file's change is an add of the new version, with the values and statistics of the old one, and on a new
        # path a remove of the old one. dataChange, False here, says that no row changed, so that streams pass over
        # both. An add on a path that the table has takes the place of its entry (Delta protocol, "Add File and Remove
        # File").
        now = int(time.time() * 1000)  # the adds keep the time of their rows: streams begin with the oldest
        found: list[Any] = []
        for change in self._changes:
            add: Add = change.file.entry
            stats: Any = add.stats  # None is written too, whatever the annotation says
            path = unquote(add.path) if change.same_path else self._relative(change)
            found.append(self.library.AddAction(path, change.size, dict(add.values), add.modified, False, stats))
            if not change.same_path:
                found.append(self.library.RemoveAction(unquote(add.path), False, now, add.size, dict(add.values)))
        return found

    def _relative(self, change: Change) -> str:
        path = self.folder.relative(change.location)
        if path is None:
            raise RequestError(f"{change.location} does not lie in the table {self.folder.at}")
        return path


def check_size(at: Location, wanted: int, may_grow: bool = False) -> None:
    """Raise ConflictError where a file that a commit is to name is not there as it was written; StorageError."""
    try:
        size = store_of(at).size(at.path)
    except Exception as error:
        raise storage_error(at, error) from error
    if size != wanted and (size is None or size < wanted or not may_grow):
        found = "is gone" if size is None else f"has {size} bytes, not {wanted}"
        raise ConflictError(at, f"{found} before the commit; nothing was committed")


def error_text(error: BaseException) -> str:
    """The text of an error, with the system's reason, which deltalake has on a line further down."""
    reason = _REASON.search(str(error))
    said = first_line(error)
    return said if reason is None or reason[1] in said else f"{said}: {reason[1]}"


def is_failure(error: BaseException) -> bool:
    """Whether an error is one of the library: its panics are no Exception, and no signal either."""
    return isinstance(error, Exception) or type(error).__module__ == "pyo3_runtime"


class _Library:
    """The functions that are used of deltalake."""

    def __init__(self) -> None:
        from deltalake import DeltaTable, write_deltalake
        from deltalake.exceptions import DeltaProtocolError, SchemaMismatchError, TableNotFoundError
        from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, RemoveAction

        self.DeltaTable, self.write_deltalake = DeltaTable, write_deltalake
        self.AddAction, self.RemoveAction = AddAction, RemoveAction
        self.CommitProperties, self.PostCommitHookProperties = CommitProperties, PostCommitHookProperties
        # With these nothing was sent.
        self.refusals = (DeltaProtocolError, SchemaMismatchError, TableNotFoundError, ValueError, TypeError)


def deltalake() -> _Library:
    """Load what a commit needs. Raises RequestError where deltalake is not installed."""
    try:
        return _Library()
    except ImportError as error:
        raise RequestError(f"delta: a commit needs deltalake; {to_install('delta')}") from error


def open_delta_table(folder: TableFolder, version: int, identity: str) -> Any:
    """deltalake's own DeltaTable of a version.

    Raises TableFormatError, StorageError where deltalake does not open it, ConflictError where it is another table.
    """
    library = deltalake()
    check_all(folder)
    uri, options = uri_and_options(folder)
    try:
        table = library.DeltaTable(uri, version=version, storage_options=options)
        table.schema()
        found = str(table.metadata().id)
    except BaseException as error:
        if not is_failure(error):
            raise
        said = without_secret(error_text(error))
        kind = StorageError if isinstance(error, OSError) or not isinstance(error, Exception) else TableFormatError
        raise kind(folder.at, f"deltalake does not open it: {said}; nothing was committed") from error
    if found != identity:
        reason = "deltalake finds a table with another id there: it was made again, or its name means another folder"
        raise ConflictError(folder.at, f"{reason} to deltalake; nothing was committed")
    return table


def check_log(folder: TableFolder) -> None:
    """Raise StorageError where a commit cannot be written, as far as a local disk shows that."""
    log = folder.below("_delta_log")
    if log.is_local and os.path.isdir(log.path) and not os.access(log.path, os.W_OK | os.X_OK):
        raise StorageError(folder.at, f"the folder of its log, {log.path}, may not be written to; nothing was changed")


def uri_and_options(folder: TableFolder) -> tuple[str, dict[str, str] | None]:
    """The table's URI and storage options for deltalake. Raises RequestError for storages that it cannot reach."""
    at = folder.at
    if at.is_local:
        return Path(os.path.abspath(at.path)).as_uri(), None
    if getattr(at.filesystem, "type_name", "") != "s3":
        raise RequestError(f"{at}: commits to Delta tables are made on local disks and S3 alone")
    options = arrow_options(at.filesystem)
    if options.get("role_arn"):
        raise RequestError(f"{at}: deltalake takes no role that pyarrow assumes; give its credentials")
    return f"s3://{quote(at.path)}", _s3(options)


def _s3(options: Mapping[str, Any]) -> dict[str, str]:
    """pyarrow's options by deltalake's names; what is not set both take from the environment."""
    endpoint = s3_endpoint(options)
    found = {
        "aws_access_key_id": options.get("access_key"),
        "aws_secret_access_key": options.get("secret_key"),
        "aws_session_token": options.get("session_token"),
        "aws_region": options.get("region"),
        "aws_endpoint_url": endpoint,
        "aws_allow_http": "true" if (endpoint or "").startswith("http://") else None,
        "aws_virtual_hosted_style_request": "true" if options.get("force_virtual_addressing") else None,
        "aws_skip_signature": "true" if options.get("anonymous") else None,
        "aws_conditional_put": "etag",
    }
    return {name: value for name, value in found.items() if value}


# --- spelling -------------------------------------------------------------------------------------
#
# Which paths of a log deltalake would write otherwise: its own commits are tried, in a table of a temporary folder.
#
# Readers tell files by the spelling. A remove that is spelt otherwise than the add of its file removes nothing for
# some, so that rows come twice; and which characters are encoded is each version's own.

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PREFIX = "parquet-bloom-spelling-"
_YOUNG_S = 60  # a folder that was just made may not have its lock yet
_FIELD = {"name": "x", "type": "long", "nullable": True, "metadata": {}}
_EMPTY = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "spelling",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": [_FIELD]}),
            "partitionColumns": [],
            "configuration": {},
            "createdTime": 0,
        }
    },
]


_WORDS = re.compile(r"[A-Za-z0-9]+")


def reencoded_paths(library: Any, paths: Sequence[str]) -> set[str]:
    """Those of the paths of add actions that come back otherwise, or that deltalake does not take.

    library  as tables.delta.commit.deltalake gives it
    Raises StorageError without a temporary folder.
    """
    if not paths:
        return set()
    shapes = {path: path if "%" in path else _WORDS.sub("x", path) for path in paths}
    tried = {shape: path for path, shape in shapes.items()}  # one of each shape: encoding is character by character
    try:
        with _temporary() as folder:
            changed = _reencoded(library, list(tried.values()), folder)
            return {path for path, shape in shapes.items() if tried[shape] in changed}
    except OSError as error:
        raise StorageError(tempfile.gettempdir(), f"no table to try paths in: {first_line(error)}") from error


@contextmanager
def _temporary() -> Iterator[Path]:
    """A temporary folder, locked; those that killed runs have not removed go first."""
    _remove_stale(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        locked = _locked(folder)
        try:
            yield Path(folder)
        finally:
            if locked is not None:
                os.close(locked)


def _remove_stale(base: str) -> None:
    for entry in os.scandir(base):
        if not entry.name.startswith(_PREFIX):
            continue
        with suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if not mine or time.time() - found.st_mtime < _YOUNG_S:
                continue
            locked = _locked(entry.path)
            if locked is not None:
                try:
                    shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(locked)


def _locked(folder: str) -> int | None:
    """A descriptor that holds the lock of a folder; None: another process has it, or the system has no locks."""
    if fcntl is None:
        return None
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _reencoded(library: Any, paths: Sequence[str], folder: Path) -> set[str]:
    folder.mkdir(exist_ok=True)
    try:
        added, removed = _written(library, [unquote(path) for path in paths], folder / "table")
        pairs = list(zip(paths, added, removed, strict=True))
    except OSError:
        raise
    except BaseException as error:  # one of them is the reason: the others are told from it by halves
        if not is_failure(error):
            raise
        if len(paths) == 1:
            return set(paths)
        half = len(paths) // 2
        return _reencoded(library, paths[:half], folder / "a") | _reencoded(library, paths[half:], folder / "b")
    return {path for path, *written in pairs if written != [path, path]}


def _written(library: Any, plain: Sequence[str], folder: Path) -> tuple[list[str], list[str]]:
    """The log's adds of these paths, and its removes of them."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, _EMPTY)))
    hooks = library.PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    none: Any = None
    table = library.DeltaTable(folder.as_uri())
    for actions in (
        [library.AddAction(path, 1, {}, 0, False, none) for path in plain],
        [library.RemoveAction(path, False, 0, 1, {}) for path in plain],
    ):
        table.create_write_transaction(actions, mode="append", schema=table.schema(), post_commithook_properties=hooks)
    found = []
    for version, kind in ((1, "add"), (2, "remove")):
        lines = (log / f"{version:020d}.json").read_text().splitlines()
        found.append([action[kind]["path"] for action in map(json.loads, lines) if kind in action])
    return found[0], found[1]
