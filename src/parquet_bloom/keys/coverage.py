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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import FileMetaData
from parquet_bloom.errors import RequestError, StaleIndexError
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.keys.index import KeyIndex, Unlisted
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
from parquet_bloom.storage.version_token import Kept, LocalToken, StoreToken, proves

Numbers = NDArray[np.intp]
Flags = NDArray[np.bool_]


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


class FileGroup(NamedTuple):
    """Files for which an index means the same: of one segment, of one schema, with the same names of columns.

    first      one of them
    segment, schema  their numbers
    at         of each among the arrays of Coverage: intp[n], ascending
    positions  of each among the files of the source: intp[n], ascending
    numbers    of each in its segment: intp[n]
    is_sure    as Covered has it: bool[n]
    """

    first: DataFile
    segment: int
    schema: int
    at: Numbers
    positions: Numbers
    numbers: Numbers
    is_sure: Flags


def _no_numbers() -> Numbers:
    return np.empty(0, np.intp)


def _no_flags() -> Flags:
    return np.empty(0, bool)


@dataclass
class Coverage:
    """The files of a source that an index knows; arrays have one element for each file whose name it has.

    files      of the source
    positions  of the file among these: intp[n], ascending
    segments, numbers  as Covered has them: intp[n]
    is_known   whether it is the version that was indexed, or may be: bool[n]
    is_sure    whether it certainly is: bool[n]
    changed    of how many the index has the name, and another version
    by_log     whether the log of their table recognises them
    is_of_table  whether the index is of this very table, whose files may all be new by now; of a table without an
               identity whether it has this name
    """

    index: KeyIndex
    files: Sequence[DataFile] = ()
    positions: Numbers = field(default_factory=_no_numbers)
    segments: Numbers = field(default_factory=_no_numbers)
    numbers: Numbers = field(default_factory=_no_numbers)
    is_known: Flags = field(default_factory=_no_flags)
    is_sure: Flags = field(default_factory=_no_flags)
    changed: int = 0
    by_log: bool = False
    is_of_table: bool = False
    systems: dict[int, int] = field(default_factory=dict)  # device -> number of the file system

    @property
    def covered(self) -> int:
        """How many files it knows."""
        return int(self.is_known.sum())

    @cached_property
    def known(self) -> list[Covered]:
        """The files that it knows, in the order of the source."""
        some = np.flatnonzero(self.is_known)
        files = map(self.files.__getitem__, self.positions[some].tolist())
        arrays = self.segments, self.numbers, self._schemas, self.is_sure
        return list(map(Covered, files, *(one[some].tolist() for one in arrays)))

    @cached_property
    def at(self) -> dict[int, tuple[int, int]]:
        """id(file) -> segment and number of each file whose name the index has."""
        files = map(self.files.__getitem__, self.positions.tolist())
        pairs = zip(self.segments.tolist(), self.numbers.tolist(), strict=True)
        return dict(zip(map(id, files), pairs, strict=True))

    @property
    def _schemas(self) -> Numbers:
        """The schema of each file, as its segment numbers them: intp[n]."""
        found = np.zeros(len(self.numbers), np.intp)
        for number, segment in enumerate(self.index.manifest.segments):
            own = self.segments == number
            if len(segment.schemas) > 1 and own.any():
                found[own] = self.index.listing(segment).schema[self.numbers[own]]
        return found

    def is_same(self, at: int, version_token: object) -> bool:
        """Whether an open file is the one that was indexed.

        at             its number among the arrays
        version_token  of the file, as it was opened
        """
        if self.by_log:
            return True
        number = int(self.numbers[at])
        listing = self.index.listing(self.index.manifest.segments[int(self.segments[at])])
        if isinstance(version_token, LocalToken):
            path = self.files[int(self.positions[at])].path
            [kept] = listing.local_tokens(self.numbers[at : at + 1])
            return kept == self.facts(version_token, path)
        return isinstance(version_token, StoreToken) and proves(listing.tokens[number], version_token.facts())

    def groups(self, some: Flags, said: Callable[[DataFile], object] | None = None) -> list[FileGroup]:
        """Files, by what makes the index mean the same for them: segment, schema, names of their columns.

        some  of the arrays
        said  of each file: what else is said of it; None: nothing, and no log names their columns either
        """
        at = np.flatnonzero(some)
        if not len(at):
            return []
        schemas = self._schemas[at]
        codes = self.segments[at] * (schemas.max() + 1) + schemas
        if said is not None:
            words: dict[Any, int] = {}
            own = []
            for position in self.positions[at].tolist():
                file = self.files[position]
                # A table's file may have columns of names of its own, which the log tells.
                own.append(words.setdefault((getattr(file, "fields", ()), said(file)), len(words)))
            codes = codes * len(words) + np.array(own, np.intp)
        if codes.min() == codes.max():
            first, kind = np.zeros(1, np.intp), np.zeros(0, np.intp)
        else:
            first, kind = np.unique(codes, return_index=True, return_inverse=True)[1:]
        found = []
        for number, one in enumerate(first.tolist()):
            own_at = at if len(first) == 1 else at[kind == number]
            place = int(at[one])
            file = self.files[int(self.positions[place])]
            arrays = self.positions[own_at], self.numbers[own_at], self.is_sure[own_at]
            found.append(FileGroup(file, int(self.segments[place]), int(schemas[one]), own_at, *arrays))
        return found

    def facts(self, token: LocalToken, path: str) -> tuple[int, ...]:
        """A token of today as a listing has it: with the file system's number in the place of the device."""
        return self._system(token.device, path), token.inode, token.size, token.mtime_ns, token.ctime_ns

    def _system(self, device: int, path: str) -> int:
        if device not in self.systems:
            self.systems[device] = (os.statvfs(path).f_fsid or device) & (1 << 64) - 1
        return self.systems[device]

    def compare(self, places: Sequence[int], kept: Iterable[tuple[int, ...]]) -> None:
        """Find out which local files are the ones that were indexed, by one stat each.

        places  of these files among the arrays
        kept    the token of each in its listing
        """
        stat, systems = os.stat, self.systems
        for place, position, token in zip(places, self.positions[places].tolist(), kept, strict=True):
            path = self.files[position].path
            try:
                found = stat(path)
                device = systems.get(found.st_dev)
                if device is None:
                    device = self._system(found.st_dev, path)
            except OSError:  # it is gone, as opening it will say
                continue
            facts = device, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
            if token == facts:
                self.is_known[place] = self.is_sure[place] = True
            else:
                self.changed += 1

    @staticmethod
    def lacks(unknown: int, files: int) -> str:
        """How many of some files are not known, in words."""
        return f"{unknown:,} of {files:,} files are not covered, or changed since"

    def refuse_none(self) -> None:
        """Raise StaleIndexError where no file is known, and the index is not of this very table."""
        if not self.covered and not self.is_of_table:
            raise self.stale()

    def stale(self, command: str = "update") -> StaleIndexError:
        """The error for files of which none is known.

        command  of `parquet-bloom index` that mends it where the index has the names of files
        """
        manifest = self.index.manifest
        of = manifest.table or manifest.root or "other files"
        reason = f"is an index of {of}, and of none of these files; name the index that was built over them"
        if self.changed:
            changed = f"all of its {self.changed:,} files that are here changed since it was built"
            reason = f"{changed}; parquet-bloom index {command} {self.index.path} DATA brings it up to date"
        return StaleIndexError(self.index.path, reason)


