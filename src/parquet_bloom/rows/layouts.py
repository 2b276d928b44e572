"""One Arrow type a column of a data set, where its files keep texts and bytes in several of Arrow's layouts.

    first file  string_view    the data set has string: no kernel of pyarrow compares or filters views
    next file   large_string   cast while it is read
    next file   string_view    read as a dictionary of strings, then cast

The layout of a file's columns is in the schema that Arrow's writers keep among its key-values. pyarrow reads a file as
that says, and holds its min and max, in that type, against a filter before anything is cast: with views it cannot
(`Function 'equal' has no kernel matching input types (string, string_view)`). A column that is read as a dictionary has
min and max of its plain type.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from parquet_bloom.format.arrow_types import fields_of, is_view, with_fields
from parquet_bloom.format.footer import derived
from parquet_bloom.format.outline import Outline
from parquet_bloom.format.schema import BYTE_ARRAY, FLBA, INT32, INT96, Leaf, leaves_of, unknown_column
from parquet_bloom.options import Limits, limits
from parquet_bloom.source.columns import Pairs, partition_value
from parquet_bloom.storage.remote import Location, arrow_of

# --- fragments ------------------------------------------------------------------------------------
#
# Row groups of a file as a fragment of a pyarrow Dataset, with the values and types of its folder's name.

FORMAT = ds.ParquetFileFormat()
_LOCAL = LocalFileSystem()


def file_format(**read: Any) -> ds.ParquetFileFormat:
    """FORMAT with the limits of this process, where these allow larger footers than pyarrow's.

    read  options of ds.ParquetReadOptions
    """
    allowed, usual = limits(), Limits()
    if read:
        return ds.ParquetFileFormat(default_fragment_scan_options=file_format().default_fragment_scan_options, **read)
    if allowed.max_list_elements <= usual.max_list_elements and allowed.max_string_bytes <= usual.max_string_bytes:
        return FORMAT
    return ds.ParquetFileFormat(default_fragment_scan_options=_scan_options())


def chunk_by_chunk() -> ds.ParquetFragmentScanOptions:
    """For a file that is read ahead already: pyarrow reads a column chunk when it decodes it, and keeps no others."""
    return _scan_options(pre_buffer=False)


def _scan_options(**more: Any) -> ds.ParquetFragmentScanOptions:
    allowed, usual = limits(), Limits()
    return ds.ParquetFragmentScanOptions(
        thrift_string_size_limit=max(allowed.max_string_bytes, usual.max_string_bytes),
        thrift_container_size_limit=max(allowed.max_list_elements, usual.max_list_elements),
        **more,
    )


def fragment(
    path: Any,
    at: Location,
    partition: pc.Expression | None,
    groups: Sequence[int],
    form: ds.ParquetFileFormat | None = None,
    size: int | None = None,
) -> Any:
    """The row groups in their order; pyarrow takes set(groups), and of {2, 9} it made 9, 2.

    path  of the file, or a file of pyarrow's that is open
    at    where it lies: files of one call may be on several file systems, as a table's rows in memory are
    form  how the file is read; None: as file_format has it
    size  of the file, which spares another storage a request
    """
    filesystem = (arrow_of(at.filesystem) or _LOCAL) if isinstance(path, str) else None
    known = size if filesystem is not None and not at.is_local else None
    made = (form or file_format()).make_fragment
    return made(path, filesystem, partition, row_groups=_ranked(groups), file_size=known)


def with_groups(fragment: Any, groups: Sequence[int]) -> Any:
    """Some of a fragment's row groups, in their order."""
    return fragment.subset(row_group_ids=_ranked(groups))


def _ranked(groups: Sequence[int]) -> list[_Ranked]:
    ranked = []
    for rank, group in enumerate(groups):
        ranked.append(_Ranked(group))
        ranked[-1].rank = rank
    return ranked


class _Ranked(int):
    """A row group that has its rank for its hash, so that a set of them is in order."""

    rank: int

    def __hash__(self) -> int:
        return self.rank


def partition_expression(keys: Sequence[Leaf], pairs: Pairs) -> pc.Expression | None:
    """The expression that the folder's name makes true for every row of a file."""
    expression = None
    for key in keys:
        value = partition_value(key, pairs)
        name = pc.field(key.path[0])
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
        scalar = pa.scalar(text, partition_type(key).value_type)
        one = name.is_null() if value is None else name == scalar
        expression = one if expression is None else expression & one
    return expression


