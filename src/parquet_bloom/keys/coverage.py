"""The files of a source that a key index covers: their names in its listings, and the proof that they are the same.

    a table's file   its log names it, and the index is of this table: a name in a table's log has one content for ever
    a local file     stat has the token that the index keeps
    another storage  the token is compared when the file is opened; until then the file is not excluded

Equal names and sizes prove nothing: storage.version_token says what does. A token that differs proves nothing either,
so such a file is read as without an index. An index opens no file by a name of its own: names are only compared.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from parquet_bloom._thrift.parquet.ttypes import FileMetaData
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.keys.index import KeyIndex
from parquet_bloom.keys.manifest import SegmentSchema
from parquet_bloom.keys.plan import below, name_of
from parquet_bloom.search.log import Log
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.version_token import LocalToken, StoreToken, proves


class Covered(NamedTuple):
    """A file that the index knows.

    segment, number  of the segment in the manifest, and of the file in it
    schema   its number in the segment
    is_sure  whether it is certainly the one that was indexed; else that shows when it is opened
    """

    file: DataFile
    segment: int
    number: int
    schema: int
    is_sure: bool


@dataclass(slots=True)
class Coverage:
    """The files of a source that an index knows.

    changed  of how many the index has the name, and another version
    by_log   whether the log of their table recognises them
    """

    index: KeyIndex
    known: list[Covered] = field(default_factory=list)
    changed: int = 0
    by_log: bool = False
    at: dict[int, tuple[int, int]] = field(default_factory=dict)  # id(file) -> segment, number
    systems: _FileSystems = field(default_factory=lambda: _FileSystems())

    def is_same(self, file: DataFile, version_token: object) -> bool:
        """Whether an open file is the one that was indexed.

        version_token  of the file, as it was opened
        """
        if self.by_log:
            return True
        segment, number = self.at[id(file)]
        listing = self.index.listing(self.index.manifest.segments[segment])
        if isinstance(version_token, LocalToken):
            return bool((listing.local_tokens[number] == self.systems.token(version_token, file.path)).all())
        return isinstance(version_token, StoreToken) and proves(listing.tokens[number], version_token.facts())

    @property
    def reason(self) -> str:
        """Why no file is known, in words."""
        manifest = self.index.manifest
        of = manifest.table or manifest.root or "other files"
        if self.changed:
            return f"all of its {self.changed:,} files that are here changed since it was built; build it again"
        return f"is an index of {of}, and of none of these files; name the index that was built over them"


class _FileSystems:
    """The numbers of file systems, which take the place of device numbers in tokens (LocalToken.facts)."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def token(self, token: LocalToken, path: str) -> Any:
        """device, inode, size, mtime_ns and ctime_ns, as a listing has them: uint64[5]."""
        if token.device not in self._known:
            self._known[token.device] = os.statvfs(path).f_fsid or token.device
        values = (self._known[token.device], token.inode, token.size, token.mtime_ns, token.ctime_ns)
        return np.array([value & (1 << 64) - 1 for value in values], np.uint64)


def coverage_of(index: KeyIndex, found: ResolvedSource) -> Coverage:
    """Find the files of a source in an index. Raises DamagedFileError, StorageError for a listing."""
    manifest, names = index.manifest, index.names
    coverage = Coverage(index)
    if found.has_log:
        identity, table = found.snapshot.identity, found.snapshot.table
        coverage.by_log = bool(manifest.identity == identity and (identity or manifest.table == table))
    waiting: list[tuple[DataFile, int, int]] = []
    tokens: list[Any] = []
    for file in found.files:
        if not file.stored:
            continue
        at = names.get(below(name_of(file), manifest.root))
        if at is None:
            continue
        coverage.at[id(file)] = at
        if coverage.by_log or not file.is_local:
            coverage.known.append(Covered(file, *at, _schema(index, *at), coverage.by_log))
            continue
        try:
            token = coverage.systems.token(LocalToken.of(os.stat(file.path)), file.path)
        except OSError:  # it is gone, as opening it will say
            continue
        waiting.append((file, *at))
        tokens.append(token)
    if waiting:
        kept = np.stack([index.listing(manifest.segments[s]).local_tokens[n] for _, s, n in waiting])
        same = (kept == np.stack(tokens)).all(axis=1) & kept.any(axis=1)
        for (file, segment, number), is_same in zip(waiting, same.tolist(), strict=True):
            if is_same:
                coverage.known.append(Covered(file, segment, number, _schema(index, segment, number), True))
        coverage.changed = int((~same).sum())
    return coverage


def _schema(index: KeyIndex, segment: int, number: int) -> int:
    return int(index.listing(index.manifest.segments[segment]).schema[number])


def named_leaves(schema: SegmentSchema, log: Log, file: DataFile) -> tuple[Leaf, ...]:
    """The leaves of a file's schema under the names of its source; see search.log.Log.outline."""
    leaves = schema.leaves
    slots = np.empty((Slot.COUNT, 0, len(leaves)), np.int64)
    outline = Outline(b"", 0, leaves, FileMetaData(schema=list(schema.elements)), np.empty(0, np.int64), slots)
    return log.outline(outline, file).leaves