Versions = Callable[[Sequence[DataFile]], Mapping[str, StoreToken]]


def coverage_of(
    index: KeyIndex, found: ResolvedSource, proven: bool = True, versions: Versions = listed_versions
) -> Coverage:
    """Find the files of a source in an index. Raises DamagedFileError, StorageError for a listing.

    proven    False: the caller trusts that files which are not opened are those that were indexed
    versions  of files of another storage, by path; some may be missing, and others may be there
    """
    proven = proven or found.has_log  # a table's files come from its log, and not from the index
    manifest, files = index.manifest, found.files
    kept = index.unlisted
    if kept is not None and kept.found is found:  # these names are the index's own
        positions, segments, numbers = np.arange(len(files)), kept.segments, kept.numbers
    else:
        positions, numbers = _by_name(index, files)
        segments, numbers = index.segment_of(numbers)
    trusted = np.full(len(positions), not proven)
    coverage = Coverage(index, files, positions, segments, numbers, trusted, trusted.copy())
    if found.has_log:
        # A table without an identity may have been dropped and made again, with files of the same names.
        identity, table = found.snapshot.identity, found.snapshot.table
        coverage.by_log = bool(identity) and manifest.identity == identity
        coverage.is_of_table = manifest.identity == identity if identity else manifest.table == table
    if not proven or coverage.by_log:
        coverage.is_known[:] = coverage.is_sure[:] = True
        return coverage
    here = np.array([files[position].is_local for position in positions.tolist()], bool)
    for number in np.unique(segments).tolist():
        own = segments == number
        listing = index.listing(manifest.segments[number])
        local, far = np.flatnonzero(own & here), np.flatnonzero(own & ~here)
        if len(local):
            coverage.compare(local.tolist(), listing.local_tokens(numbers[local]))
        if len(far):
            _compare_versions(coverage, far, listing.tokens, versions)
    return coverage


def _by_name(index: KeyIndex, files: Sequence[DataFile]) -> tuple[Numbers, Numbers]:
    """The files whose names an index has: their positions, ascending, and their numbers among all of its files."""
    names, root = index.names, index.manifest.root
    start, cut = root + "/", len(root) + 1
    real: dict[str, str] = {}
    positions, numbers = [], []
    for position, file in enumerate(files):
        if not file.stored:
            continue
        # The names of most files are their paths. name_of and below would say the same in more time, but of paths
        # with links in them.
        path = file.path
        number = names.get(path[cut:]) if path.startswith(start) and file.is_local else None
        if number is None:
            number = names.get(below(name_of(file, real), root))
        if number is not None:
            positions.append(position)
            numbers.append(number)
    return np.array(positions, np.intp), np.array(numbers, np.intp)


