"""Inspects zone indexes, and verifies them against their data: each row must lie in a zone that admits it.

A wrong zone makes every reader lose rows, Lance's own too, so `verify_index` asks for each stored
value, each null and each row number. This finds what no inspection can: an index of other data
under a name that fits, another hash, lost bits.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, RequestError, StaleIndexError, parameter
from parquet_bloom.format import lance as form
from parquet_bloom.format import roaring
from parquet_bloom.format.schema import find_leaf, join_path
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.kernels.split_block import bits_set, contains_hashes, exact_rate
from parquet_bloom.options import PathLike
from parquet_bloom.output.atomic_file import AtomicFile
from parquet_bloom.output.folder import clear_below
from parquet_bloom.source.results import Result, table_of
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import expand
from parquet_bloom.zones.container import ZoneFile
from parquet_bloom.zones.match import (
    check_content,
    check_dataset,
    cover_of,
    covers_of_dataset,
    dataset_around,
    find_indexes,
    numbers_of,
    open_dataset,
    open_indexed_file,
    sources_of,
)
from parquet_bloom.zones.reader import lance_errors, pylance
from parquet_bloom.zones.sources import (
    Column,
    Fragment,
    LanceFragment,
    ParquetFragment,
    Rows,
    is_lance,
    leaves_of_arrow,
)
from parquet_bloom.zones.stretches import Cover, zone_at, zones_of


@dataclass(slots=True, repr=False)
class ZoneInfo(Result):
    """One zone, in the words of the format.

    bytes      of its filter; bits how many of them are set, fpp the false positive rate these give
    problems   what contradicts what
    """

    fragment_id: int
    zone_start: int
    zone_length: int
    has_null: bool
    bytes: int = 0
    bits: int = 0
    fpp: float | None = None
    nulls: int | None = None
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True, repr=False)
class IndexInfo(Result):
    """The content of an index file.

    version      of the Lance file format
    column, type, fragments   what we wrote into it; None in indexes of others
    """

    path: str
    version: str
    items: int
    probability: float
    column: str | None
    type: str | None
    null_bitmap: bool
    metadata: dict[str, str]
    fragments: list[dict[str, Any]] | None
    zones: list[ZoneInfo]

    @property
    def problems(self) -> list[str]:
        """The contradictions of all zones, each with the number of its zone."""
        return [f"zone {i}: {problem}" for i, zone in enumerate(self.zones) for problem in zone.problems]

    def to_arrow(self) -> pa.Table:
        """A row a zone."""
        return table_of(ZoneInfo, self.zones)


def inspect_index(path: PathLike) -> IndexInfo:
    """Describe an index file; the data are not read. Raises DamagedFileError, StorageError."""
    file = ZoneFile(str(path))
    zones = [
        ZoneInfo(*zone)
        for zone in zip(
            file.fragment.tolist(), file.start.tolist(), file.length.tolist(), file.has_null.tolist(), strict=True
        )
    ]
    for zone, overlapping in zip(zones, file.overlapping.tolist(), strict=True):
        if overlapping:
            zone.problems.append("begins before the one ahead of it ends")
        if file.nulls is not None:
            ranges = file.nulls.get(zone.fragment_id, np.empty((0, 2), np.int64))
            ends = np.array([zone.zone_start]), np.array([zone.zone_start + zone.zone_length])
            zone.nulls = int(roaring.count_within(ranges, *ends)[0])
            if bool(zone.nulls) != zone.has_null:
                zone.problems.append(f"has_null is {zone.has_null}, its null bitmap has {zone.nulls}")
    for places, stack in file.stacks(np.arange(file.zones)):
        for i, at in enumerate(places.tolist()):
            _verify_fragment(zones[at], None if stack is None else stack[i], file.parameters.num_bytes)
    column = file.column or {}
    return IndexInfo(
        file.path,
        file.version,
        file.parameters.items,
        file.parameters.probability,
        column.get("name"),
        column.get("type"),
        file.nulls is not None,
        file.metadata,
        file.fragments,
        zones,
    )


def _verify_fragment(zone: ZoneInfo, blocks: NDArray[np.uint32] | None, wanted: int) -> None:
    if blocks is None:
        zone.problems.append("its filter is no positive multiple of 32 bytes; it admits everything")
        return
    blocks = np.ascontiguousarray(blocks)
    zone.bytes, zone.bits, zone.fpp = blocks.nbytes, bits_set(blocks), exact_rate(blocks)
    if zone.bytes != wanted:
        zone.problems.append(f"its filter has {zone.bytes} bytes, the parameters make {wanted}")
    if not zone.bits and zone.nulls is not None and zone.nulls < zone.zone_length:
        zone.problems.append("no bit is set, but not all of its rows are null")


# --- against the data -----------------------------------------------------------------------------


@dataclass(slots=True, repr=False)
class VerifiedIndex(Result):
    """The verdict on one index.

    rows       live rows of the fragments it is of; values those that are no nulls
    outside    rows that lie in no zone
    missed     values that their zone denies
    nulls_wrong  rows of which has_null or the null bitmap tell the contrary
    """

    _more: ClassVar = ("status", "reason")

    path: str
    column: str
    fragments: int = 0
    rows: int = 0
    values: int = 0
    outside: int = 0
    missed: int = 0
    nulls_wrong: int = 0

    @property
    def status(self) -> str:
        """The verdict, "right" or "wrong"."""
        return "wrong" if self.outside or self.missed or self.nulls_wrong else "right"

    @property
    def reason(self) -> str:
        """The faults, with counts; "" if there are none."""
        parts = (
            (self.outside, "rows lie in no zone"),
            (self.missed, "stored values are denied"),
            (self.nulls_wrong, "rows are wrong about NULL"),
        )
        return ", ".join(f"{n:,} {what}" for n, what in parts if n)


def verify_index(
    index: PathLike | Sequence[PathLike],
    data: PathLike | Sequence[PathLike] | None = None,
    *,
    column: str | None = None,
    type: str | None = None,
    filesystem: Any = None,
    root: PathLike | None = None,
) -> list[VerifiedIndex]:
    """Hold indexes against all rows of their data.

    index  `bloomfilter.lance` files, folders of them, or a Lance data set with its own indexes
    data   the Parquet files or the Lance data set; None: those that the index names
    column, type, root  as in query_index; root tells where the data may be that the index names

    Raises StaleIndexError where the data are not those that the index was built over; FileError.
    """
    many = [index] if isinstance(index, str) or not isinstance(index, Sequence) else list(index)
    if len(many) == 1 and is_lance(many[0]):
        with lance_errors(many[0]):
            dataset = pylance().dataset(str(many[0]))
        covers = covers_of_dataset(str(many[0]))
        if not covers:
            raise RequestError(f"{many[0]} has no zone index")
        return [verify_cover(cover, lance_fragments(cover, dataset)) for cover in covers]
    covers = [cover_of(path, column, type) for path in find_indexes(many)]
    return [verify_cover(cover, _fragments(cover, data, filesystem, root)) for cover in covers]


def _fragments(cover: Cover, data: Any, filesystem: Any, root: Any) -> list[tuple[Fragment, Column]]:
    around = dataset_around(cover.file.path) if data is None else None
    if around is not None or (data is not None and isinstance(data, str) and is_lance(data)):
        uri = around or str(data)
        with lance_errors(uri):
            dataset = pylance().dataset(uri)
        return lance_fragments(cover, dataset)
    if data is None and cover.file.column is not None and "dataset" in cover.file.column:
        return lance_fragments(cover, open_dataset(cover, root))
    if data is None and cover.file.fragments is None:
        raise RequestError(f"{cover.file.path} does not say of which data it is; give them")
    numbers = sources_of(cover.file, root) if data is None else numbers_of(cover.file, expand(data, filesystem))
    left = len(cover.file.fragments or []) - len(numbers)
    if left:
        raise StaleIndexError(cover.file.path, f"{left} of its files are not among those given")
    found: list[tuple[Fragment, Column]] = []
    for file, number in numbers.items():
        with open_indexed_file(cover.file, file, root) if data is None else OpenFile(file) as source:
            check_content(cover, number, source)
            leaf = find_leaf(source.footer().leaves, cover.path)
        found.append((ParquetFragment(number, file), Column(leaf, cover.kind)))
    return found


def lance_fragments(cover: Cover, dataset: Any) -> list[tuple[Fragment, Column]]:
    """The fragments of a data set that an index may cover, after its checks. Raises StaleIndexError."""
    if cover.file.column is not None:
        check = check_dataset(cover, dataset)
        numbers = check if cover.fragments is None else check & cover.fragments
    else:
        numbers = cover.fragments if cover.fragments is not None else frozenset(cover.file.fragment.tolist())
    leaves, kinds = leaves_of_arrow(dataset.schema)
    column = Column(find_leaf(leaves, cover.path), kinds[cover.path])
    there = {int(f.fragment_id) for f in dataset.get_fragments()}
    return [(LanceFragment(dataset.uri, dataset.version, n, dataset), column) for n in sorted(numbers & there)]


def verify_cover(cover: Cover, fragments: Sequence[tuple[Fragment, Column]]) -> VerifiedIndex:
    """Query an index for every row of some fragments."""
    verdict = VerifiedIndex(cover.file.path, ".".join(cover.path), len(fragments))
    known = None if cover.fragments is not None else {fragment.number for fragment, _ in fragments}
    if known is not None:
        verdict.outside += int(np.sum(~np.isin(cover.file.fragment, list(known))))  # zones of no fragment at all
    verdict.outside += int(cover.file.overlapping.sum())
    for fragment, column in fragments:
        for rows in fragment.rows([column]):
            _ask(cover, fragment.number, rows, verdict)
    return verdict


def _ask(cover: Cover, fragment: int, rows: Rows, verdict: VerifiedIndex) -> None:
    file, n = cover.file, len(rows.values)
    offsets = np.arange(rows.offsets, rows.offsets + n) if isinstance(rows.offsets, int) else rows.offsets
    zone = zone_at(zones_of(cover, fragment), offsets)
    null = rows.values.is_null().to_numpy(zero_copy_only=False)
    verdict.rows += n
    verdict.values += int(np.sum(~null))
    verdict.outside += int(np.sum(zone < 0))
    verdict.nulls_wrong += int(np.sum(null & (zone >= 0) & ~_has_null(file, zone)))
    if file.nulls is not None:
        recorded = roaring.contains(file.nulls.get(fragment, np.empty((0, 2), np.int64)), offsets)
        verdict.nulls_wrong += int(np.sum(recorded != null))
    hashes = np.array(hash_array(rows.values))
    of_hash = zone[~null]
    order = np.argsort(of_hash, kind="stable")  # in order already, unless some rows lie in no zone
    hashes, of_hash = hashes[order], of_hash[order]
    for places, stack in file.stacks(np.unique(of_hash[of_hash >= 0])):
        for i, at in enumerate(places.tolist()):
            first, last = np.searchsorted(of_hash, [at, at + 1]).tolist()
            if stack is not None:
                admitted = contains_hashes(np.ascontiguousarray(stack[i]), hashes[first:last])
                verdict.missed += int(last - first - np.count_nonzero(admitted))


def _has_null(file: ZoneFile, zone: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not file.zones:
        return np.zeros(len(zone), bool)
    found: NDArray[np.bool_] = file.has_null[np.maximum(zone, 0)]
    return found


# --- register -------------------------------------------------------------------------------------
#
# A zone index of ours as an index of the Lance data set itself, through pylance's public API.
#
#    <data set>/_indices/<uuid>/bloomfilter.lance  +  one commit that names it
#
# A wrong filter would make Lance lose rows, so every row is asked for first.

_DETAILS = "/lance.index.pb.BloomFilterIndexDetails"


def register_index(
    index: PathLike, dataset: PathLike, *, name: str | None = None, replace: bool = False
) -> VerifiedIndex:
    """Add an index that `build_index` made to the manifest of its data set, after verifying it.

    index    the file, or its folder; it is copied into the data set
    dataset  a Lance data set on a local disk
    name     of the index in Lance; default `<column>_idx`, as pylance has it
    replace  take the place of an index of that name

    Fragments that came after the build stay uncovered: Lance reads these as before. Raises
    StaleIndexError, DamagedFileError for an index that is wrong; RequestError for a name that is taken.
    """
    uri = os.fspath(dataset)
    if not os.path.isdir(os.path.join(uri, "_versions")):
        raise RequestError(f"{uri} is no Lance data set on a local disk")
    paths = find_indexes(index)
    if len(paths) > 1:
        raise RequestError(f"{index} has {len(paths)} indexes; register each by its name: {', '.join(paths[:4])}")
    cover = cover_of(paths[0])
    with lance_errors(uri):
        opened = pylance().dataset(uri)
        taken = {str(one.name): one for one in opened.describe_indices()}
    name = name or f"{'_'.join(cover.path)}_idx"
    if name in taken and not replace:
        ways = "another " + parameter("name") + ", or " + parameter("replace", True)
        raise RequestError(f"{uri} has an index {name}; give " + ways)
    if cover.file.column is None:
        raise RequestError(f"{cover.file.path} was not made by parquet-bloom index build --kind lance")
    fragments = lance_fragments(cover, opened)
    if fragments and fragments[0][1].kind != cover.kind:
        raise RequestError(f"column {join_path(cover.path)} is {fragments[0][1].kind}, the index of {cover.kind}")
    verdict = verify_cover(cover, fragments)
    if verdict.status != "right":
        raise DamagedFileError(cover.file.path, f"is wrong and was not registered: {verdict.reason}")
    _commit(opened, cover.file.path, name, cover.path, [f.number for f, _ in fragments], taken.get(name))
    return verdict


def _commit(opened: Any, path: str, name: str, column: tuple[str, ...], numbers: list[int], old: Any) -> None:
    own = str(uuid.uuid4())
    folder = os.path.join(opened.uri, "_indices", own)
    clear_below(os.path.dirname(folder))
    with OpenFile(path) as source, AtomicFile.new(os.path.join(folder, form.FILE_NAME), overwrite=False) as new:
        new.copy_from(0, source, 0, source.size)
        new.commit(source.check_unchanged)
    try:
        with lance_errors(opened.uri):
            from lance import Index, LanceDataset, LanceOperation

            fields = opened.lance_schema.fields()
            for part in column:
                field = next(one for one in fields if one.name() == part)
                fields = field.children()
            new = Index(
                uuid=own,
                name=name,
                fields=[field.id()],
                dataset_version=opened.version,
                fragment_ids=set(numbers),
                index_version=0,
                index_details=(_DETAILS, b""),
            )
            gone = [
                Index(
                    uuid=str(segment.uuid),
                    name=name,
                    fields=list(old.fields),
                    dataset_version=opened.version,
                    fragment_ids=segment.fragment_ids,
                    index_version=segment.index_version,
                )
                for segment in (old.segments if old is not None else ())
            ]
            LanceDataset.commit(opened.uri, LanceOperation.CreateIndex([new], gone), read_version=opened.version)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
