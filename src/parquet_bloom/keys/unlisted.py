"""The files of a folder as a key index names them, in the place of a listing.

    source: a folder or a prefix on a store    index: root, path of each file below it
    root + path -> below the source? -> DataFile, with the keys of its folders' names

The caller trusts the index then: of files that came since nothing is seen, and files in which the index denies all are
not looked at. Names come from outside, and files are opened by them. So only plain names count, of data files that lie
below the folder that the call names, as the names in a listing of that folder would.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from parquet_bloom.arguments import several
from parquet_bloom.errors import RequestError, StaleIndexError
from parquet_bloom.keys.index import KeyIndex
from parquet_bloom.source.source import CallSource, ResolvedSource, resolved_files
from parquet_bloom.storage.paths import DataFile, partitions_of
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.store import GLOB, Store, is_data
from parquet_bloom.storage.stores import Stores
from parquet_bloom.storage.table_folders import RAW_FILES, Tables

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
