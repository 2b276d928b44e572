"""The actions of a Delta log that name the live files: of commits (JSON) and checkpoints (Parquet), and replayed.

    checkpoint -> Actions, Actions, ...
    commits    -> Actions, Actions, ...  -> replay -> State: protocol, metadata, live files

Source: the Delta protocol, "Actions", "Checkpoint Schema" and "Action Reconciliation".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from urllib.parse import unquote

from parquet_bloom.errors import TableFormatError
from parquet_bloom.storage.remote import Location, side_by_side
from parquet_bloom.tables.delta.log import Files, TableFolder, lines_of, opened, read_file

_BESIDE = ("stats_parsed", "partitionValues_parsed")  # of an add in a checkpoint, the second form of others
_MOST_ROWS = 50_000_000  # of a row group of a checkpoint: a few bytes can claim any number of NULLs
_AT_ONCE = 64  # commits that are read side by side, and so are in memory together
# Of a checkpoint. Each of its parts has those that it needs: one of many transactions has `txn` alone.
_COLUMNS = {"txn", "add", "remove", "metaData", "protocol", "domainMetadata", "checkpointMetadata", "sidecar"}


@dataclass(frozen=True, slots=True)
class Vector:
    """The deletion vector of a file: how it is stored, where, and how many rows it deletes."""

    kind: str
    text: str
    offset: int | None
    size: int
    rows: int

    @property
    def id(self) -> str:
        """Its name in the log: with the path it identifies one state of a file."""
        return f"{self.kind}{self.text}" + ("" if self.offset is None else f"@{self.offset}")


@dataclass(frozen=True, slots=True)
class Add:
    """An add action, as the log has it.

    path       URL-encoded
    stats      JSON text; None: only `parsed`, or none at all
    parsed     the same as columns of a checkpoint had it
    modified   when its rows came, ms since 1970
    others     fields that only say something to their writers, by their names, those that are set
    """

    path: str
    values: Mapping[str, str | None]
    size: int
    stats: str | None = None
    parsed: Mapping[str, Any] | None = None
    vector: Vector | None = None
    modified: int = 0
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Actions:
    """The actions of one commit, or of a part of a checkpoint.

    removed   (path, vector's id or None) of remove actions
    sidecars  names of further files of a checkpoint
    info      what a commit says of itself
    """

    adds: list[Add] = field(default_factory=list)
    removed: list[tuple[str, str | None]] = field(default_factory=list)
    sidecars: list[str] = field(default_factory=list)
    protocol: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def take(self, action: Mapping[str, Any]) -> None:
        """Add one action. Raises KeyError, TypeError, ValueError for one that is none."""
        if (add := action.get("add")) is not None:
            self.adds.append(_add(add))
        if (remove := action.get("remove")) is not None:
            vector = _vector(remove.get("deletionVector"))
            self.removed.append((str(remove["path"]), None if vector is None else vector.id))
        if isinstance(info := action.get("commitInfo"), dict):
            self.info = info
        if (sidecar := action.get("sidecar")) is not None:
            self.sidecars.append(str(sidecar["path"]))
        if (protocol := action.get("protocol")) is not None:
            versions = {name: _count(protocol[name]) for name in ("minReaderVersion", "minWriterVersion")}
            self.protocol = {**protocol, **versions}
            for name in ("readerFeatures", "writerFeatures"):
                self.protocol[name] = [str(feature) for feature in protocol.get(name) or ()]
        if (metadata := action.get("metaData")) is not None:
            self.metadata = {
                **metadata,
                "schemaString": str(metadata["schemaString"]),
                "configuration": _map(metadata.get("configuration")),
            }


def _count(value: Any) -> int:
    """A number of bytes, rows or versions. Raises ValueError for one that Delta's LONG cannot say, or below 0."""
    number = int(value)
    if not 0 <= number < 1 << 63:
        raise ValueError("a number beyond 63 bits")
    return number


def _map(value: Any) -> dict[str, Any]:
    """A map as JSON has it, or as pairs, as pyarrow reads it from Parquet."""
    return dict(value or ())


def _vector(value: Any) -> Vector | None:
    if value is None:
        return None
    offset = value.get("offset")
    kind, text = str(value["storageType"]), str(value["pathOrInlineDv"])
    return Vector(
        kind,
        text,
        None if offset is None else _count(offset),
        _count(value["sizeInBytes"]),
        _count(value["cardinality"]),
    )


_OWN = {"path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "deletionVector", *_BESIDE}


def _set(others: dict[str, Any]) -> dict[str, Any]:
    return {name: found for name, found in others.items() if found not in (None, {}, [])}


def _texts(values: Any) -> dict[str, str | None]:
    return {str(name): None if text is None else str(text) for name, text in _map(values).items()}


def _add(value: Mapping[str, Any]) -> Add:
    others = {name: value[name] for name in value.keys() - _OWN}
    others = _set(others) if others else others
    values = _texts(value["partitionValues"])
    vector = _vector(value.get("deletionVector"))
    return Add(
        str(value["path"]),
        values,
        _count(value["size"]),
        value.get("stats") or None,
        value.get("stats_parsed"),
        vector,
        max(-(1 << 63), min(int(value.get("modificationTime") or 0), (1 << 63) - 1)),
        others,
    )


# --- commits --------------------------------------------------------------------------------------


def read_commits(folder: TableFolder, names: Sequence[str]) -> Iterator[Actions]:
    """The actions of commits, in order. Raises StorageError, TableFormatError."""
    places = [folder.below(f"_delta_log/{name}") for name in names]
    if folder.at.is_local:  # one after the other: no more than one is in memory
        yield from (from_json(at, read_file(at)) for at in places)
        return
    for first in range(0, len(places), _AT_ONCE):
        some = places[first : first + _AT_ONCE]
        for at, data in zip(some, side_by_side(read_file, some), strict=True):
            yield from_json(at, data)


def from_json(at: Location, data: bytes) -> Actions:
    """The actions of a file of JSON, one a line. Raises TableFormatError."""
    actions = Actions()
    try:
        for line in lines_of(data):
            actions.take(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise TableFormatError(at, f"is no commit of a Delta log: {type(error).__name__}: {error}") from error
    return actions


# --- checkpoints ----------------------------------------------------------------------------------


def read_checkpoint(folder: TableFolder, names: Sequence[str]) -> Iterator[Actions]:
    """The actions of a checkpoint, part by part, with its sidecars. Raises StorageError, TableFormatError."""
    for name in names:
        at = folder.below(f"_delta_log/{name}")
        parts = [from_json(at, read_file(at))] if name.endswith(".json") else from_parquet(at)
        for part in parts:
            yield part
            for sidecar in part.sidecars:
                yield from from_parquet(folder.checked(sidecar, "_delta_log/_sidecars"))


def from_parquet(at: Location) -> Iterator[Actions]:
    """The actions of a Parquet file, by row groups. Raises StorageError, TableFormatError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with opened(at) as source:
        try:
            file = pq.ParquetFile(source.arrow_file(), coerce_int96_timestamp_unit="us")  # nanoseconds end in 2262
            names = file.schema_arrow.names
            if not _COLUMNS & set(names):
                raise KeyError(f"its columns are {', '.join(names[:5])}")
            for group in range(file.num_row_groups):
                if (rows := file.metadata.row_group(group).num_rows) > _MOST_ROWS:
                    raise ValueError(f"row group {group} claims {rows:,} rows")
                yield _row_group(file, group)
        except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, OSError) as error:
            raise TableFormatError(at, f"is no checkpoint of a Delta log: {' '.join(str(error).split())}") from error


def _row_group(file: Any, group: int) -> Actions:
    schema = file.schema_arrow
    names = set(schema.names)
    actions = Actions()
    for name in ("protocol", "metaData", "sidecar"):
        if name in names:
            column = file.read_row_group(group, columns=[name])[name]
            for value in column.filter(column.is_valid()).to_pylist():
                actions.take({name: value})
    if "add" not in names:
        return actions
    fields = schema.field("add").type.names
    column = _adds(file, group, [name for name in fields if name not in _BESIDE])
    if "stats_parsed" not in fields and (plain := _plain_adds(column.combine_chunks())) is not None:
        actions.adds = plain
        return actions
    if "stats_parsed" in fields and ("stats" not in fields or column.combine_chunks().field("stats").null_count):
        parsed = _adds(file, group, ["path", "stats_parsed"]).to_pylist()
    else:
        parsed = [None] * len(column)
    for value, beside in zip(column.to_pylist(), parsed, strict=True):
        actions.take({"add": value | {"stats_parsed": beside and beside["stats_parsed"]}})
    return actions


def _plain_adds(adds: Any) -> list[Add] | None:
    """Do as `_add`, column by column, in a fraction of the time; None for unusual types, or a needed NULL."""
    import pyarrow as pa

    is_text, is_number = (pa.types.is_string, pa.types.is_large_string), (pa.types.is_int64,)
    if isinstance(adds, pa.ChunkedArray):  # of no rows
        return None
    kind = adds.type
    for name, fits in (("path", is_text), ("stats", is_text), ("size", is_number), ("modificationTime", is_number)):
        at = kind.get_field_index(name)
        if at < 0 or not any(fit(kind.field(at).type) for fit in fits):
            return None
    if kind.get_field_index("partitionValues") < 0 or not pa.types.is_map(kind.field("partitionValues").type):
        return None
    path, size, modified, values = map(adds.field, ("path", "size", "modificationTime", "partitionValues"))
    if any(column.null_count for column in (path, size, modified, values)):
        return None
    others = [name for name in kind.names if name not in _OWN and adds.field(name).null_count < len(adds)]
    vectors: list[Vector | None] = [None] * len(adds)
    if "deletionVector" in kind.names and adds.field("deletionVector").null_count < len(adds):
        vectors = [_vector(one) for one in adds.field("deletionVector").to_pylist()]
    more: list[dict[str, Any]] = [{}] * len(adds)
    if others:
        columns = [adds.field(name).to_pylist() for name in others]
        more = [_set(dict(zip(others, row, strict=True))) for row in zip(*columns, strict=True)]
    shared: dict[Any, dict[str, str | None]] = {}  # files of one partition share its values
    partitions = [shared.get(key) or shared.setdefault(key, _texts(key)) for key in map(tuple, values.to_pylist())]
    sizes, stats = size.to_pylist(), adds.field("stats").to_pylist()
    if sizes and min(sizes) < 0:
        raise ValueError("a number below 0")
    rows = zip(path.to_pylist(), partitions, sizes, stats, vectors, modified.to_pylist(), more, strict=True)
    return [Add(at, of, n, text or None, None, vector, ms, rest) for at, of, n, text, vector, ms, rest in rows]


def _adds(file: Any, group: int, fields: Sequence[str]) -> Any:
    column = file.read_row_group(group, columns=[f"add.{name}" for name in fields])["add"]
    return column.filter(column.is_valid())


# --- replay ---------------------------------------------------------------------------------------
#
# A table at one version: the log's actions, replayed.
#
# Source: the Delta protocol, "Action Reconciliation".

_DEEPEST = 200  # deltalake 1.6.6 ends the process by a full stack at some thousands
_BRACKETS = re.compile(r"[\[\]{}]")
Key = tuple[str, str | None]  # a path, decoded, and the name of its deletion vector


@dataclass(frozen=True, slots=True)
class State:
    """A table's protocol, metadata and live files at a version.

    deep  a file, live or dead, whose statistics are nested deeper than deltalake reads without a crash; "" for none
    sidecars  whether some actions lie in files that the log's names alone do not tell
    """

    version: int
    protocol: dict[str, Any]
    metadata: dict[str, Any]
    adds: tuple[Add, ...]
    deep: str = ""
    sidecars: bool = False

    @property
    def identity(self) -> str:
        """The identity of the table among all that were at the same place."""
        return str(self.metadata.get("id"))

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        found: dict[str, str] = self.metadata["configuration"]
        return found


def key_of(add: Add) -> Key:
    """By what the log knows a live file."""
    return unquote(add.path), None if add.vector is None else add.vector.id


def replay(folder: TableFolder, files: Files) -> State:
    """Read the log of a version. Raises StorageError, TableFormatError."""
    live: dict[Key, Add] = {}
    protocol = metadata = None
    deep, sidecars = "", False
    parts: Iterable[Actions] = chain(read_checkpoint(folder, files.checkpoint), read_commits(folder, files.commits))
    for actions in parts:
        protocol = actions.protocol or protocol
        metadata = actions.metadata or metadata
        sidecars = sidecars or bool(actions.sidecars)
        _apply(folder, live, actions)
        deep = deep or next((add.path for add in actions.adds if _is_deep(add.stats)), "")
    if protocol is None or metadata is None:
        raise TableFormatError(folder.at, f"its log has no protocol or no schema at version {files.version}")
    if len({path for path, _ in live}) < len(live):
        twice = [path for path, n in Counter(path for path, _ in live).items() if n > 1]
        raise TableFormatError(folder.at, f"its log has {twice[0]} twice, with two deletion vectors")
    return State(files.version, protocol, metadata, tuple(live.values()), deep, sidecars)


def _is_deep(stats: object) -> bool:
    """Whether JSON may be nested deeper than any schema is; texts in it count as if they were brackets."""
    if not isinstance(stats, str) or len(stats) <= _DEEPEST:  # a line of JSON may have anything there
        return False
    if stats.count("[") + stats.count("{") <= _DEEPEST:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(stats):
        depth += 1 if bracket in "[{" else -1
        if depth > _DEEPEST:
            return True
    return False


def _apply(folder: TableFolder, live: dict[Key, Add], actions: Actions) -> None:
    removed = {(unquote(path), vector) for path, vector in actions.removed}
    for key in removed:
        live.pop(key, None)
    if not removed:
        live |= {key_of(add): add for add in actions.adds}
        return
    for add in actions.adds:
        key = key_of(add)
        if key in removed:
            raise TableFormatError(folder.at, f"one commit adds and removes {add.path}: it is not known if it lives")
        live[key] = add
