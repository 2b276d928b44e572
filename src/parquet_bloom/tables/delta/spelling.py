"""Which paths of a log deltalake would write otherwise: its own commits are tried, in a table of a temporary folder.

Readers tell files by the spelling. A remove that is spelt otherwise than the add of its file removes nothing for some,
so that rows come twice; and which characters are encoded is each version's own.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from parquet_bloom.errors import StorageError, first_line
from parquet_bloom.tables.delta.commit import is_failure

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


def respelled(library: Any, paths: Sequence[str]) -> set[str]:
    """Those of the paths of add actions that come back otherwise, or that deltalake does not take.

    library  as tables.delta.commit.deltalake gives it
    Raises StorageError without a temporary folder.
    """
    if not paths:
        return set()
    try:
        with _temporary() as folder:
            return _respelled(library, paths, folder)
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


def _respelled(library: Any, paths: Sequence[str], folder: Path) -> set[str]:
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
        return _respelled(library, paths[:half], folder / "a") | _respelled(library, paths[half:], folder / "b")
    return {path for path, *written in pairs if written != [path, path]}


def _written(library: Any, plain: Sequence[str], folder: Path) -> tuple[list[str], list[str]]:
    """What the log has of adds of these paths, and of removes of them."""
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
