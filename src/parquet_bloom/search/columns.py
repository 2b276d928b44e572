"""Columns as callers name them: top-level ones, and fields of structs by their paths.

    ["id", "place.x", "a.b"]     id, the field x of place as "x", and a.b if a column has this very name

While rows are filtered each column has the name that it was asked for by; `finished` gives the last part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from parquet_bloom.formats.metadata.schema import unknown_column


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
    """What a scanner of pyarrow's takes, so that each column, also a field of a struct, keeps the name given for it."""
    if names is None:
        return None
    paths = {name: path_of(name, schema) for name in names}
    if all(len(path) == 1 for path in paths.values()):
        return list(paths)
    return {name: pc.field(*path) for name, path in paths.items()}


def chosen(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Columns of a batch of top-level columns, and fields of its structs, under these names, which differ."""
    columns = [_column(batch, name) for name in names]
    fields = [
        batch.schema.field(name) if name in batch.schema.names else pa.field(name, column.type)
        for name, column in zip(names, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def finished(rows: Any, names: Sequence[str] | None, schema: pa.Schema) -> Any:
    """A batch or table with what was asked for, in its order, as the schema names and types it.

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
