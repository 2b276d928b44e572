"""The rows of one file for Spark: asked, read, turned into the schema's types, filtered.

    folder's name -> footer -> bounds and filters -> row groups that are left -> batches of the schema

A file is opened once. What it is asked and what rows are filtered by are one predicate, seen from
both sides: from the file's values (pushed.for_file) and from Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import DamagedFileError, RequestError, StorageError, first_line
from parquet_bloom.format.arrow_types import is_list
from parquet_bloom.format.literals import Instant
from parquet_bloom.format.schema import FLBA, INT32, INT64, INT96, Leaf
from parquet_bloom.predicates.bind import Schema, bind
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Predicate, Unknown
from parquet_bloom.search.evidence import Question, decide, literal_outcome
from parquet_bloom.search.options import Options
from parquet_bloom.search.search import warn_of_damage
from parquet_bloom.spark.source.types import (
    PYARROW_ERRORS,
    TypeMisfitError,
    check_fit,
    convert,
    damaged,
    open_parquet,
    scalar,
    types_of,
)
from parquet_bloom.spark.source.units import part_of
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile

# --- pushed ---------------------------------------------------------------------------------------
#
# A predicate over Spark's columns -> what one file is asked.
#
#    day = '2026-01-31' AND id = 5    a folder day=2026-01-31    id = 5
#    ts = 00:00:00.000001             ts in nanoseconds          ts >= 00:00:00.000001 AND ts < 00:00:00.000002
#
# Row filters look at values as Spark has them, after a file's column became the schema's; a file is
# asked about values as it stores them. `for_file` says the same of both, or leaves the part out.

TRUE, FALSE = And(()), Or(())
LeafPart = Compare | IsIn | IsNull | Contains

Answer = bool | None | Predicate
"""What is known of a part: TRUE, FALSE or NULL in every row, or else a part to ask."""


def settle(predicate: Predicate, ask: Callable[[LeafPart], Answer], positive: bool = True) -> Predicate:
    """A tree that may be TRUE in some row if the predicate may, and perhaps otherwise.

    Parts that are known fall out; TRUE is And(()), FALSE is Or(()). NULL counts as the outcome that
    does not make the whole TRUE: FALSE, and below a NOT (not positive) TRUE.
    """
    if isinstance(predicate, And | Or):
        kind, ends = (And, FALSE) if isinstance(predicate, And) else (Or, TRUE)
        parts = []
        for part in predicate.parts:
            settled = settle(part, ask, positive)
            if settled == ends:
                return ends
            if settled != kind(()):
                parts.append(settled)
        return parts[0] if len(parts) == 1 else kind(tuple(parts))
    if isinstance(predicate, Not):
        settled = settle(predicate.part, ask, not positive)
        return FALSE if settled == TRUE else TRUE if settled == FALSE else Not(settled)
    if isinstance(predicate, Unknown):
        return predicate
    answer = ask(predicate)
    if answer is None:
        return FALSE if positive else TRUE
    if isinstance(answer, bool):
        return TRUE if answer else FALSE
    return answer


def own_name(name: str, names: list[str]) -> str | None:
    """A file's own name of a column: that very name, or the only one that differs in case alone."""
    if name in names:
        return name
    near = {other for other in names if other.lower() == name.lower()}
    return near.pop() if len(near) == 1 else None


def for_leaves(part: LeafPart, leaves: Sequence[Leaf], wide: pa.Schema) -> Answer:
    """What a file, or a table, with these leaves is asked; a column that it lacks is NULL in all its rows.

    wide  Spark's columns
    """
    name = own_name(part.path[0], [leaf.path[0] for leaf in leaves])
    if name is None:
        return True if isinstance(part, IsNull) else None
    path = (name, *part.path[1:])
    under = [leaf for leaf in leaves if leaf.path[: len(path)] == path]
    if len(under) != 1:
        return Unknown(str(part), "no single column has this name here")
    target = _target(part, wide)
    if target is None:
        return Unknown(str(part), "the schema has no such field")
    return for_file(replace(part, path=path), under[0], target)


def _target(part: LeafPart, wide: pa.Schema) -> pa.DataType | None:
    """Spark's type of what a part compares; None where the path leads through lists."""
    kind = wide.field(part.path[0]).type
    for step in part.path[1:]:
        inside = kind.get_field_index(step) if kind is not None and pa.types.is_struct(kind) else -1
        kind = kind.field(inside).type if inside >= 0 else None
    return kind.value_type if isinstance(part, Contains) and kind is not None and is_list(kind) else kind