def partition_type(key: Leaf) -> pa.DictionaryType:
    """The type that pyarrow gives to a column of folders' names: a dictionary."""
    return pa.dictionary(pa.int32(), pa.int32() if key.physical == INT32 else pa.string())


def with_partitions(schema: pa.Schema, keys: Sequence[Leaf]) -> pa.Schema:
    """A file's schema with the columns of its folder's name: in the place of the file's of that name, or behind.

    Polars and DuckDB write a key into the files too. A folder's value goes first, as in their readers and in Spark's.
    """
    for key in keys:
        field = pa.field(key.path[0], partition_type(key))
        at = schema.names.index(field.name) if field.name in schema.names else None
        schema = schema.append(field) if at is None else schema.set(at, field)
    return schema


# --- layouts --------------------------------------------------------------------------------------

SCHEMA_KEY = "ARROW:schema"  # base64 of an IPC message: the schema that an Arrow writer was given
_T = pa.types


def filterable(kind: pa.DataType, dictionaries: bool = True) -> pa.DataType:
    """A type with string in the place of string_view, binary of binary_view, list of list_view, at any depth.

    dictionaries  False: with the values' type in the place of a dictionary's too
    """
    if _T.is_string_view(kind):
        return pa.string()
    if _T.is_binary_view(kind):
        return pa.binary()
    if _T.is_dictionary(kind):
        values = filterable(kind.value_type)
        return pa.dictionary(kind.index_type, values, kind.ordered) if dictionaries else values
    inner = [field.with_type(filterable(field.type, dictionaries)) for field in fields_of(kind)]
    return with_fields(kind, inner) if inner else kind


def dataset_schema(schema: pa.Schema, outlines: Iterable[Outline]) -> pa.Schema:
    """The schema of a data set whose first file has this one: each type is one that pyarrow can filter and cast to.

    outlines  of the data set's files. A dictionary is given up for its values where a file has values of a fixed
              length in that column, as pyarrow makes no dictionary of these
    """
    dictionaries = _with_dictionaries(schema)
    fixed: set[str] = set()
    if dictionaries:
        fixed = {leaf.path[0] for one in outlines for leaf in one.leaves if leaf.physical == FLBA}
    fields = []
    for field in schema:
        kind = filterable(field.type, field.name not in dictionaries & fixed)
        fields.append(field if kind == field.type else field.with_type(kind))
    return pa.schema(fields, schema.metadata)


def _with_dictionaries(schema: pa.Schema) -> set[str]:
    """The columns with a dictionary at some depth."""
    return {field.name for field in schema if any(map(_T.is_dictionary, leaf_types(field.type)))}


def format_for(outline: Outline, schema: pa.Schema, *, of_table: bool, filtered: bool) -> ds.ParquetFileFormat:
    """How pyarrow reads a file into rows of this schema.

    of_table  times of 96 bits come in the table's unit, as nanoseconds end in 2262
    filtered  whether pyarrow's scanner gets filters; its min and max are then of plain types
    """
    read: dict[str, Any] = {}
    if of_table and any(leaf.physical == INT96 for leaf in outline.leaves):
        units = {field.type.unit for field in schema if _T.is_timestamp(field.type)}
        read["coerce_int96_timestamp_unit"] = units.pop() if len(units) == 1 else "us"
    if views := viewed_leaves(outline):
        # pyarrow makes no dictionaries from views, and has no use for min and max of lists.
        names = _with_dictionaries(schema)
        needed = [leaf for leaf in views if leaf.path[0] in names or (filtered and not leaf.repeated)]
        if needed:
            read["dictionary_columns"] = [".".join(leaf.path) for leaf in needed]
    return file_format(**read)


@derived
def own_leaves(outline: Outline) -> tuple[Leaf, ...]:
    """The leaves of a file under its own names; of a table's file the outline has the table's names."""
    return leaves_of(outline.metadata.schema)


def stored_schema(outline: Outline) -> pa.Schema | None:
    """The Arrow schema that a file's writer put into it; None without one, or where it cannot be decoded."""
    text = _schema_text(outline)
    return _decoded(text) if text else None


def _schema_text(outline: Outline) -> str | None:
    pairs = outline.metadata.key_value_metadata or ()
    text: str | None = next((pair.value for pair in pairs if pair.key == SCHEMA_KEY), None)
    return text


