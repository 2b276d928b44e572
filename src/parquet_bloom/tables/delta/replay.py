"""A table at one version: the log's actions, replayed.

Source: the Delta protocol, "Action Reconciliation".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import unquote

from parquet_bloom.errors import TableFormatError
from parquet_bloom.tables.delta.actions import Actions, Add, read_checkpoint, read_commits
from parquet_bloom.tables.delta.log_files import Files, TableFolder

_DEEPEST = 200  # deltalake 1.6.6 ends the process by a full stack at some thousands
_BRACKETS = re.compile(r"[\[\]{}]")
Key = tuple[str, str | None]  # a path, decoded, and the name of its deletion vector


@dataclass(frozen=True, slots=True)
class State:
    """A table's protocol, metadata and live files at a version.

    deep  a file, live or dead, whose statistics are nested deeper than deltalake reads without a crash; "" for none
    """

    version: int
    protocol: dict[str, Any]
    metadata: dict[str, Any]
    adds: tuple[Add, ...]
    deep: str = ""

    @property
    def identity(self) -> str:
        """What tells the table from another at the same place, made before or after it."""
        return str(self.metadata.get("id"))

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        found: dict[str, str] = self.metadata["configuration"]
        return found


def key_of(add: Add) -> Key:
    """By what the log knows a live file."""
    return unquote(add.path), None if add.vector is None else add.vector.id


def replay(folder: TableFolder, files: Files) -> State:
    """Read the log of a version. Raises StorageError, TableFormatError."""
    live: dict[Key, Add] = {}
    protocol = metadata = None
    deep = ""
    parts: Iterable[Actions] = chain(read_checkpoint(folder, files.checkpoint), read_commits(folder, files.commits))
    for actions in parts:
        protocol = actions.protocol or protocol
        metadata = actions.metadata or metadata
        _apply(folder, live, actions)
        deep = deep or next((add.path for add in actions.adds if _is_deep(add.stats)), "")
    if protocol is None or metadata is None:
        raise TableFormatError(folder.at, f"its log has no protocol or no schema at version {files.version}")
    twice = [path for path, n in Counter(path for path, _ in live).items() if n > 1]
    if twice:
        raise TableFormatError(folder.at, f"its log has {twice[0]} twice, with two deletion vectors")
    return State(files.version, protocol, metadata, tuple(live.values()), deep)


def _is_deep(stats: object) -> bool:
    """Whether JSON may be nested deeper than any schema is; texts in it count as if they were brackets."""
    if not isinstance(stats, str):  # a line of JSON may have anything there
        return False
    if stats.count("[") + stats.count("{") <= _DEEPEST:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(stats):
        depth += 1 if bracket in "[{" else -1
        if depth > _DEEPEST:
            return True
    return False


def _apply(folder: TableFolder, live: dict[Key, Add], actions: Actions) -> None:
    removed = {(unquote(path), vector) for path, vector in actions.removed}
    for key in removed:
        live.pop(key, None)
    for add in actions.adds:
        key = key_of(add)
        if key in removed:
            raise TableFormatError(folder.at, f"one commit adds and removes {add.path}: nobody can tell if it lives")
        live[key] = add
