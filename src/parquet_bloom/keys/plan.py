"""The plan of a build: which files, with which columns, in which segments, and how many bits their hashes have.

    footers -> PlannedFile -> files of one set of types -> PlannedSegment: places, bits, partitions

Footers tell how many values there are, so all sizes are known before anything is decoded. On Spark executors plan files
(`plan_file`), and the driver does the rest (`assembled`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import DamagedFileError, RefusedTypeError, RequestError, UnknownColumnError, parameter
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf, select_leaves
from parquet_bloom.format.statistics import statistics_of
from parquet_bloom.format.values import type_of
from parquet_bloom.keys.entries import Packing
from parquet_bloom.keys.listing import ListedFile
from parquet_bloom.keys.manifest import (
    IndexColumn,
    Manifest,
    SchemaKey,
    SegmentSchema,
    bits_of,
    partition_bits_of,
    place_bits_of,
    schema_bytes,
    schema_key,
)
from parquet_bloom.options import several
from parquet_bloom.source.columns import partition_keys
from parquet_bloom.source.results import Result, table_of
from parquet_bloom.source.source import CallSource, ResolvedSource
from parquet_bloom.source.view import Names
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile, check_text
from parquet_bloom.storage.remote import in_order
from parquet_bloom.storage.stores import store_of
from parquet_bloom.storage.version_token import LocalToken

_HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}


@dataclass(slots=True)
class PlannedFile:
    """A file to index.

    schema  as Thrift has it
    leaves, field_ids  column -> its leaf in this file, and the field id of that
    token   of its version, to go on with a build that was killed
    """

    data_file: DataFile
    schema: bytes
    leaves: dict[int, Leaf]
    field_ids: dict[int, int | None]
    listed: ListedFile
    token: object

    @property
    def kind(self) -> tuple[Any, ...]:
        """Files of one segment have the same."""
        return tuple((number, type_of(leaf)) for number, leaf in sorted(self.leaves.items()))


@dataclass(slots=True)
class PlannedSegment:
    """Files whose columns have one type each.

    schemas  of its files, each once
    """

    id: str
    files: list[PlannedFile]
    schemas: list[SegmentSchema]
    leaves: dict[int, Leaf]
    packings: dict[int, Packing]

    @property
    def places(self) -> int:
        """Row groups of all files."""
        return sum(len(one.listed.rows) for one in self.files)


@dataclass(slots=True)
class Plan:
    """The work of a build: its columns and segments, and how many files it passes over."""

    columns: list[IndexColumn]
    segments: list[PlannedSegment]
    empty: int  # files without a row group

    def refuse_nothing(self) -> None:
        """Raise RequestError where there is no row group to index."""
        if not self.segments:
            raise RequestError("there is no row group to index; name files that have some")


def root_of(files: Sequence[DataFile]) -> str:
    """The folder or URI that all files lie below, as their names have it; "" for none."""
    real: dict[str, str] = {}
    folders = [name_of(one, real).rpartition("/")[0] for one in files]
    if not folders:
        return ""
    first, *others = [folder.split("/") for folder in dict.fromkeys(folders)]
    shared = len(first)
    for parts in others:
        while first[:shared] != parts[:shared]:
            shared -= 1
    return "/".join(first[:shared])


def name_of(file: DataFile, real: dict[str, str]) -> str:
    """The name of a file, however its folder was named: a local path from the root, with slashes, or a URI.

    real  of this call: folders as they are named, and where links lead
    """
    if not file.is_local:
        return as_library_names(store_of(file).names(file)[0])
    folder, name = os.path.split(os.path.abspath(file.path))
    if folder not in real:
        real[folder] = os.path.realpath(folder)
    return os.path.join(real[folder], name).replace(os.sep, "/")


def as_library_names(uri: str) -> str:
    """A URI with the scheme that this library has for it, where Hadoop has another one."""
    scheme, colon, rest = uri.partition("://")
    return f"{_HADOOP_SCHEMES.get(scheme, scheme)}{colon}{rest}"


def below(name: str, root: str) -> str:
    """A name without its root; one that does not lie below it stays whole."""
    return name[len(root) + 1 :] if name.startswith(root + "/") else name


@dataclass(frozen=True, slots=True)
class FileFooter:
    """The footer of a file to index.

    token  of the version that it was read from, as `token_of` has it
    """

    file: DataFile
    outline: Outline
    token: object


def token_of(source: OpenFile) -> object:
    """The version of an open file, in values that JSON has."""
    return source.lasting_token(wait=True) or [source.size, str(source.version_token)]


def is_of_version(source: OpenFile, token: object) -> bool:
    """Whether an open file is the version that a plan was made of, on this machine or another, as far as that is known.

    A shared disk has one inode and one time on all machines, and another device. Where a storage tells nothing that is
    proof, sizes are compared: of such a file no index says anything, unless a table's log names it, which has one
    content for a name.
    """
    now = source.version_token
    if isinstance(token, list):
        return bool(token[0] == source.size)
    if isinstance(token, dict) and isinstance(now, LocalToken):
        return all(token.get(name) == getattr(now, name) for name in ("inode", "size", "mtime_ns", "ctime_ns"))
    return source.is_known_by(token)


def footer_of(file: DataFile) -> FileFooter:
    """Read the footer of a file. Raises FileError."""
    with OpenFile(file) as source:
        return FileFooter(file, source.outline(), token_of(source))


def plan_of(
    found: ResolvedSource,
    files: Sequence[DataFile],
    columns: Sequence[str],
    root: str,
    false_places: float,
    paths: Sequence[tuple[str, ...]] | None = None,
) -> Plan:
    """Read footers.

    files    of the source, those to index
    columns  names and patterns
    paths    in the place of these, the columns of an index by number, as the source calls them
    Raises UnknownColumnError, RefusedTypeError, FileError.
    """
    names, hidden = found.names, hidden_keys(found, files)
    chosen: list[Leaf] | None = None
    if paths is not None:
        chosen = checked_leaves([Leaf(number, path, 0) for number, path in enumerate(paths)], hidden)
    elif found.has_log:
        chosen = checked_leaves(select_leaves(names.leaves, columns, None), hidden)
    planned: list[PlannedFile] = []
    real: dict[str, str] = {}
    local = all(one.is_local for one in files)
    for result in in_order(footer_of, files, 0 if local else None):
        footer = result()
        if chosen is None:  # files without a log have the columns of the first one
            chosen = checked_leaves(leaves_of_file(footer.file, footer.outline.leaves, columns), hidden)
        planned.append(plan_file(footer, names, chosen, root, real))
    return assembled(planned, chosen or [], false_places)


def hidden_keys(found: ResolvedSource, files: Sequence[DataFile]) -> set[tuple[str, ...]]:
    """The columns whose values the folders' names have."""
    return set() if found.has_log else {key.path for key in partition_keys(one.partitions for one in files)}