def _compare_versions(coverage: Coverage, places: Numbers, tokens: Sequence[Kept | None], versions: Versions) -> None:
    """Find out which files of another storage are the ones that were indexed, by their versions in a listing.

    places  of these files among the arrays
    tokens  of a listing of the index
    """
    files = [coverage.files[position] for position in coverage.positions[places].tolist()]
    there = versions(files)
    for place, file, number in zip(places.tolist(), files, coverage.numbers[places].tolist(), strict=True):
        version = there.get(file.path)
        facts = None if version is None else version.facts()
        coverage.is_sure[place] = proves(tokens[number], facts)
        coverage.is_known[place] = facts is None or coverage.is_sure[place]
        coverage.changed += not coverage.is_known[place]


def named_leaves(schema: SegmentSchema, log: Log, file: DataFile) -> tuple[Leaf, ...]:
    """The leaves of a file's schema under the names of its source; see search.log.Log.outline."""
    leaves = schema.leaves
    slots = np.empty((Slot.COUNT, 0, len(leaves)), np.int64)
    outline = Outline(b"", (0,), leaves, FileMetaData(schema=list(schema.elements)), np.empty(0, np.int64), slots)
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


def unlisted_files(where: CallSource, opened: Callable[[], KeyIndex]) -> ResolvedSource:
    """The files of an index that lie below the folders of a call. A table's log is read as always.

    opened  gives the index, as soon as it is open
    Raises RequestError for what is no folder, StaleIndexError for an index of none of them, TableFormatError for a
    table's folder, DamagedFileError, StorageError.
    """
    if where.table_name is not None:
        return where.resolve(refuses=RAW_FILES)
    stores = Stores(where.filesystem)
    many = [os.fspath(one) for one in several(where.paths) if isinstance(one, str | os.PathLike)]
    if not many or len(many) < len(several(where.paths)):
        raise RequestError("without a listing, folders must be named as texts")
    folders = []
    for text in many:
        store, path = stores.locate(text)
        at = store.location(path.rstrip("/") or "/")
        if set(path) & GLOB or (store.is_local and not os.path.isdir(path)):
            raise RequestError(f"{at}: without a listing only folders can be named")
        folders.append((store, at))
    if not where.raw_files:
        Tables(RAW_FILES).check_paths([(at, [at]) for _, at in folders])
    index = opened()
    found = [_unlisted(index, store, at) for store, at in folders]
    if not any(one.found.files for one in found):
        raise StaleIndexError(index.path, f"names no file below {folders[0][1]}; name the folder that was indexed")
    if len(found) == 1:
        return found[0].found
    files = {file.path: file for one in reversed(found) for file in one.found.files}
    return resolved_files([files[name] for name in sorted(files)])


def _unlisted(index: KeyIndex, store: Store, folder: Location) -> Unlisted:
    """The files of an index below one folder."""
    own = (os.path.realpath(folder.path).replace(os.sep, "/") if store.is_local else store.names(folder)[0]).rstrip("/")
    found = index.unlisted
    if not store.is_local:  # files of another storage are those of this call's own one
        return _named_below(index, store, folder, own)
    if found is None or found.name != (own, folder.path):
        found = index.unlisted = _named_below(index, store, folder, own)
    base = folder.path.rstrip("/")  # a listing follows no links to folders
    linked = {
        below for below in found.inside if os.path.realpath(f"{base}/{below}") != os.path.join(own, below).rstrip("/")
    }
    if not linked:
        return found
    files = [one for one in found.found.files if one.relative.rpartition("/")[0] not in linked]
    return replace(found, found=resolved_files(files))


def _named_below(index: KeyIndex, store: Store, folder: Location, own: str) -> Unlisted:
    """The same, links included.

    own  the name of the folder, as names of its files begin
    """
    root, base, start = index.manifest.root + "/", folder.path.rstrip("/") + "/", own + "/"
    files: dict[str, tuple[DataFile, int]] = {}
    for name, number in index.named():  # no dict of them, which would take as much memory as their files
        whole = name if name.startswith("/") or "://" in name else root + name  # as keys.plan.name_of has it
        below = whole[len(start) :]
        if name and whole.startswith(start) and is_data(below) and not _NOT_PLAIN.search(below):
            at = store.location(base + below)
            relative = name if name == below else below  # a million of them: one text, not two
            file = DataFile(at.path, at.filesystem, at.shown, [], relative, partitions_of(below))
            files[at.path] = file, number
    ordered = [files[path] for path in sorted(files)]
    inside = frozenset(file.relative.rpartition("/")[0] for file, _ in ordered)
    segments, numbers = index.segment_of(np.array([number for _, number in ordered], np.intp))
    return Unlisted((own, folder.path), resolved_files([file for file, _ in ordered]), segments, numbers, inside)
