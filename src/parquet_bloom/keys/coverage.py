"""The files of a source that a key index covers: their names in its listings, and the proof that they are the same.

    a table's file   its log names it, and the index is of this table, by its identity: a name in a table's log has one
                     content for ever; of a table without an identity as other files
    a local file     stat has the token that the index keeps
    an object        its version in a listing (storage.stores.listed_versions) is the one that the index keeps
    else             the token is compared when the file is opened; until then the file is not excluded

Equal names and sizes prove nothing: storage.version_token says what does. A token that differs proves nothing either,
so such a file is read as without an index. An index opens no file by a name of its own: names are only compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from parquet_bloom._thrift.parquet.ttypes import FileMetaData
from parquet_bloom.errors import StaleIndexError
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.keys.index import KeyIndex
from parquet_bloom.keys.manifest import SegmentSchema
from parquet_bloom.keys.plan import below, name_of
from parquet_bloom.search.log import Log
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.stores import listed_versions
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
    is_of_table  whether the index is of this very table, whose files may all be new by now; of a table without an
             identity whether it has this name
    """

    index: KeyIndex
    known: list[Covered] = field(default_factory=list)
    changed: int = 0
    by_log: bool = False
    is_of_table: bool = False
    at: dict[int, tuple[int, int]] = field(default_factory=dict)  # id(file) -> segment, number
    systems: dict[int, int] = field(default_factory=dict)  # device -> number of the file system

    def is_same(self, file: DataFile, version_token: object) -> bool:
        """Whether an open file is the one that was indexed.

        version_token  of the file, as it was opened
        """
        if self.by_log:
            return True
        segment, number = self.at[id(file)]
        listing = self.index.listing(self.index.manifest.segments[segment])
        if isinstance(version_token, LocalToken):
            return listing.local_tokens[number] == self.facts(version_token, file.path)
        return isinstance(version_token, StoreToken) and proves(listing.tokens[number], version_token.facts())

    def groups(self, known: Iterable[Covered], said: Callable[[DataFile], object]) -> list[list[Covered]]:
        """Files, by what makes the index mean the same for them: segment, schema, names of their columns.

        said  of each file: what else is said of it
        """
        groups: dict[Any, list[Covered]] = {}
        for one in known:
            # A table's file may have columns of names of its own, which the log tells.
            key = one.segment, one.schema, getattr(one.file, "fields", ()), said(one.file)
            groups.setdefault(key, []).append(one)
        return list(groups.values())

    def facts(self, token: LocalToken, path: str) -> tuple[int, ...]:
        """A token of today as a listing has it: with the file system's number in the place of the device."""
        return self._system(token.device, path), token.inode, token.size, token.mtime_ns, token.ctime_ns

    def _system(self, device: int, path: str) -> int:
        if device not in self.systems:
            self.systems[device] = (os.statvfs(path).f_fsid or device) & (1 << 64) - 1
        return self.systems[device]

    def is_indexed(self, path: str, kept: tuple[int, ...]) -> bool:
        """Whether a local file has the token of a listing. Raises OSError."""
        found = os.stat(path)
        facts = found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        return kept[1:] == facts and kept[0] == self._system(found.st_dev, path)

    @staticmethod
    def lacks(unknown: int, files: int) -> str:
        """How many of some files are not known, in words."""
        return f"{unknown:,} of {files:,} files are not covered, or changed since"

    def refuse_none(self) -> None:
        """Raise StaleIndexError where no file is known, and the index is not of this very table."""
        if not self.known and not self.is_of_table:
            raise self.stale()

    def stale(self) -> StaleIndexError:
        """The error for files of which none is known."""
        manifest = self.index.manifest
        of = manifest.table or manifest.root or "other files"
        reason = f"is an index of {of}, and of none of these files; name the index that was built over them"
        if self.changed:
            reason = f"all of its {self.changed:,} files that are here changed since it was built; build it again"
        return StaleIndexError(self.index.path, reason)


def coverage_of(index: KeyIndex, found: ResolvedSource, proven: bool = True) -> Coverage:
    """Find the files of a source in an index. Raises DamagedFileError, StorageError for a listing.

    proven  False: the caller trusts that files which are not opened are those that were indexed
    """
    proven = proven or found.has_log  # a table's files come from its log, and not from the index
    manifest, names = index.manifest, index.names
    coverage = Coverage(index)
    if found.has_log:
        # A table without an identity may have been dropped and made again, with files of the same names.
        identity, table = found.snapshot.identity, found.snapshot.table
        coverage.by_log = bool(identity) and manifest.identity == identity
        coverage.is_of_table = manifest.identity == identity if identity else manifest.table == table
    listings = [index.listing(segment) for segment in manifest.segments]
    root = manifest.root + "/"
    real: dict[str, str] = {}
    far: list[tuple[DataFile, int, int]] = []
    for file in found.files:
        if not file.stored:
            continue
        # The names of most files are their paths. name_of and below would say the same in more time, but of paths
        # with links in them.
        path = file.path
        inside = file.is_local and path.startswith(root)
        at = names.get(path[len(root) :]) if inside else None
        if at is None:
            at = names.get(below(name_of(file, real), manifest.root))
        if at is None:
            continue
        segment, number = at
        coverage.at[id(file)] = at
        if proven and not coverage.by_log and not file.is_local:
            far.append((file, segment, number))
            continue
        if proven and not coverage.by_log:
            try:
                if not coverage.is_indexed(path, listings[segment].local_tokens[number]):
                    coverage.changed += 1
                    continue
            except OSError:  # it is gone, as opening it will say
                continue
        coverage.known.append(Covered(file, segment, number, listings[segment].schemas[number], True))
    versions = listed_versions([file for file, _, _ in far])
    for file, segment, number in far:
        version = versions.get(file.path)
        facts = None if version is None else version.facts()
        is_sure = proves(listings[segment].tokens[number], facts)
        if facts is not None and not is_sure:
            coverage.changed += 1
            continue
        coverage.known.append(Covered(file, segment, number, listings[segment].schemas[number], is_sure))
    return coverage


def named_leaves(schema: SegmentSchema, log: Log, file: DataFile) -> tuple[Leaf, ...]:
    """The leaves of a file's schema under the names of its source; see search.log.Log.outline."""
    leaves = schema.leaves
    slots = np.empty((Slot.COUNT, 0, len(leaves)), np.int64)
    outline = Outline(b"", 0, leaves, FileMetaData(schema=list(schema.elements)), np.empty(0, np.int64), slots)
    return log.outline(outline, file).leaves