def leaves_of_file(file: object, leaves: Sequence[Leaf], columns: Sequence[str]) -> list[Leaf]:
    """The leaves of a file that names and patterns mean. Raises UnknownColumnError."""
    try:
        return select_leaves(leaves, columns, None)
    except UnknownColumnError as error:
        raise UnknownColumnError(f"{file}: {error.message}") from error


def checked_leaves(chosen: list[Leaf], hidden: set[tuple[str, ...]]) -> list[Leaf]:
    """The columns of an index, by number. Raises RequestError for one that is there twice, or is a folder's key."""
    if len({leaf.path for leaf in chosen}) < len(chosen):
        raise RequestError(parameter("columns") + " names a column twice")
    for leaf in chosen:
        if leaf.path in hidden:
            raise RequestError(f"{leaf.name}: the folders' names have its values; leave it away")
    return chosen


def plan_file(footer: FileFooter, names: Names, chosen: Sequence[Leaf], root: str, real: dict[str, str]) -> PlannedFile:
    """The plan of one file.

    names   of the columns of its source
    chosen  the columns of the index, by number
    root    that the names of files are kept below
    real    as name_of has it
    Raises RefusedTypeError, UnknownColumnError, DamagedFileError; RequestError for a name that is no UTF-8.
    """
    file, outline = footer.file, footer.outline
    elements, own = outline.schema_elements, outline.leaves
    try:
        named = names.named_leaves(own, elements, file)
    except UnknownColumnError as error:
        raise UnknownColumnError(f"{file}: {error.message}") from error
    leaves: dict[int, Leaf] = {}
    for number, wanted in enumerate(chosen):
        at = next((leaf.index for leaf in named if leaf.path == wanted.path), None)
        if at is None:
            continue
        if (reason := own[at].refusal) is not None:
            raise RefusedTypeError(f"{file}: column {wanted.name}: {reason}")
        leaves[number] = own[at]
    ids = {number: elements[leaf.element].field_id for number, leaf in leaves.items()}
    values = {n: outline.slots[Slot.NUM_VALUES, :, leaf.index].copy() for n, leaf in leaves.items()}
    if any((one < 0).any() for one in values.values()):
        raise DamagedFileError(file, "a column chunk has no number of values")
    known = {n: statistics_of(outline, leaf) for n, leaf in leaves.items()}
    path = below(name_of(file, real), root)
    check_text(path, file)
    listed = ListedFile(path, 0, outline.rows.copy(), values, known)
    if not leaves and isinstance(footer.token, dict):
        listed.token = footer.token
    return PlannedFile(file, schema_bytes(elements), leaves, ids, listed, footer.token)


def assembled(files: Sequence[PlannedFile], chosen: Sequence[Leaf], false_places: float) -> Plan:
    """The plan of all files, in the order of their places."""
    ids: dict[int, int] = {}
    by_kind: dict[tuple[Any, ...], list[PlannedFile]] = {}
    for one in files:
        for number, field_id in one.field_ids.items():
            if field_id is not None:
                ids.setdefault(number, field_id)
        if len(one.listed.rows):  # one without any of the columns too: its schema says that all is NULL
            by_kind.setdefault(one.kind, []).append(one)
    columns = [IndexColumn(leaf.name, ids.get(number)) for number, leaf in enumerate(chosen)]
    segments = [_segment(members, false_places) for members in by_kind.values()]
    return Plan(columns, segments, len(files) - sum(map(len, by_kind.values())))


