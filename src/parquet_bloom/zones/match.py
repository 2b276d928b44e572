"""Finds indexes, their columns, and checks that the data are still those they are of.

An index of ours names its fragments, and keeps of each what tells its content again (filters.content). A file that it
names and whose column has changed makes it stale, and a stale index is refused; a file that it does not name is read
as if there were no index. pylance's own indexes name nothing: the data set's manifest does.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from parquet_bloom.errors import DamagedFileError, FileError, RequestError, StaleIndexError, StorageError, parameter
from parquet_bloom.filters.content import difference
from parquet_bloom.format import lance as form
from parquet_bloom.format.schema import split_path
from parquet_bloom.options import PathLike, several
from parquet_bloom.output.index_files import NO_LINK
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.stores import Stores, store_of
from parquet_bloom.zones.container import ZoneFile
from parquet_bloom.zones.reader import lance_errors, pylance
from parquet_bloom.zones.sources import content_of, is_lance, lance_identity
from parquet_bloom.zones.stretches import Cover

# --- where the data of an index lie ---------------------------------------------------------------
#
# Which data an index may open: files below a root that its user named, and nothing else.
#
# An index may come from anywhere, and what it says of its data is only words. So its words choose among
# the files below a root, and never say how these are reached:
#
#    events-index/id/bloomfilter.lance   names ../../events/1.parquet
#    root (default: the folder that events-index lies in)   events/1.parquet below it
#
# No URI, no file system and no option of the index is used, nothing is opened above the root, and no
# symbolic link leads out of it. A remote root brings the user's own file system along.

_HINT = "name the folder that the data are in with " + parameter("root")


class Root:
    """The folder below which an index may name data.

    named  by the user, a path or a URI; None: the folder that holds the folder of indexes
    """

    def __init__(self, file: ZoneFile, named: PathLike | None) -> None:
        """Raises RequestError where neither the user nor the index's place gives a root."""
        self._index = file.path
        self._named = named is not None
        folder = os.path.dirname(os.path.abspath(file.path))
        self._folders = list(dict.fromkeys((folder, os.path.realpath(folder))))
        text = os.path.dirname(os.path.dirname(folder)) if named is None else os.fspath(named)
        if named is None and text == os.path.dirname(text):
            raise RequestError(f"{file.path}: no data is sought all over the disk; " + _HINT)
        store, path = Stores().locate(text)
        self._store = store
        self._path = store.real(path)
        self.shown = str(store.location(path.rstrip("/") + "/")).rstrip("/") or "/"
        # By its name as given, and in full.
        self._roots = {self._path, self.shown if os.path.isabs(self.shown) else os.path.abspath(self.shown)}
        self._real: dict[str, str] = {}  # of folders: an index names many files of few of them

    def file(self, one: dict[str, Any]) -> DataFile:
        """The data file that a fragment names. Raises StaleIndexError for one that is not below the root."""
        if not self._store.is_local:
            below = one["path"].removeprefix(f"{self.shown}/")
            outside = below == one["path"]
            below = unquote(below) if self._store.quoted else below
            if outside or not _plain(below):
                raise self._outside(one["path"])
            path = f"{self._path.rstrip('/')}/{below}"
            return DataFile(path, self._store.filesystem, str(self._store.location(path)))
        inside = [path for path in self._paths(one) if self._holds(path)]
        if not inside:
            raise self._outside(one["path"])
        return DataFile(next((path for path in inside if os.path.exists(path)), inside[0]))

    def dataset(self, named: str) -> str:
        """The Lance data set that an index names, or the root where that is one. Raises StaleIndexError."""
        if self._named and self._store.is_local and is_lance(self._path):
            return self._path
        if not self._store.is_local or not os.path.isabs(named) or not self._holds(os.path.normpath(named)):
            raise self._outside(named)
        return os.path.normpath(named)

    def _paths(self, one: dict[str, Any]) -> list[str]:
        """The paths of a file: relative to the index, and its name when the index was built."""
        ways = [os.path.join(folder, one["relative"]) for folder in self._folders if "relative" in one]
        return list(dict.fromkeys(os.path.normpath(path) for path in (*ways, one["path"]) if os.path.isabs(path)))

    def _holds(self, path: str) -> bool:
        """Whether a path lies below the root: by its name first, so that no other path is even resolved."""
        return any(_below(path, root) for root in self._roots) and _below(self._real_path(path), self._path)

    def _real_path(self, path: str) -> str:
        folder, name = os.path.split(path)
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder)
        real = os.path.join(self._real[folder], name)
        return os.path.realpath(real) if os.path.islink(real) else real

    def _outside(self, named: str) -> StaleIndexError:
        named = named if len(named) <= 200 else f"{named[:200]}..."
        reason = f"names {named}, which is not below {self.shown}; an index opens nothing else, so " + _HINT
        return StaleIndexError(self._index, reason)

    def unreadable(self, found: DataFile, error: FileError) -> StaleIndexError:
        """The message on a named file that cannot be used, without its content."""
        reason = "is no Parquet file that can be read"
        if isinstance(error.__cause__, OSError):
            reason = error.__cause__.strerror or type(error.__cause__).__name__
            reason += "" if self._named else "; " + _HINT
        return StaleIndexError(self._index, f"its file {found} cannot be read: " + reason)


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _plain(path: str) -> bool:
    """Whether a path on a store goes down only."""
    return bool(path) and not set(path.split("/")) & {"", ".", ".."} and "\0" not in path


