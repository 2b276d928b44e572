"""The rows of one file for Spark: asked, read, turned into the schema's types, filtered.

    folder's name -> footer -> bounds and filters -> row groups that are left -> batches of the schema

A file is opened once. What it is asked and what rows are filtered by are one predicate, seen from
both sides: from the file's values (pushed.for_file) and from Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import DamagedFileError, RequestError, StorageError, first_line
from parquet_bloom.predicates.bind import bind
from parquet_bloom.predicates.names import Schema
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.evidence import Question, decide, literal_outcome
from parquet_bloom.search.options import Options
from parquet_bloom.search.search import warn_of_damage
from parquet_bloom.spark.data_source.arrow_types import TypeMisfitError, check_fit, convert
from parquet_bloom.spark.data_source.hive import scalar
from parquet_bloom.spark.data_source.inference import PYARROW_ERRORS, damaged, open_parquet, types_of
from parquet_bloom.spark.data_source.pushed import FALSE, TRUE, Answer, LeafPart, for_leaves, own_name, settle
from parquet_bloom.spark.data_source.units import part_of
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.source import Source

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
        with Source(data_file) as source:
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

    def _open(self, source: Source, predicate: Predicate) -> list[int]:
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

    def _batches(self, source: Source, groups: list[int], constants: dict[str, pa.Scalar]) -> Iterator[pa.RecordBatch]:
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

    def _check(self, source: Source, types: pa.Schema, names: dict[str, str | None]) -> None:
        """Whether the file's columns become the schema's, before any row is read."""
        for field in self.wide:
            own = names[field.name]
            if own is None:
                continue
            if types.names.count(own) > 1:
                raise RequestError(f"{source.path}: two columns are named {own}")
            check_type(source.path, own, types.field(own).type, field.type)


def _column(
    source: Source, batch: pa.RecordBatch, own: str | None, field: pa.Field, constants: dict[str, pa.Scalar]
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


def _check_same(source: Source, data_file: DataFile) -> None:
    """Raises StorageError if another program changed the file while it was read."""
    with Source(data_file) as now:
        if now.version_token != source.version_token or now.size != source.size:
            raise StorageError(source.path, "was changed by another program while it was read; read it again")
