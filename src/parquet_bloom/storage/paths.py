"""Files, folders, globs and URIs -> files; and where each one's output goes. Checked before any work."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple

from parquet_bloom.errors import EXISTS, ParquetBloomError, RequestError, StorageError, TableFormatError, parameter
from parquet_bloom.options import PathLike, several
from parquet_bloom.storage.arrow_store import RemoteStore
from parquet_bloom.storage.display import Brief, without_secret
from parquet_bloom.storage.remote import Location, side_by_side, storage_error, submit
from parquet_bloom.storage.store import GLOB, SUFFIXES, Kind, Store, is_data, near_names, real_paths
from parquet_bloom.storage.stores import Stores, at_version, store_of, store_on, uri_meant
from parquet_bloom.storage.table_folders import Tables, named_as_files, without_data
from parquet_bloom.storage.version_token import StoreToken

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"  # in the place of a folder's value
Partitions = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class DataFile(Location):
    """A file to work on.

    relative    its place in an output folder
    partitions  the key=value folders it lies in, Hive's way, outermost first; None is null
    pins        path -> version token and facts of the first time that it was opened, shared by all files of a source
                that holds them to it; None: nobody does
    """

    relative: str = ""
    partitions: Partitions = ()
    pins: dict[str, object] | None = field(default=None, compare=False, repr=False, kw_only=True)

    # What a log says of a file: of one without a log, nothing. source.snapshot.TableFile has the answers.

    @property
    def has_log(self) -> bool:
        """Whether it is a table's."""
        return False

    @property
    def rows(self) -> int | None:
        """Rows that it stores; None: not known before it is opened."""
        return None

    @property
    def size(self) -> int:
        """Its bytes by the log; 0: as many as it has."""
        return 0

    @property
    def deletes(self) -> Any:
        """Its rows that are deleted; None: none is."""
        return None

    @property
    def stored(self) -> bool:
        """Whether it is a file, and no rows that a log holds itself."""
        return True


@dataclass(frozen=True, slots=True, repr=False)
class FailedFile(Brief):
    """A file that could not be processed."""

    path: str
    error: ParquetBloomError

    @property
    def reason(self) -> str:
        """The error without the file's name."""
        return self.error.message.removeprefix(f"{self.path}: ")


class FileSet(NamedTuple):
    """The data files that the paths of a call lead to.

    filesystem  of all of them; None: the local one
    single      whether one plain file was named: its error is then the caller's, not one line among many
    failed      names among several that gave no file, and folders that could not be searched
    """

    filesystem: Any
    files: list[DataFile]
    single: bool
    failed: list[FailedFile]


def locate(sources: PathLike | Sequence[PathLike], filesystem: Any = None, tables: Tables | None = None) -> FileSet:
    """Find the files of a call: paths, folders, globs, `file:` and other URIs, or several of them.

    A named file counts whatever its name; folders are searched for Parquet files. Hidden files and
    folders (leading "." or "_", as Hadoop does) are passed over in folders.

    sources     may also be DataFiles: they are taken as they are, and nothing is searched
    filesystem  of pyarrow or fsspec; plain paths are then on it
    tables      gets those that the files have to do with, and may refuse them; None: nobody looks
    Raises RequestError for none, or for several on different file systems; StorageError for one
    name alone that is not there or holds no Parquet file, TableFormatError for a table's folder.
    """
    many = several(sources)
    files = [source for source in many if isinstance(source, DataFile)]
    if many and len(files) == len(many):
        return FileSet(files[0].filesystem, files, len(files) == 1, [])
    return _Search(sources, Stores(filesystem), tables).run()


def expand(
    sources: PathLike | Sequence[PathLike], filesystem: Any = None, tables: Tables | None = None
) -> list[DataFile]:
    """Find the files, as `locate` does; the first name that gives none is an error."""
    file_set = locate(sources, filesystem, tables)
    if file_set.failed:
        raise file_set.failed[0].error
    return file_set.files


_Listing = tuple[Store, str, Sequence[tuple[str, bool]], bool]  # as Seen has it


class _FilesThere(NamedTuple):
    """The files below a folder of another storage, or that fit a pattern.

    root      the folder, or the pattern's fixed part
    versions  of files, where listings have them
    listings  that were made
    """

    root: str
    names: list[str]
    versions: dict[str, StoreToken]
    listings: list[_Listing]