# --- indexes and their data -----------------------------------------------------------------------

logger = logging.getLogger("parquet_bloom")
_warned: set[str] = set()  # indexes
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")


def parse_kind(text: str) -> pa.DataType:
    """An Arrow type by its name: int64, string, date32[day], timestamp[us, tz=UTC]. Raises RequestError."""
    zoned = _ZONED.fullmatch(text.strip())
    try:
        return pa.timestamp(*zoned.groups()) if zoned else pa.type_for_alias(text.strip())
    except ValueError:
        raise RequestError(f"{text[:100]}: no type of Arrow; write int64, string, timestamp[us], ...") from None


def find_indexes(paths: PathLike | Sequence[PathLike]) -> list[str]:
    """The index files that are named, or lie in named folders. Raises StorageError for a name without any."""
    found: list[str] = []
    for path in several(paths):
        text = os.fspath(path)
        if not os.path.isdir(text):
            found.append(text)
            continue
        below = sorted(
            os.path.join(folder, form.FILE_NAME) for folder, _, names in os.walk(text) if form.FILE_NAME in names
        )
        if not below:
            raise StorageError(text, f"no {form.FILE_NAME} in it")
        for path in filter(os.path.islink, below):
            raise StorageError(path, NO_LINK)
        found += below
    return list(dict.fromkeys(found))


def is_zone_index(path: PathLike) -> bool:
    """Whether a name is that of a zone index: a .lance file, or the folder that `build_index` wrote, or one column's.

    The folder of the data may hold an index deeper, and a Lance data set does: these are data.
    """
    text = os.fspath(path)
    if not os.path.isdir(text):
        return text.endswith(".lance") and os.path.isfile(text)
    with os.scandir(text) as entries:
        return any(
            one.name == form.FILE_NAME or os.path.isfile(os.path.join(one.path, form.FILE_NAME)) for one in entries
        )


