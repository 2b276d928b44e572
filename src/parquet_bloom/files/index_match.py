"""Which indexes there are, over which columns, and whether the data are still those they are of.

An index of ours names its fragments (path, size, CRC-32 of the footer). A file that it names and
that has changed makes it stale, and a stale index is refused; a file that it does not name is read
as if there were no index. pylance's own indexes name nothing: the data set's manifest does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import DamagedFileError, RequestError, StaleIndexError, StorageError
from parquet_bloom.files.index_sources import absolute, fingerprint, lance_identity
from parquet_bloom.files.index_zones import Cover
from parquet_bloom.files.paths import Found, expand
from parquet_bloom.files.storage import PathLike, Source
from parquet_bloom.files.zones import ZoneFile, lance_errors, pylance
from parquet_bloom.formats import lance as form
from parquet_bloom.formats.schema import split_path

_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")


def parse_kind(text: str) -> pa.DataType:
    """An Arrow type by its name: int64, string, date32[day], timestamp[us, tz=UTC]. Raises RequestError."""
    zoned = _ZONED.fullmatch(text.strip())
    try:
        return pa.timestamp(*zoned.groups()) if zoned else pa.type_for_alias(text.strip())
    except ValueError:
        raise RequestError(f"{text}: no type of Arrow; write int64, string, timestamp[us], ...") from None


def find_indexes(paths: PathLike | Sequence[PathLike]) -> list[str]:
    """The index files that are named, or lie in named folders. Raises StorageError for a name without any."""
    found: list[str] = []
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        text = os.fspath(path)
        if not os.path.isdir(text):
            found.append(text)
            continue
        below = sorted(
            os.path.join(folder, name) for folder, _, names in os.walk(text) for name in names if name == form.FILE_NAME
        )
        if not below:
            raise StorageError(text, f"no {form.FILE_NAME} in it")
        found += below
    return list(dict.fromkeys(found))


def cover_of(path: str, column: str | None = None, kind: str | None = None) -> Cover:
    """An index file with the column it is over: as it says itself, as its data set says, or as the caller does.

    Raises RequestError where nobody says.
    """
    file = ZoneFile(path)
    if file.column is not None:
        said = file.column
        try:
            return Cover(file, split_path(str(said["name"])), parse_kind(str(said["type"])))
        except RequestError as error:
            raise DamagedFileError(path, str(error)) from error
    uri = dataset_around(path)
    for cover in covers_of_dataset(uri) if uri is not None else ():
        if os.path.samefile(cover.file.path, path):
            return cover
    if column is None or kind is None:
        raise RequestError(f"{path} does not say of which column it is; give --column and --type")
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


# --- is it still so -------------------------------------------------------------------------------


def numbers_of(file: ZoneFile, found: Sequence[Found]) -> dict[Found, int]:
    """The fragment that each file is, by its path; files that the index does not name are left out.

    Raises StaleIndexError where it names none of them.
    """
    if file.fragments is None:
        raise StaleIndexError(file.path, "does not say of which files it is; parquet-bloom index build makes one")
    folder = os.path.dirname(os.path.abspath(file.path))
    named: dict[str, int] = {}
    for one in file.fragments:
        try:
            number, path = int(one["fragment"]), str(one["path"])
        except (KeyError, ValueError, TypeError) as error:
            raise DamagedFileError(file.path, f"names a fragment without {error}") from error
        if isinstance(one.get("relative"), str):
            named.setdefault(os.path.realpath(os.path.join(folder, one["relative"])), number)
        named.setdefault(os.path.realpath(path) if os.path.isabs(path) else path, number)
    numbers = {}
    for at in found:
        key = os.path.realpath(at.path) if at.filesystem is None else absolute(at)
        if key in named:
            numbers[at] = named[key]
    if found and not numbers:
        some = next(iter(named), "none")
        raise StaleIndexError(file.path, f"is an index of other files, such as {some}; build one over these")
    return numbers


def check_fingerprint(file: ZoneFile, number: int, source: Source) -> None:
    """Raise StaleIndexError unless a file is the very one that the index is of."""
    said = next((one for one in file.fragments or [] if one.get("fragment") == number), {})
    for key, now in fingerprint(source).items():
        if said.get(key) != now:
            reason = f"is not as it was when {file.path} was built: {key} is {now}, was {said.get(key)}"
            raise StaleIndexError(source.path, f"{reason}; build the index again")


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


def open_dataset(cover: Cover) -> Any:
    """The Lance data set that an index of ours names. Raises DamagedFileError where it is not there."""
    assert cover.file.column is not None
    uri = str(cover.file.column["dataset"])
    with lance_errors(uri):
        return pylance().dataset(uri)


def sources_of(file: ZoneFile) -> dict[Found, int]:
    """The Parquet files that an index of ours names, in its order. Raises StaleIndexError for one that is not there."""
    folder = os.path.dirname(os.path.abspath(file.path))
    found: dict[Found, int] = {}
    for one in file.fragments or []:
        path, relative = str(one.get("path")), one.get("relative")
        if isinstance(relative, str) and os.path.exists(os.path.join(folder, relative)):
            path = os.path.normpath(os.path.join(folder, relative))
        try:
            found[expand(path)[0]] = int(one["fragment"])
        except (StorageError, RequestError, KeyError, ValueError) as error:
            raise StaleIndexError(file.path, f"its file {path} cannot be read: {error}") from error
    return found


def check_sources(cover: Cover) -> list[int]:
    """Raise StaleIndexError unless all data that an index of ours names are there, and as they were.

    returns  fragments of a Lance data set that came later
    """
    assert cover.file.column is not None
    if "dataset" in cover.file.column:
        dataset = open_dataset(cover)
        known = check_dataset(cover, dataset)
        return sorted({int(f.fragment_id) for f in dataset.get_fragments()} - known)
    for found, number in sources_of(cover.file).items():
        with Source(found) as source:
            check_fingerprint(cover.file, number, source)
    return []
