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
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from parquet_bloom._thrift.parquet.ttypes import FileMetaData
from parquet_bloom.errors import RequestError, StaleIndexError
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.keys.index import KeyIndex
from parquet_bloom.keys.manifest import SegmentSchema
from parquet_bloom.keys.plan import below, name_of
from parquet_bloom.options import several
from parquet_bloom.search.log import Log
from parquet_bloom.source.source import CallSource, ResolvedSource, resolved_files
from parquet_bloom.storage.paths import DataFile, partitions_of
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.store import GLOB, Store, is_data
from parquet_bloom.storage.stores import Stores, listed_versions
from parquet_bloom.storage.table_folders import RAW_FILES, Tables
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


# --- the files of a folder as a key index names them, in the place of a listing --------------------
#
#     source: a folder or a prefix on a store    index: root, path of each file below it
#     root + path -> below the source? -> DataFile, with the keys of its folders' names
#
# The caller trusts the index then: of files that came since nothing is seen, and files in which the index denies all
# are not looked at. Names come from outside, and files are opened by them. So only plain names count, of data files
# that lie below the folder that the call names, as the names in a listing of that folder would.

_NOT_PLAIN = re.compile("(^|/)[.]{0,2}(/|$)|\0")  # parts that are empty or dots


def unlisted_files(where: CallSource, index: KeyIndex) -> ResolvedSource:
    """The files of an index that lie below the folders of a call. A table's log is read as always.

    Raises RequestError for what is no folder, StaleIndexError for an index of none of them, TableFormatError for a
    table's folder, DamagedFileError, StorageError.
    """
    if where.table_name is not None:
        return where.resolve(refuses=RAW_FILES)
    stores = Stores(where.filesystem)
    many = [os.fspath(one) for one in several(where.paths) if isinstance(one, str | os.PathLike)]
    if not many or len(many) < len(several(where.paths)):
        raise RequestError("without a listing, folders must be named as texts")
    files: dict[str, DataFile] = {}
    folders = []
    for text in many:
        store, path = stores.locate(text)
        at = store.location(path.rstrip("/") or "/")
        if set(path) & GLOB or (store.is_local and not os.path.isdir(path)):
            raise RequestError(f"{at}: without a listing only folders can be named")
        folders.append((at, [at]))
        for one in _files(index, store, at):
            files.setdefault(one.path, one)
    if not files:
        raise StaleIndexError(index.path, f"names no file below {folders[0][0]}; name the folder that was indexed")
    if not where.raw_files:
        Tables(RAW_FILES).check_paths(folders)
    return resolved_files([files[name] for name in sorted(files)])


def _files(index: KeyIndex, store: Store, folder: Location) -> list[DataFile]:
    """The files of an index below one folder."""
    own = (os.path.realpath(folder.path).replace(os.sep, "/") if store.is_local else store.names(folder)[0]).rstrip("/")
    name, kept = (own, folder.path), index.unlisted
    if store.is_local and kept is not None and kept[0] == name:  # files of another storage are those of this call's one
        files: list[DataFile] = kept[1]
    else:
        files = list(_files_of(index, store, folder, own + "/"))
    if store.is_local:  # a listing follows no links to folders
        index.unlisted = name, files
        base = folder.path.rstrip("/")
        inside = {one.relative.rpartition("/")[0] for one in files}
        linked = {
            below for below in inside if os.path.realpath(f"{base}/{below}") != os.path.join(own, below).rstrip("/")
        }
        files = [one for one in files if one.relative.rpartition("/")[0] not in linked] if linked else files
    return files


def _files_of(index: KeyIndex, store: Store, folder: Location, start: str) -> Iterator[DataFile]:
    """The same, links included; `start` is how names of such files begin."""
    root, base = index.manifest.root + "/", folder.path.rstrip("/") + "/"
    for name in index.names:
        whole = name if name.startswith("/") or "://" in name else root + name  # as keys.plan.name_of has it
        below = whole[len(start) :]
        if name and whole.startswith(start) and is_data(below) and not _NOT_PLAIN.search(below):
            at = store.location(base + below)
            yield DataFile(at.path, at.filesystem, at.shown, [], below, partitions_of(below))