_Answer = _FilesThere | ParquetBloomError | None


class _Search:
    def __init__(self, sources: PathLike | Sequence[PathLike], stores: Stores, tables: Tables | None) -> None:
        many = several(sources)
        if not many:
            raise RequestError("no file was named")
        self._named = [stores.locate(os.fspath(source)) for source in many]
        self._texts = [os.fspath(source) for source in many]
        self._alone = len(many) == 1
        self._failed: list[FailedFile] = []
        self._single = False
        self._tables = tables
        self._links = False  # whether a local folder that was searched has files that are links
        self._store = self._named[0][0]
        for text, (store, _) in zip(self._texts, self._named, strict=True):
            if not store.same(self._store):
                both = without_secret(f"{self._texts[0]} and {text}")
                raise RequestError(f"{both} are on different file systems; use one call for each")

    def table(self) -> str | None:
        """That a table was named as files, and what to name instead; None where there is no table."""
        return named_as_files([store.location(path.rstrip("/") or "/") for store, path in self._named])

    def run(self) -> FileSet:
        named = []
        asked: list[Kind] = [None] * len(self._named)
        if isinstance(self._store, RemoteStore) and not self._alone:
            asked = self._store.kinds([path.rstrip("/") for _, path in self._named])
        trees: list[tuple[str, list[DataFile]]] = []  # what was named, and its files
        answers: list[_Answer] = [None] * len(self._named)
        if isinstance(self._store, RemoteStore) and not self._alone:
            both = [(store, path, kind) for (store, path), kind in zip(self._named, asked, strict=True)]
            answers = side_by_side(lambda one: self._search_store(*one), both)
        for (store, path), kind, answer in zip(self._named, asked, answers, strict=True):
            failed = len(self._failed)
            try:
                files = self._found(store, path, kind, answer)
                if not files and len(self._failed) == failed:
                    self._empty(store, path)
                trees.append((path, files))
                if self._tables is not None:
                    named.append(self._tables.parents_of(store.location(path.rstrip("/") or "/"), files))
            except (StorageError, TableFormatError) as error:
                if self._alone:
                    raise
                self._failed.append(FailedFile(error.path, error))
        by_path: dict[str, DataFile] = {}
        files = list(_apart(trees))
        # One file is the same as no other, and so are those of one folder without links.
        real = real_paths() if len(files) > 1 and (self._links or not self._in_one_folder) else str
        for file in files:
            by_path.setdefault(real(file.path) if file.is_local else store_of(file).real(file.path), file)
        if self._alone and not by_path:
            raise self._failed[0].error
        if self._tables is not None:
            self._tables.check_paths(named)
        return FileSet(self._store.filesystem, list(by_path.values()), self._single, self._failed)

    @property
    def _in_one_folder(self) -> bool:
        [(store, path), *others] = self._named
        return not others and store.is_local and os.path.isdir(path)

    def _missing(self, store: Store, path: str, reason: str) -> None:
        raise StorageError(store.location(path), reason + (near_names(path) if store.is_local else ""))

    def _empty(self, store: Store, path: str) -> None:
        if (table := without_data(at := store.location(path.rstrip("/")))) is not None:
            raise TableFormatError(at, table)
        self._missing(store, path, f"no Parquet file ({', '.join('*' + s for s in SUFFIXES)}) in it")

    def _file(self, store: Store, path: str, root: str | None = None, opened: Any = None) -> DataFile:
        """A file named itself (no root), or found below a root."""
        at = store.location(path)
        below = path if root is None else _below(path, root)
        relative = below.rsplit("/", 1)[-1] if root is None else below
        partitions = () if root is None and self._alone else partitions_of(below)
        return DataFile(at.path, at.filesystem, at.shown, [opened] if opened is not None else [], relative, partitions)

    def _found(self, store: Store, path: str, kind: Kind, answer: _Answer) -> list[DataFile]:
        return self._remote(store, path, kind, answer) if isinstance(store, RemoteStore) else self._local(store, path)

    def _local(self, store: Store, path: str) -> list[DataFile]:
        if os.path.isdir(path):
            return self._local_folder(store, path, path)
        if os.path.lexists(path) or not set(path) & GLOB:
            self._single = self._alone
            if not os.path.exists(path):
                self._missing(store, path, f"no such file or folder{uri_meant(path)}")
            return [self._file(store, path)]
        return self._local_glob(store, path)

    def _local_folder(self, store: Store, folder: str, root: str) -> list[DataFile]:
        files: list[DataFile] = []

        def fail(error: OSError) -> None:
            failed = storage_error(store.location(error.filename or folder), error)
            self._failed.append(FailedFile(failed.path, failed))

        for where, folders, names, has_links in _walk(folder, fail):
            if self._tables is not None:
                self._tables.note_folder(store.location(folder), where, folders)
            folders[:] = sorted(f for f in folders if not f.startswith((".", "_")))
            self._links |= has_links
            files += self._files_in(store, where, [name for name in names if is_data(name)], root)
        return sorted(files, key=attrgetter("path"))  # pyarrow's order of a data set

    def _files_in(self, store: Store, folder: str, names: list[str], root: str) -> Iterator[DataFile]:
        """Files of one local folder, which lies below a root: what comes before their names is the same for all."""
        if not names:
            return
        names.sort()
        first = self._file(store, os.path.join(folder, names[0]), root)
        path, shown, below = (text[: -len(names[0])] for text in (first.path, first.shown, first.relative))
        for name in names:
            yield DataFile(path + name, first.filesystem, shown + name, [], below + name, first.partitions)

    def _local_glob(self, store: Store, pattern: str) -> list[DataFile]:
        parts = pattern.split(os.sep)
        first = next(i for i, part in enumerate(parts) if set(part) & GLOB)
        root = os.sep.join(parts[:first]) or (os.sep if pattern.startswith(os.sep) else ".")
        files = []
        hidden = any(part.startswith("_") for part in parts)  # asked for, as glob itself has it with dots
        for path in sorted(glob.glob(pattern, recursive=True)):
            if not hidden and any(part.startswith("_") for part in os.path.relpath(path, root).split(os.sep)):
                continue
            files += self._local_folder(store, path, root) if os.path.isdir(path) else [self._file(store, path, root)]
        if not files:
            self._missing(store, pattern, "no file fits this pattern")
        return files

    def _search_store(self, store: Store, path: str, kind: Kind) -> _Answer:
        """List a folder, or find the files that fit a pattern; None for what is neither. Several run side by side."""
        versions: dict[str, StoreToken] = {}
        listings: list[_Listing] = []
        assert isinstance(store, RemoteStore)
        try:
            if kind is False:
                folder = path.rstrip("/")
                entries = store.list_folder(folder, True, versions)
                names = [name for name, is_file in entries if is_file and is_data(name.removeprefix(folder).strip("/"))]
                return _FilesThere(folder, names, versions, [(store, folder, entries, True)])
            if kind is None and set(path) & GLOB:
                root, names = store.match(path, lambda *listing: listings.append(listing), versions)
                return _FilesThere(root, names, versions, listings)
        except StorageError as error:
            return error
        return None

    def _remote(self, store: RemoteStore, path: str, kind: Kind, answer: _Answer) -> list[DataFile]:
        """Find the files of a name.

        kind    the answer of `kinds`, if there is one
        answer  what was found of a folder or pattern, among several names
        """
        is_pattern = bool(set(path) & GLOB)
        if self._alone and not is_pattern and not path.endswith("/"):
            # A file, most likely; opening it says so, and is the one request that reading needs anyway.
            opening = submit(store.open, store.location(path), False)
            # A name without an end of a file's is a folder's, most likely: it is listed while it is opened.
            is_folder = store.knows_missing and not path.lower().endswith(SUFFIXES)
            listing = submit(self._search_store, store, path, False) if is_folder else None
            if self._tables is not None:
                self._tables.ask_above(store.location(path))
            try:
                opened = opening.result()
            except Exception as error:
                # A missing object is a FileNotFoundError. After another error a second request would fail the same way:
                # the name counts as a file, and its error is raised.
                asked = not store.knows_missing or isinstance(error, FileNotFoundError)
                if asked and listing is not None:
                    answer = listing.result()
                is_listed = isinstance(answer, _FilesThere) and any(entries for _, _, entries, _ in answer.listings)
                answer = answer if is_listed else None
                [kind] = [False] if is_listed else store.kinds([path]) if asked else [True]
                if kind is True:
                    raise storage_error(store.location(path), error) from error
            else:
                self._single = True
                return [self._file(store, path, opened=opened)]
        elif self._alone:
            [kind] = store.kinds([path.rstrip("/")])
        if isinstance(kind, ParquetBloomError):
            raise kind
        found = answer or self._search_store(store, path, kind)
        if isinstance(found, ParquetBloomError):
            raise found
        if found is not None:
            for made in found.listings:
                self._listed(*made)
            if not found.names and kind is None:
                self._missing(store, path, "no file fits this pattern")
            return [self._of_version(store, name, found.root, found.versions) for name in found.names]
        self._single = self._alone
        if kind is None:
            self._missing(store, path, "no such file or folder")
        return [self._file(store, path)]

    def _of_version(self, store: RemoteStore, path: str, root: str, versions: dict[str, StoreToken]) -> DataFile:
        """A file of a listing, open already where that has its version."""
        opened = at_version(store.location(path), versions.get(path)).opened
        return self._file(store, path, root, opened[0] if opened else None)

    def _listed(self, store: Store, folder: str, entries: Sequence[tuple[str, bool]], recursive: bool) -> None:
        if self._tables is not None:
            self._tables.note_listing(store.location(folder), entries, recursive)


