"""What a search says of several files together, and of each alone: the two have to be equal; and such files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom
from parquet_bloom.errors import RequestError
from parquet_bloom.filters.locate import filter_ranges_of
from parquet_bloom.format.outline import NONE, Outline, Slot
from parquet_bloom.search import together
from parquet_bloom.search.options import Options
from parquet_bloom.search.search import Search
from parquet_bloom.source.source import resolved_files
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import arrow_filesystem

LOOPS = ("numpy", "numba")  # who looks into filters: numba where it has been imported
_SPANS = (Slot.OLD_MAX, Slot.OLD_MIN, Slot.MAX_VALUE, Slot.MIN_VALUE, Slot.KEY_VALUES, Slot.DRAFT_FILTER)


def fact(one: Any) -> Any:
    """Everything that a search says of a file, as values."""
    if isinstance(one, tuple):
        file, error = one
        return str(file), type(error), str(error)
    decision, outline = one.decision, one.outline
    if decision is None:
        return str(one.file), one.excluded
    return (
        str(one.file),
        one.size,
        decision.outcomes.tolist(),
        decision.stage.tolist(),
        decision.bytes_read.tolist(),
        decision.asked.tolist(),
        decision.damaged,
        decision.notes,
        repr(one.bound),
        one.version_token,
        outline.start,
        outline.leaves,
        repr(outline.metadata),
        outline.rows.tolist(),
        *numbers_and_bytes(outline),
    )


def numbers_and_bytes(outline: Outline) -> Iterator[Any]:
    """The slots of an outline, and the bytes of its spans, whichever reader of footers it comes from."""
    slot = 0
    while slot < Slot.COUNT:
        if slot not in _SPANS:
            yield outline.slots[slot].tolist()
            slot += 1
            continue
        places = zip(outline.slots[slot].ravel().tolist(), outline.slots[slot + 1].ravel().tolist(), strict=True)
        yield [None if at == NONE else bytes(outline.data[at : at + length]) for at, length in places]
        slot += 2


@contextmanager
def deciding(several: bool) -> Iterator[None]:
    """Files in runs, or one by one."""
    fewest, together.FEWEST = together.FEWEST, 2 if several else 1 << 30
    try:
        yield
    finally:
        together.FEWEST = fewest


def facts(files: Sequence[DataFile], predicate: Any, several: bool, **options: Any) -> tuple[Any, list[str]]:
    """What a search says of files, or the error that it ends with; and its warnings."""
    with deciding(several), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        said: list[Any] = []
        try:
            for one in Search(resolved_files(files), predicate, Options(**options)):
                said.append(fact(one))
        except RequestError as error:
            said.append((type(error), str(error)))
        return said, [str(one.message) for one in found]


def same(named: Sequence[DataFile | Path], predicate: Any, **options: Any) -> None:
    """Both ways say the same of files of one storage; warnings of a far one come when a file is searched."""
    files = [one if isinstance(one, DataFile) else DataFile(str(one)) for one in named]
    (several, warned), (one_by_one, wanted) = (facts(files, predicate, way, **options) for way in (True, False))
    assert several == one_by_one
    assert sorted(warned) == sorted(wanted)
    if files[0].is_local:
        assert warned == wanted
        few = {key: value for key, value in options.items() if key in ("use_filters", "nan")}
        names = [file.path for file in files]
        assert checked(names, predicate, True, **few) == checked(names, predicate, False, **few)


def checked(source: Any, predicate: Any, several: bool, **options: Any) -> Any:
    with deciding(several), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return parquet_bloom.check(source, predicate, **options).to_dict()
        except RequestError as error:
            return str(error)


# --- files, and predicates over them --------------------------------------------------------------


def write(path: Path, seed: int, groups: int = 3, rows: int = 40, names: str = "ab") -> Path:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {"id": rng.integers(-(2**62), 2**62, groups * rows)}
    for name in names:
        columns[name] = [f"{name}{value}" for value in rng.integers(0, 10**6, groups * rows)]
    table = pa.table(columns)
    plain = path.with_suffix(".plain")
    pq.write_table(table, plain, row_group_size=rows, use_dictionary=False)
    parquet_bloom.add_filters(plain, path, columns=list(columns), sync=False)
    plain.unlink()
    return path


def write_twenty(folder: Path) -> Path:
    """Twenty files: most of one schema, some of another, or of another number of row groups."""
    for i in range(20):
        write(folder / f"{i:02}.parquet", i, groups=1 + i % 4, names="abc" if i % 5 == 3 else "ab")
    return folder


def keys(path: Path, column: str = "id") -> list[Any]:
    return pq.read_table(path, columns=[column])[column].to_pylist()


def damaged(path: Path, at: int) -> bytes:
    """The bytes of a file whose first filter has a wrong byte; at -1 no bit and no sound header, at -2 no bit."""
    with OpenFile(path) as source:
        ranges = filter_ranges_of(source.outline(), 0)
        offset, length = int(ranges.offset[0]), int(ranges.num_bytes[0])
    data = bytearray(path.read_bytes())
    if at == -1:
        data[offset + 10 : offset + 20 + length] = bytes(length + 10)
    if at == -2:
        data[offset + 16 : offset + 16 + length] = bytes(length)
    else:
        data[offset + (19 if at == -1 else at)] ^= 0x55
    return bytes(data)


PREDICATES: list[Callable[[Path], str]] = [
    lambda f: "id = 5",
    lambda f: f"id = {keys(f / '07.parquet')[11]}",
    lambda f: f"id IN (5, 6, {keys(f / '12.parquet')[3]})",
    lambda f: "id IN (" + ", ".join(map(str, keys(f / "03.parquet"))) + ")",
    lambda f: f"a = '{keys(f / '05.parquet', 'a')[0]}' OR b = '{keys(f / '13.parquet', 'b')[1]}'",
    lambda f: "a = 'no' AND id > 0",
    lambda f: "NOT (id = 5) OR a IS NULL",
    lambda f: "id BETWEEN 10 AND 300",
    lambda f: "c = 'x'",
    lambda f: "id = 5 AND c IS NULL",
    lambda f: "id = NULL",
    lambda f: "nothing = 5",
    lambda f: "id = 'x'",
]


# --- where files lie --------------------------------------------------------------------------------


class Here:
    """Files in a folder of this machine."""

    far = False
    filesystem: Any = None
    arrow: Any = None

    def __init__(self, folder: Path) -> None:
        self.root = str(folder)

    def put(self, name: str, data: bytes) -> DataFile:
        path = Path(self.root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return DataFile(str(path))

    def files(self, paths: Sequence[Path]) -> list[DataFile]:
        return [self.put(path.name, path.read_bytes()) for path in paths]

    def remove(self, file: DataFile) -> None:
        Path(file.path).unlink()


class Far(Here):
    """Files in memory, as on a file system that has no files of this machine."""

    far = True

    def __init__(self) -> None:
        import fsspec  # not in the environments of .ci/versions, which load this module too

        self.filesystem = fsspec.filesystem("memory", skip_instance_cache=True)
        self.filesystem.store.clear()
        self.arrow = arrow_filesystem(self.filesystem)
        self.root = "/data"

    def put(self, name: str, data: bytes) -> DataFile:
        self.filesystem.pipe(f"/data/{name}", data)
        return DataFile(f"/data/{name}", self.arrow)

    def remove(self, file: DataFile) -> None:
        self.filesystem.rm(file.path)
