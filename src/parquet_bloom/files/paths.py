"""Files, folders and globs -> files; and where each one's output goes. Checked before any work."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from parquet_bloom.errors import ParquetBloomError, RequestError, StorageError
from parquet_bloom.files.storage import PathLike, storage_error

_SUFFIXES = (".parquet", ".parq", ".pq")
_GLOB = set("*?[")


@dataclass(frozen=True, slots=True)
class Found:
    """A file to work on; `relative` is its place in an output folder."""

    path: str
    relative: str
    partitions: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Located:
    """The files of one call: their file system (None: the local one), and whether one was named alone."""

    filesystem: object
    found: list[Found]
    single: bool


def locate(sources: PathLike | Sequence[PathLike], filesystem: object = None) -> Located:
    if filesystem is not None:
        return Located(filesystem, [Found(s, s) for s in _as_list(sources)], len(_as_list(sources)) == 1)
    from urllib.parse import unquote

    found = []
    for f in expand(sources):
        parts = []
        if not is_single(sources):
            for piece in f.relative.split("/")[:-1]:
                key, eq, value = piece.partition("=")
                if eq:
                    parts.append((key, None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)))
        found.append(Found(f.path, f.relative, tuple(parts)))
    return Located(None, found, is_single(sources))


def _as_list(sources: PathLike | Sequence[PathLike]) -> list[str]:
    many = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    return [os.fspath(s) for s in many]


def is_single(sources: PathLike | Sequence[PathLike]) -> bool:
    """Whether one plain file was named: its error is then the caller's, not one line among many."""
    many = _as_list(sources)
    return len(many) == 1 and not os.path.isdir(many[0]) and (os.path.exists(many[0]) or not set(many[0]) & _GLOB)


def expand(sources: PathLike | Sequence[PathLike]) -> list[Found]:
    """Find the files. A named file counts whatever its name; folders are searched for Parquet files.

    Hidden files and folders (leading "." or "_", as Hadoop does) are passed over in folders.
    Raises StorageError for a path that is not there or holds no Parquet file.
    """
    found: dict[str, Found] = {}
    many = _as_list(sources)
    if not many:
        raise RequestError("no file was named")
    for source in many:
        if os.path.isdir(source):
            files = _in_folder(source, source)
        elif os.path.lexists(source) or not set(source) & _GLOB:
            if not os.path.exists(source):
                raise StorageError(source, "no such file or folder")
            files = [Found(source, os.path.basename(source))]
        else:
            files = _in_glob(source)
        if not files:
            raise StorageError(source, f"no Parquet file ({', '.join('*' + s for s in _SUFFIXES)}) in it")
        for file in files:
            found.setdefault(os.path.realpath(file.path), file)
    return list(found.values())


def _in_folder(folder: str, root: str) -> list[Found]:
    files = []

    def fail(error: OSError) -> None:
        raise storage_error(error.filename or folder, error) from error

    for where, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "_")))
        for name in sorted(names):
            if name.lower().endswith(_SUFFIXES) and not name.startswith((".", "_")):
                path = os.path.join(where, name)
                files.append(Found(path, os.path.relpath(path, root)))
    return files


def _in_glob(pattern: str) -> list[Found]:
    parts = pattern.split(os.sep)
    first = next(i for i, part in enumerate(parts) if set(part) & _GLOB)
    root = os.sep.join(parts[:first]) or (os.sep if pattern.startswith(os.sep) else ".")
    files = []
    hidden = any(part.startswith("_") for part in parts)  # asked for, as glob itself has it with dots
    for path in sorted(glob.glob(pattern, recursive=True)):
        if not hidden and any(part.startswith("_") for part in os.path.relpath(path, root).split(os.sep)):
            continue
        if os.path.isdir(path):
            files += _in_folder(path, root)
        else:
            files.append(Found(path, os.path.relpath(path, root)))
    if not files:
        raise StorageError(pattern, "no file fits this pattern")
    return files


def targets(
    sources: PathLike | Sequence[PathLike], output: PathLike | None, in_place: bool, overwrite: bool
) -> list[tuple[str, str]]:
    """Pair each source file with where its new version goes.

    One file may go to a file or into a folder that exists (or ends with a slash); several sources
    or a folder need a folder, which is made if missing and keeps the tree.

    Raises RequestError (neither or both of output and in_place, equal targets, target = source),
    StorageError for an existing target without overwrite.
    """
    if in_place and output is not None:
        raise RequestError("--output and --in-place exclude each other; give one")
    if not in_place and output is None:
        raise RequestError("give --output FILE_OR_DIR for a new file, or --in-place to replace the source")
    found = expand(sources)
    if output is None:
        return [(file.path, file.path) for file in found]
    output = os.fspath(output)
    folder = os.path.isdir(output) or output.endswith(os.sep)
    if not folder and not is_single(sources):
        if os.path.lexists(output):
            raise StorageError(output, "is not a folder, which several sources need")
        folder = True
    pairs = [(file.path, os.path.join(output, file.relative) if folder else output) for file in found]
    taken: dict[str, str] = {}
    for source, target in pairs:
        real = os.path.realpath(target)
        if real in taken:
            raise RequestError(f"{taken[real]} and {source} would both go to {target}")
        taken[real] = source
    sources_real = {os.path.realpath(source) for source, _ in pairs}
    for source, target in pairs:
        if os.path.realpath(target) in sources_real:
            raise RequestError(f"{target} is itself a source; give --in-place to replace it")
        if os.path.isdir(target):
            raise StorageError(target, "is a folder; the new file would have that name")
        if os.path.lexists(target) and not overwrite:
            raise StorageError(target, f"exists; give --overwrite to replace it with the new version of {source}")
    return pairs


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Failed:
    """A file that could not be worked on."""

    path: str
    error: ParquetBloomError


class Results(list[R], Generic[R]):
    """One result a file, in order, and `failed`: the files among many that gave an error instead."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: list[Failed] = []


def each(paths: Sequence[str], work: Callable[[str], R], single: bool) -> Results[R]:
    """Work on every file; one bad file among many does not stop the others."""
    results: Results[R] = Results()
    for path in paths:
        try:
            try:
                results.append(work(path))
            except RequestError as error:  # a column that this file lacks, a type that it has
                raise type(error)(f"{path}: {error}") from error
        except ParquetBloomError as error:
            if single:
                raise
            results.failed.append(Failed(path, error))
    return results