def _walk(folder: str, fail: Callable[[OSError], None]) -> Iterator[tuple[str, list[str], list[str], bool]]:
    """As os.walk from the top, and whether some of the files are links; of a link to a folder nothing is said.

    fail  gets the error of a folder that cannot be listed
    """
    left = [folder]
    while left:
        where = left.pop()
        folders: list[str] = []
        names: list[str] = []
        has_links = False
        try:
            with os.scandir(where) as entries:
                for entry in entries:
                    try:
                        is_folder, is_link = entry.is_dir(), entry.is_symlink()
                    except OSError:  # such as of a link that leads to itself
                        is_folder, is_link = False, True
                    (folders if is_folder else names).append(entry.name)
                    has_links |= is_link and not is_folder
        except OSError as error:
            fail(error)
            continue
        yield where, folders, names, has_links
        below = (os.path.join(where, name) for name in reversed(folders))
        left += [path for path in below if not os.path.islink(path)]


def _apart(trees: Sequence[tuple[str, list[DataFile]]]) -> Iterator[DataFile]:
    """The files of all names. In an output folder each of several trees gets a folder of its own.

    That is the folder's name or, where two have the same name, its path below what all have in common.

    trees  (path or pattern, its files); a file that was named itself is no tree
    """
    roots = {path: _root(path, files) for path, files in trees if any(file.path != path for file in files)}
    labels = dict.fromkeys(roots, "")
    if len(trees) > 1:
        labels = {path: os.path.basename(root) for path, root in roots.items()}
        if len(set(labels.values())) < len(set(roots.values())):
            shared = os.path.commonpath([os.path.dirname(root) for root in roots.values() if root])
            labels = {path: os.path.relpath(root, shared) if root else "" for path, root in roots.items()}
    for path, files in trees:
        label = labels.get(path, "")
        yield from (replace(f, relative=f"{label}/{f.relative}") for f in files) if label else files