def cover_of(path: str, column: str | None = None, kind: str | None = None) -> Cover:
    """An index file with the column it is over: as it says itself, as its data set says, or as the caller does.

    Raises RequestError where nobody says.
    """
    file = ZoneFile(path)
    if file.column is not None:
        description = file.column
        try:
            return Cover(file, split_path(str(description["name"])), parse_kind(str(description["type"])))
        except RequestError as error:
            raise DamagedFileError(path, str(error)) from error
    uri = dataset_around(path)
    for cover in covers_of_dataset(uri) if uri is not None else ():
        if os.path.samefile(cover.file.path, path):
            return cover
    if column is None or kind is None:
        both = parameter("column") + " and " + parameter("type")
        raise RequestError(f"{path} does not say of which column it is; give " + both)
    return Cover(file, split_path(column), parse_kind(kind))


def dataset_around(path: str) -> str | None:
    """The Lance data set in whose `_indices/<uuid>` an index lies."""
    parts = os.path.abspath(path).split(os.sep)
    uri = os.sep.join(parts[:-3])
    return uri if len(parts) > 3 and parts[-3] == "_indices" and os.path.isdir(os.path.join(uri, "_versions")) else None


def covers_of_dataset(uri: str) -> list[Cover]:
    """The zone indexes of a Lance data set, each for the fragments that the manifest says it covers."""
    covers = []
    with lance_errors(uri):
        dataset = pylance().dataset(uri)
        for index in dataset.describe_indices():
            if not str(index.type_url).endswith("BloomFilterIndexDetails") or len(index.field_names) != 1:
                continue
            path = _path_of(dataset, int(index.fields[0]))
            if path is None:
                continue
            for segment in index.segments:
                file = os.path.join(dataset.uri, "_indices", str(segment.uuid), form.FILE_NAME)
                fragments = frozenset(int(f) for f in segment.fragment_ids)
                covers.append(Cover(ZoneFile(file), path, _kind_at(dataset.schema, path), fragments))
    return covers


def _path_of(dataset: Any, field_id: int) -> tuple[str, ...] | None:
    def search(fields: Any, above: tuple[str, ...]) -> tuple[str, ...] | None:
        for one in fields:
            path = (*above, one.name())
            found = path if one.id() == field_id else search(one.children(), path)
            if found is not None:
                return found
        return None

    return search(dataset.lance_schema.fields(), ())


def _kind_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    field = schema.field(path[0])
    for part in path[1:]:
        field = field.type.field(part)
    return field.type


# --- data as they were ----------------------------------------------------------------------------


def numbers_of(file: ZoneFile, found: Sequence[DataFile]) -> dict[DataFile, int]:
    """The fragment of each file, by its path, of the files that the index names.

    Raises StaleIndexError where it names none of them.
    """
    if file.fragments is None:
        raise StaleIndexError(
            file.path, "does not say of which files it is; parquet-bloom index build --kind lance makes one"
        )
    named: dict[str, int] = {}
    folder = os.path.dirname(os.path.abspath(file.path))
    folders = {folder, os.path.realpath(folder)}
    for one in file.fragments:
        for name in _names(folders, one):
            named.setdefault(name, one["fragment"])
    numbers = {}
    for at in found:
        number = next((named[key] for key in store_of(at).names(at) if key in named), None)
        if number is not None:
            numbers[at] = number
    if found and not numbers:
        some = next(iter(named), "none")
        raise StaleIndexError(file.path, f"is an index of other files, such as {some}; build one over these")
    return numbers


def _names(folders: Collection[str], one: dict[str, Any]) -> list[str]:
    """The names of a fragment's file. They are compared as texts; nothing on a disk is read.

    folders  that hold the index: by its name, and by where links lead
    """
    relative = one.get("relative")
    names = [] if relative is None else [os.path.normpath(os.path.join(folder, relative)) for folder in folders]
    return [*names, os.path.normpath(one["path"]) if os.path.isabs(one["path"]) else one["path"]]


