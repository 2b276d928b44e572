"""The plan of a build: which files, with which columns, in which segments, and how many bits their hashes have.

    footers -> PlannedFile -> files of one set of types -> PlannedSegment: places, bits, partitions

Footers tell how many values there are, so all sizes are known before anything is decoded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from parquet_bloom.arguments import several
from parquet_bloom.errors import DamagedFileError, RefusedTypeError, RequestError, UnknownColumnError, parameter
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf, select_leaves
from parquet_bloom.format.statistics import statistics_of
from parquet_bloom.format.values import type_of
from parquet_bloom.keys.entries import Packing
from parquet_bloom.keys.listing import ListedFile
from parquet_bloom.keys.manifest import (
    IndexColumn,
    SchemaKey,
    SegmentSchema,
    bits_of,
    partition_bits_of,
    place_bits_of,
    schema_bytes,
    schema_key,
)
from parquet_bloom.search.evidence import partition_keys
from parquet_bloom.source.source import CallSource, ResolvedSource
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import in_order
from parquet_bloom.storage.stores import store_of


@dataclass(slots=True)
class PlannedFile:
    """A file to index.

    schema  as Thrift has it
    leaves  column -> its leaf in this file
    token   of its version, to go on with a build that was killed
    """

    data_file: DataFile
    schema: bytes
    leaves: dict[int, Leaf]
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
    empty: int  # files without a row group, or without any of the columns


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
        return store_of(file).names(file)[0]
    folder, name = os.path.split(os.path.abspath(file.path))
    if folder not in real:
        real[folder] = os.path.realpath(folder)
    return os.path.join(real[folder], name).replace(os.sep, "/")


def below(name: str, root: str) -> str:
    """A name without its root; one that does not lie below it stays whole."""
    return name[len(root) + 1 :] if name.startswith(root + "/") else name


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
    names = found.names
    hidden = {key.path for key in partition_keys(one.partitions for one in files)} if not found.has_log else set()
    selected: Sequence[Leaf] | None = None
    if paths is not None:
        selected = [Leaf(number, path, 0) for number, path in enumerate(paths)]
    elif found.has_log:
        selected = select_leaves(names.leaves, columns, None)
    plan = Plan([], [], 0)
    planned: list[PlannedFile] = []

    def footer(file: DataFile) -> tuple[DataFile, Outline, object]:
        with OpenFile(file) as source:
            token = source.lasting_token(wait=True) or [source.size, str(source.version_token)]
            return file, source.outline(), token

    real: dict[str, str] = {}
    local = all(one.is_local for one in files)
    for result in in_order(footer, files, 0 if local else None):
        file, found_outline, token = result()
        elements = found_outline.schema_elements
        try:
            own = found_outline.leaves
            named = names.named_leaves(own, elements, file)
            if selected is None:
                selected = select_leaves(named, columns, None)
        except UnknownColumnError as error:
            raise UnknownColumnError(f"{file}: {error.message}") from error
        if not plan.columns:
            plan.columns = [IndexColumn(leaf.name) for leaf in selected]
            if len({leaf.path for leaf in selected}) < len(selected):
                raise RequestError(parameter("columns") + " names a column twice")
        leaves: dict[int, Leaf] = {}
        for number, wanted in enumerate(selected):
            if wanted.path in hidden:
                raise RequestError(f"{wanted.name}: the folders' names have its values; leave it away")
            at = next((leaf.index for leaf in named if leaf.path == wanted.path), None)
            if at is None:
                continue
            if (reason := own[at].refusal) is not None:
                raise RefusedTypeError(f"{file}: column {wanted.name}: {reason}")
            leaves[number] = own[at]
            if plan.columns[number].field_id is None:
                plan.columns[number] = IndexColumn(wanted.name, elements[own[at].element].field_id)
        if not leaves or not found_outline.n_row_groups:
            plan.empty += 1
            continue
        values = {n: found_outline.slots[Slot.NUM_VALUES, :, leaf.index].copy() for n, leaf in leaves.items()}
        if any((one < 0).any() for one in values.values()):
            raise DamagedFileError(file, "a column chunk has no number of values")
        known = {n: statistics_of(found_outline, leaf) for n, leaf in leaves.items()}
        listed = ListedFile(below(name_of(file, real), root), 0, found_outline.rows.copy(), values, known)
        planned.append(PlannedFile(file, schema_bytes(elements), leaves, listed, token))
    by_kind: dict[tuple[Any, ...], list[PlannedFile]] = {}
    for one in planned:
        by_kind.setdefault(one.kind, []).append(one)
    for members in by_kind.values():
        plan.segments.append(_segment(members, false_places))
    return plan


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