def for_file(part: LeafPart, leaf: Leaf, target: pa.DataType) -> Predicate:
    """A part about Spark's column as one about the file's; Unknown where the two could disagree.

    target  Spark's type of the column
    """
    if isinstance(part, IsNull):
        return part  # no conversion makes a NULL, or unmakes one
    if not _same_literals(leaf, target):
        return Unknown(str(part), f"{leaf.name} is {leaf.type_name} in the file, and another type in the schema")
    if leaf.logical != "TIMESTAMP" or leaf.unit_ns >= 1000:
        return part
    if isinstance(part, Contains):
        return Unknown(str(part), f"{leaf.name} has nanoseconds")
    if isinstance(part, IsIn):
        return Or(tuple(_in_nanoseconds(Compare(part.path, "=", value)) for value in part.values))
    return _in_nanoseconds(part)


def _in_nanoseconds(part: Compare) -> Predicate:
    """A comparison of microseconds as one of the nanoseconds that are cut off to them."""
    value = part.value
    if value is None:
        return part
    if not isinstance(value, Instant) or value.nanoseconds % 1000:
        return Unknown(str(part), "nanoseconds are cut off to microseconds")
    after = replace(value, nanoseconds=value.nanoseconds + 1000)
    if part.op == "=":
        return And((Compare(part.path, ">=", value), Compare(part.path, "<", after)))
    if part.op in ("<=", ">"):
        return Compare(part.path, "<" if part.op == "<=" else ">=", after)
    return part


def _same_literals(leaf: Leaf, target: pa.DataType) -> bool:
    """Whether a literal means the same for the file's column and for Spark's."""
    types, logical = pa.types, leaf.logical
    if leaf.physical == INT96 or leaf.float_bits == 16:
        return False
    if types.is_floating(target):
        return leaf.float_bits == int(target.bit_width)
    if types.is_decimal(target) and logical == "DECIMAL":
        return leaf.scale == int(target.scale)
    if types.is_integer(target) or (types.is_decimal(target) and target.scale == 0):
        return logical in (None, "INTEGER") and leaf.physical in (INT32, INT64)
    if types.is_timestamp(target):
        return logical == "TIMESTAMP" and leaf.utc == (target.tz is not None)
    if types.is_date(target):
        return logical == "DATE"
    if types.is_boolean(target):
        return logical is None
    if types.is_string(target) or types.is_binary(target):
        known = logical in (None, "STRING", "ENUM", "JSON", "BSON")
        return known and (leaf.physical != FLBA or types.is_binary(target))
    return False


# --- file rows ------------------------------------------------------------------------------------

_ASKED = Options("largest")
BATCH_ROWS = 10_000  # as Spark's own spark.sql.execution.arrow.maxRecordsPerBatch