def check_text(name: str, file: DataFile) -> None:
    """Raise RequestError for a name of a file that no index can have: its names are texts, the system's are bytes."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        shown = str(file).encode(errors="backslashreplace").decode()
        raise RequestError(f"{shown}: its name is no UTF-8, so no index can have it; rename it") from error


def _below(path: str, root: str) -> str:
    """A path as seen from a folder above it."""
    start = root if root.endswith("/") else root + "/"
    rest = path.removeprefix(start)
    # Most paths were made of that folder and of names in it. Others need a look at what their parts mean.
    if rest != path and "//" not in rest and not rest.startswith("/") and not _DOTS.search(rest):
        return rest
    return os.path.relpath(path, root)


_DOTS = re.compile(r"(^|/)\.{0,2}(/|$)")


def _root(path: str, files: Sequence[DataFile]) -> str:
    """The absolute folder that a path names, or the one above a pattern; "" for a pattern of this folder."""
    root = files[0].path.removesuffix(files[0].relative) if files else path
    return os.path.abspath(root) if root else ""


def partitions_of(path: str) -> Partitions:
    """The key=value folders of a path below a data set's root."""
    if "=" not in path:
        return ()
    from urllib.parse import unquote

    split = [folder.partition("=") for folder in path.split("/")[:-1]]
    return tuple(
        (unquote(key), None if value == HIVE_NULL else unquote(value)) for key, sign, value in split if key and sign
    )