def _segment(files: list[PlannedFile], false_places: float) -> PlannedSegment:
    numbers: dict[SchemaKey, int] = {}
    for one in files:
        key = schema_key(one.schema, {n: leaf.index for n, leaf in one.leaves.items()})
        one.listed.schema = numbers.setdefault(key, len(numbers))
    schemas = [SegmentSchema.of(key) for key in numbers]
    places = sum(len(one.listed.rows) for one in files)
    packings = {}
    for number in files[0].leaves:
        entries = sum(int(one.listed.values[number].sum()) for one in files)
        bits = bits_of(entries, places, false_places)
        packings[number] = Packing(bits, place_bits_of(places), partition_bits_of(entries, bits))
    # All that entries come from: what a killed build left counts for the same columns of the same files alone.
    facts = [
        [
            one.listed.path,
            one.schema.hex(),
            [leaf.index for _, leaf in sorted(one.leaves.items())],
            one.listed.rows.tolist(),
            one.token,
        ]
        for one in files
    ]
    known = [sorted((n, astuple(packing)) for n, packing in packings.items()), facts]
    name = hashlib.sha256(json.dumps(known, default=str).encode()).hexdigest()[:16]
    return PlannedSegment(name, files, schemas, dict(files[0].leaves), packings)


def chosen_root(where: CallSource, found: ResolvedSource) -> str:
    """The root of names: a folder that was named alone, else the folder that all files lie in."""
    many = several(where.paths)
    if len(many) == 1 and isinstance(many[0], str | os.PathLike) and not found.has_log:
        path = os.path.realpath(os.fspath(many[0]))
        if os.path.isdir(path) and all(one.is_local for one in found.files):
            return path.rstrip("/")
    return root_of([one for one in found.files if one.stored])


# --- the report of a build: what a key index has, or by its plan would have ------------------------

_PART_BYTES, _PLACE_BYTES = 4096, 116  # of a file's footer, and of a row group in a listing, at most


@dataclass(slots=True, repr=False)
class IndexedColumn(Result):
    """A column of a key index that was built.

    bits     of each hash, of the segment that has most entries
    entries  of all segments
    bytes    of its Parquet files
    false_places  that a lookup of a value meets by chance, on average
    """

    column: str
    entries: int
    bits: int
    bytes: int
    false_places: float


@dataclass(slots=True, repr=False)
class KeyIndexReport(Result):
    """The report of a build.

    path     of the index
    columns  that it has
    files, row_groups, rows  that were indexed
    passed_over  files without a row group
    bytes    of all files of the index; of a dry run what they are expected to take, at most
    seconds  that it took
    """

    path: str
    columns: list[IndexedColumn] = field(default_factory=list)
    segments: int = 0
    files: int = 0
    row_groups: int = 0
    rows: int = 0
    passed_over: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def to_arrow(self) -> pa.Table:
        """A row a column."""
        return table_of(IndexedColumn, self.columns)


def estimate(plan: Plan, report: KeyIndexReport) -> None:
    """Say in the report of a dry run sizes as if all values of a row group differed."""
    for number, column in enumerate(plan.columns):
        entries = size = bits = 0
        false = 0.0
        for segment in plan.segments:
            if (packing := segment.packings.get(number)) is not None:
                own = sum(int(one.listed.values[number].sum()) for one in segment.files)
                entries, bits = entries + own, max(bits, packing.bits)
                # Differences of sorted hashes take some 3 bits more than their mean, places as many as their number.
                spread = max(0.0, packing.bits - math.log2(max(own, 1))) + 3.5
                size += int(own * (spread + packing.place_bits + 1.5) / 8) + (_PART_BYTES << packing.partition_bits)
                false += own / 2.0**packing.bits
        report.columns.append(IndexedColumn(column.name, entries, bits, size, false))
    _count(report, plan)
    report.bytes = sum(one.bytes for one in report.columns) + _PLACE_BYTES * report.row_groups * len(plan.columns)


def _count(report: KeyIndexReport, plan: Plan) -> None:
    report.segments = len(plan.segments)
    report.files = sum(len(one.files) for one in plan.segments)
    report.row_groups = sum(one.places for one in plan.segments)
    report.rows = sum(int(file.listed.rows.sum()) for one in plan.segments for file in one.files)


def fill(report: KeyIndexReport, manifest: Manifest) -> None:
    """Say in a report what an index has."""
    for number, column in enumerate(manifest.columns):
        own = [one for segment in manifest.segments if (one := segment.column(number)) is not None]
        size = sum(part.size for one in own for part in one.parts)
        bits = max(own, key=lambda one: one.entries).bits if own else 0
        entries, false = sum(one.entries for one in own), sum(one.false_places for one in own)
        report.columns.append(IndexedColumn(column.name, entries, bits, size, false))
    report.segments = len(manifest.segments)
    report.files, report.row_groups = manifest.files, manifest.places
    report.rows = sum(one.rows for one in manifest.segments)
    report.bytes = sum(one.bytes for one in report.columns) + sum(one.listing.size for one in manifest.segments)