class RowReader:
    """Reads files into one schema.

    schema     in Arrow, exactly as Spark wants batches
    beside     columns that only the predicate speaks of, as Spark would have them
    predicate  that rows must give TRUE for
    """

    def __init__(self, schema: pa.Schema, beside: pa.Schema, predicate: Predicate) -> None:
        self.schema = schema
        self.wide = pa.schema([*schema, *beside])
        self.predicate = predicate
        self._keep = row_filter(predicate, self.wide, nan="largest")

    def rows(self, data_file: DataFile, part: int = 0, parts: int = 1) -> Iterator[pa.RecordBatch]:
        """The rows that match, of one part of the file's row groups.

        Raises FileError; RequestError for a column that does not become the schema's.
        """
        constants = self._constants(data_file)
        predicate = settle(self.predicate, lambda leaf: self._by_folder(leaf, constants))
        if predicate == FALSE:
            return
        with OpenFile(data_file) as source:
            outline = source.outline()
            groups = [group for group in part_of(outline.n_row_groups, part, parts) if outline.rows[group]]
            if predicate != TRUE and groups:
                groups = [group for group in self._open(source, predicate) if group in set(groups)]
            if groups:
                yield from self._batches(source, groups, constants)
                _check_same(source, data_file)

    # --- asking -----------------------------------------------------------------------------------

    def _constants(self, data_file: DataFile) -> dict[str, pa.Scalar]:
        """The folder's columns that the schema or the predicate names; the innermost of a name wins."""
        pairs = [(key, text) for key, text in data_file.partitions if key in self.wide.names]
        return {key: scalar(data_file, key, text, self.wide.field(key).type) for key, text in pairs}

    def _by_folder(self, leaf: LeafPart, constants: dict[str, pa.Scalar]) -> Answer:
        if leaf.path[0] not in constants:
            return leaf
        value = constants[leaf.path[0]]
        batch = pa.RecordBatch.from_arrays([pa.array([value.as_py()], value.type)], [leaf.path[0]])
        answer: bool | None = row_filter(leaf, batch.schema, nan="largest").mask(batch)[0].as_py()
        return answer

    def _open(self, source: OpenFile, predicate: Predicate) -> list[int]:
        """Row groups in which TRUE is possible."""
        outline = source.outline()
        asked = settle(predicate, lambda leaf: for_leaves(leaf, outline.leaves, self.wide))
        if asked in (TRUE, FALSE):
            return list(range(outline.n_row_groups)) if asked == TRUE else []
        bound = bind(asked, Schema(outline.leaves, strict=False))
        decision = decide(source, outline, Question(bound, _ASKED, literal=literal_outcome(bound, _ASKED.nan)))
        if decision.damaged:
            warn_of_damage(source.path, decision.damaged)
        return decision.open_groups

    # --- reading ----------------------------------------------------------------------------------

    def _batches(
        self, source: OpenFile, groups: list[int], constants: dict[str, pa.Scalar]
    ) -> Iterator[pa.RecordBatch]:
        file = open_parquet(source)
        types = types_of(source, file)
        names = {name: None if name in constants else own_name(name, types.names) for name in self.wide.names}
        self._check(source, types, names)
        wanted = list(dict.fromkeys(own for own in names.values() if own is not None))
        batches = file.iter_batches(BATCH_ROWS, row_groups=groups, columns=wanted)
        while True:
            try:
                batch = next(batches, None)
            except PYARROW_ERRORS as error:
                raise damaged(source.path, error) from error
            if batch is None:
                return
            arrays = [_column(source, batch, names[field.name], field, constants) for field in self.wide]
            kept = self._keep.filter_batch(pa.RecordBatch.from_arrays(arrays, schema=self.wide))
            if kept.num_rows:
                yield pa.RecordBatch.from_arrays(kept.columns[: len(self.schema)], schema=self.schema)

    def _check(self, source: OpenFile, types: pa.Schema, names: dict[str, str | None]) -> None:
        """Whether the file's columns become the schema's, before any row is read."""
        for field in self.wide:
            own = names[field.name]
            if own is None:
                continue
            if types.names.count(own) > 1:
                raise RequestError(f"{source.path}: two columns are named {own}")
            check_type(source.path, own, types.field(own).type, field.type)


def _column(
    source: OpenFile, batch: pa.RecordBatch, own: str | None, field: pa.Field, constants: dict[str, pa.Scalar]
) -> Any:
    """One column of a batch in the schema's type. Raises DamagedFileError for values with no place there."""
    if field.name in constants:
        array = pa.repeat(constants[field.name], batch.num_rows)
    elif own is None:
        array = pa.nulls(batch.num_rows, field.type)
    else:
        array = converted(source.path, own, batch.column(batch.schema.names.index(own)), field.type)
    check_nulls(source.path, array, field)
    return array


def check_type(named: object, name: str, kind: pa.DataType, wanted: pa.DataType) -> None:
    """Raise RequestError that names file or table, and column, where its type does not become the schema's."""
    try:
        check_fit(kind, wanted)
    except TypeMisfitError as error:
        raise RequestError(f"{named}: column {name}: {error}, which the schema has") from None


def converted(path: object, name: str, array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the schema's type. Raises DamagedFileError that names file and column."""
    try:
        return convert(array, kind)
    except pa.ArrowException as error:
        raise DamagedFileError(path, f"column {name} does not become {kind}: {first_line(error)}") from error


def check_nulls(path: object, array: pa.Array, field: pa.Field) -> None:
    """Raise DamagedFileError for a NULL where the schema says that there is none."""
    if not field.nullable and array.null_count:
        raise DamagedFileError(path, f"column {field.name} holds NULLs, and the schema says it does not")


def _check_same(source: OpenFile, data_file: DataFile) -> None:
    """Raises StorageError if another program changed the file while it was read."""
    with OpenFile(data_file) as now:
        if now.version_token != source.version_token or now.size != source.size:
            raise StorageError(source.path, "was changed by another program while it was read; read it again")