# --- outputs --------------------------------------------------------------------------------------


_REPLACE = parameter("in_place", True) + " to replace the source"


class Outputs(NamedTuple):
    """The place of each file's new version; the rest as in FileSet."""

    targets: dict[DataFile, Location]
    single: bool
    failed: list[FailedFile]


def targets(
    sources: PathLike | Sequence[PathLike],
    output: PathLike | None,
    in_place: bool,
    overwrite: bool,
    filesystem: Any = None,
    tables: Tables | None = None,
) -> Outputs:
    """Pair each source file with where its new version goes; the two may be on different file systems.

    One file may go to a file or into a folder that exists (or ends with a slash); several sources
    or a folder need a folder, which is made if missing and keeps the tree. Of several folders each
    keeps its name: a/ and b/ into out/ are out/a/... and out/b/...

    Raises RequestError (neither or both of output and in_place, equal targets, target = source, several sources into
    a name of a file),
    StorageError for an existing target without overwrite.
    """
    if in_place and output is not None:
        raise RequestError(parameter("output") + " and " + parameter("in_place") + " exclude each other; give one")
    stores = Stores(filesystem)
    search = _Search(sources, stores, tables)
    if not in_place and output is None:
        raise RequestError(search.table() or "give " + parameter("output") + " for a new file, or " + _REPLACE)
    file_set = search.run()
    if output is None:
        return Outputs({file: file for file in file_set.files}, file_set.single, file_set.failed)
    store, path = stores.locate(os.fspath(output))
    folder = path.endswith("/") or store.is_folder(path)
    if not folder and not file_set.single:
        if store.exists(path):
            raise StorageError(store.location(path), "is not a folder, which several sources need")
        if path.lower().endswith(".parquet") and not _is_one_folder(sources, stores):
            reason = "several sources need a folder, and this names a file; end it with a slash if a folder is meant"
            raise RequestError(f"{store.location(path)}: {reason}")
        folder = True
    pairs = [(file, store.location(os.path.join(path, file.relative) if folder else path)) for file in file_set.files]
    _check_pairs(pairs, store, store.same(store_on(file_set.filesystem)), overwrite)
    return Outputs(dict(pairs), file_set.single, file_set.failed)


def _is_one_folder(sources: PathLike | Sequence[PathLike], stores: Stores) -> bool:
    """Whether the one source that is named is a folder: Spark's are often named like files, and so are their copies."""
    named = several(sources)
    if len(named) != 1:
        return False
    store, path = stores.locate(os.fspath(named[0]))
    return path.endswith("/") or store.is_folder(path)


def _check_pairs(pairs: Sequence[tuple[DataFile, Location]], store: Store, same_store: bool, overwrite: bool) -> None:
    def real(at: Location) -> str:
        return store_of(at).real(at.path)

    taken: dict[str, Location] = {}
    for source, target in pairs:
        if real(target) in taken:
            raise RequestError(f"{taken[real(target)]} and {source} would both go to {target}")
        taken[real(target)] = source
    sources_real = {real(source) for source, _ in pairs} if same_store else set()
    kinds = store.kinds([target.path for _, target in pairs])
    for kind in kinds:
        if isinstance(kind, ParquetBloomError):
            raise kind
    for (source, target), kind in zip(pairs, kinds, strict=True):
        if real(target) in sources_real:
            raise RequestError(f"{target} is itself a source; give " + parameter("in_place", True) + " to replace it")
        if kind is False:
            raise StorageError(target, "is a folder; the new file would have that name")
        if kind and not overwrite:
            raise StorageError(target, EXISTS + f" with the new version of {source}")