def check_content(cover: Cover, number: int, source: OpenFile, row_groups: Iterable[int] | None = None) -> None:
    """Raise StaleIndexError unless a file's column is, byte for byte, the one that the index is of.

    row_groups  for which the index will be asked; None: all
    Filters of ours that came or went meanwhile do not matter, wherever they lie.
    """
    file, recorded = cover.file, cover.file.by_number.get(number, {})
    kept = content_of(recorded)
    if kept is None:
        raise StaleIndexError(file.path, "was built without checksums of its columns; build the index again")
    if source.is_known_by(kept.token):
        return
    reason = difference(kept, source, cover.path, row_groups)
    if reason is None:
        _warn_once(file.path, source)
        return
    if source.size != recorded["size"]:
        reason += f", and {source.size:,} bytes where it had {recorded['size']:,}"
    reason = f"is not as it was when {file.path} was built: {reason}"
    raise StaleIndexError(source.path, f"{reason}; build the index again")


def _warn_once(index: str, source: OpenFile) -> None:
    """Say of an index, once in a process, that its files are known by checksums only, which costs reading a column."""
    if index not in _warned:
        _warned.add(index)
        hint = "; build the index again, and they are known without" if source.lasting_token() is not None else ""
        logger.info("%s: knows %s, and perhaps more, by reading its column only%s", index, source.path, hint)


def check_dataset(cover: Cover, dataset: Any) -> frozenset[int]:
    """The fragments of a Lance data set that an index of ours is of. Raises StaleIndexError if any is not as it was."""
    name, file = ".".join(cover.path), cover.file
    if file.fragments is None or file.column is None or "dataset" not in file.column:
        raise StaleIndexError(file.path, "is no index of a Lance data set's fragments, or does not say of which")
    with lance_errors(dataset.uri):
        there = {int(f.fragment_id): f for f in dataset.get_fragments()}
        for one in file.fragments:
            number = one.get("fragment")
            now = lance_identity(dataset, there[number], name) if number in there else None
            if now is None or any(one.get(key) != value for key, value in now.items()):
                what = "is gone" if now is None else "has other data files"
                raise StaleIndexError(file.path, f"fragment {number} of {dataset.uri} {what}; build the index again")
    return frozenset(int(one["fragment"]) for one in file.fragments)


def open_dataset(cover: Cover, root: PathLike | None = None) -> Any:
    """The Lance data set that an index of ours names.

    Raises DamagedFileError where it is not there, StaleIndexError where it is not below the root.
    """
    assert cover.file.column is not None
    uri = Root(cover.file, root).dataset(cover.file.column["dataset"])
    with lance_errors(uri):
        return pylance().dataset(uri)


def sources_of(file: ZoneFile, root: PathLike | None = None) -> dict[DataFile, int]:
    """The Parquet files that an index of ours names, in its order.

    root  below which they lie, see Root
    Raises StaleIndexError for one that is not there, or not below the root.
    """
    if not file.fragments:
        return {}
    base = Root(file, root)
    found = {base.file(one): one["fragment"] for one in file.fragments}
    if len(found) < len(file.fragments):
        raise DamagedFileError(file.path, "names one file as several fragments")
    return found


def open_indexed_file(file: ZoneFile, found: DataFile, root: PathLike | None) -> OpenFile:
    """A file that an index names, with its footer read. Raises StaleIndexError that shows nothing of what it holds."""
    try:
        source = OpenFile(found)
        try:
            source.footer()
        except BaseException:
            source.close()
            raise
    except FileError as error:
        raise Root(file, root).unreadable(found, error) from error
    return source


def check_sources(cover: Cover, root: PathLike | None = None) -> list[int]:
    """Raise StaleIndexError unless all data that an index of ours names are there, and as they were.

    returns  fragments of a Lance data set that came later
    """
    assert cover.file.column is not None
    if "dataset" in cover.file.column:
        dataset = open_dataset(cover, root)
        known = check_dataset(cover, dataset)
        return sorted({int(f.fragment_id) for f in dataset.get_fragments()} - known)
    for found, number in sources_of(cover.file, root).items():
        with open_indexed_file(cover.file, found, root) as source:
            check_content(cover, number, source)
    return []