@lru_cache(64)
def _decoded(text: str) -> pa.Schema | None:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (pa.ArrowException, OSError, binascii.Error, ValueError):
        return None  # pyarrow says so when it reads the file


def viewed_leaves(outline: Outline) -> tuple[Leaf, ...]:
    """The columns of a file, under its own names, that pyarrow reads as views by itself."""
    text = _schema_text(outline)
    at, n_leaves = _views(text) if text else ((), 0)
    if not at:
        return ()
    own = own_leaves(outline)
    if len(own) != n_leaves:  # which of them are views, pyarrow alone knows
        return tuple(leaf for leaf in own if leaf.physical == BYTE_ARRAY)
    return tuple(own[i] for i in at)


@lru_cache(64)
def _views(text: str) -> tuple[tuple[int, ...], int]:
    """The leaves of an Arrow schema that are views, counted in its order, and the number of all leaves."""
    leaves = [leaf for field in _decoded(text) or () for leaf in leaf_types(field.type)]
    return tuple(i for i, one in enumerate(leaves) if is_view(one)), len(leaves)


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of the columns that Parquet makes of an Arrow type, in order."""
    if isinstance(kind, pa.BaseExtensionType):
        inner = kind.storage_type
        for leaf in leaf_types(inner):  # an extension of views stays what it is
            yield kind if leaf == inner else leaf
    elif (inside := fields_of(kind)) or _T.is_struct(kind):
        for field in inside:
            yield from leaf_types(field.type)
    else:
        yield kind


# --- columns --------------------------------------------------------------------------------------
#
# Columns as callers name them: top-level ones, and fields of structs by their paths.
#
#    ["id", "place.x", "a.b"]     id, the field x of place as "x", and a.b if a column has this very name
#
# While rows are filtered each column has the name that it was asked for by; `finished` gives the last part.


def path_of(name: str, schema: pa.Schema) -> list[str]:
    """The top-level column, and the fields below it, that a name means."""
    return [name] if name in schema.names else name.split(".")


def check_fields(names: Iterable[str], schema: pa.Schema) -> None:
    """Raise UnknownColumnError for the first name of a field that its struct does not have."""
    for name in names:
        top, *below = path_of(name, schema)
        if not below or top not in schema.names:
            continue
        field, path = schema.field(top), [top]
        for step in below:
            fields = list(field.type) if pa.types.is_struct(field.type) else []
            field = next((one for one in fields if one.name == step), None)
            if field is None:
                inside = [".".join([*path, one.name]) for one in fields]
                raise unknown_column(name, inside, none=f"no fields in {'.'.join(path)}")
            path.append(step)


def for_scanner(names: Iterable[str] | None, schema: pa.Schema) -> Any:
    """The columns for a scanner of pyarrow's: each, also a field of a struct, keeps its name."""
    if names is None:
        return None
    paths = {name: path_of(name, schema) for name in names}
    if all(len(path) == 1 for path in paths.values()):
        return list(paths)
    return {name: pc.field(*path) for name, path in paths.items()}


def select_columns(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Columns of a batch of top-level columns, and fields of its structs, under these names, which differ."""
    columns = [_column(batch, name) for name in names]
    fields = [
        batch.schema.field(name) if name in batch.schema.names else pa.field(name, column.type)
        for name, column in zip(names, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def projected(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """The schema of what `select_columns` gives, of a batch with this one."""
    fields = []
    for name in names:
        top, *below = path_of(name, schema)
        kind = schema.field(top).type
        for step in below:
            kind = kind.field(step).type
        fields.append(pa.field(name, kind) if below else schema.field(name))
    return pa.schema(fields)


def finished(rows: Any, names: Sequence[str] | None, schema: pa.Schema) -> Any:
    """A batch or table with the wanted columns, in their order, as the schema names and types them.

    rows    with what the names mean, and perhaps more; names None: they are right as they are
    schema  of what is given, as pyarrow's scanner has it for these names
    """
    if names is None:
        return rows
    if list(names) == schema.names:
        return rows.select(list(names))
    return type(rows).from_arrays([_column(rows, name) for name in names], schema=schema)


def _column(rows: Any, name: str) -> Any:
    top, *below = path_of(name, rows.schema)
    return pc.struct_field(rows.column(top), below) if below else rows.column(top)
