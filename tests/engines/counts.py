"""How each engine counts the rows of a file that hold a value: a function for each, with literals of the column's type.

path      of one file
column    a column of it, or a struct and its field
question  of `facts.known`: "=", "IN", "range", "contains"
values    have the column's type; of a range, its two ends

Each imports its engine when it is called. It raises CannotAskError, and whatever the engine raises.
"""

from __future__ import annotations

import atexit
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import parquet_bloom
from parquet_bloom.facts.known import CONTAINS, EQUAL, IN
from parquet_bloom.format.literals import Instant, TimeOfDay, as_literal
from parquet_bloom.format.schema import UNIT_NS
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, Predicate

Column = tuple[str, ...]
Count = Callable[[str, Column, str, Sequence[pa.Scalar]], int]


class CannotAskError(Exception):
    """This engine cannot run the question; the text says why, in a few words."""


def sql_condition(question: str, name: str, values: Sequence[str], contains: str) -> str:
    """A question as SQL; the name and the values as SQL spells them, `contains` is the function for lists."""
    if question == CONTAINS:
        return f"{contains}({name}, {values[0]})"
    if question == EQUAL:
        return f"{name} = {values[0]}"
    if question == IN:
        return f"{name} IN ({', '.join(values)})"
    return f"{name} >= {values[0]} AND {name} <= {values[1]}"


def operators(question: str, name: Any, values: Sequence[Any], is_in: Callable[[Any], Any]) -> Any:
    """A question over columns as objects with Python's operators; `is_in` has the engine's own word for IN."""
    if question == EQUAL:
        return name == values[0]
    return is_in(values) if question == IN else (name >= values[0]) & (name <= values[1])


def duckdb(path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
    """A connection a question, as one keeps what it knows of a file."""
    import duckdb

    name = ".".join(f'"{part}"' for part in column)
    with duckdb.connect() as connection:
        connection.sql("SET TimeZone = 'UTC'")

        def one(query: str, *arguments: str) -> Any:
            return connection.execute(query, arguments).fetchall()[0][0]

        kind = one(f"SELECT typeof({name}) FROM read_parquet(?) LIMIT 1", path).removesuffix("[]")
        literals = []
        for value in values:
            stored = value.cast(pa.float32()) if pa.types.is_float16(value.type) else value
            connection.register("asked", pa.table({"v": pa.array([stored], stored.type)}))
            text = value.as_py().hex() if kind == "UUID" else one("SELECT v::VARCHAR FROM asked")
            literals.append("'{}'::{}".format(text.replace("'", "''"), kind))
        where = sql_condition(question, name, literals, "list_contains")
        return int(one(f"SELECT count(*) FROM read_parquet(?) WHERE {where}", path))


def datafusion(path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
    """A session a question, as one keeps footers."""
    import datafusion

    name = datafusion.col(f'"{column[0]}"')
    for part in column[1:]:
        name = name[part]
    literals = [datafusion.lit(value) for value in values]
    if question == CONTAINS:
        where = datafusion.functions.array_has(name, literals[0])
    else:
        where = operators(question, name, literals, lambda some: datafusion.functions.in_list(name, some))
    return int(datafusion.SessionContext().read_parquet(path).filter(where).count())


_SPARK_TYPES = {
    "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)",
    "float": "float", "double": "double", "halffloat": "float", "date32[day]": "date",
}  # fmt: skip


@cache
def _spark_session() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("measure").master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    atexit.register(session.stop)
    return session


def spark(path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
    """One local session for all questions."""
    session = _spark_session()
    from pyspark.sql import functions as sf

    def literal(value: pa.Scalar) -> Any:
        kind = value.type
        if pa.types.is_timestamp(kind):
            return sf.lit(str(value.cast(pa.timestamp(kind.unit)))).cast("timestamp" if kind.tz else "timestamp_ntz")
        stored = value.as_py()
        if isinstance(stored, bytes):
            return sf.lit(bytearray(stored))
        decimal = f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else None
        name = decimal or _SPARK_TYPES.get(str(kind))
        return sf.lit(stored) if name is None else sf.lit(str(stored)).cast(name)

    name, literals = sf.col(".".join(f"`{part}`" for part in column)), [literal(value) for value in values]
    if question == CONTAINS:
        where = sf.array_contains(name, literals[0])
    else:
        where = operators(question, name, literals, lambda some: name.isin(*some))
    return int(session.read.parquet(path).where(where).count())


def clickhouse(path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
    """ClickHouse in this process (chDB): its table function `file`."""
    import chdb

    table = "file('{}', Parquet)".format(path.replace("\\", "\\\\").replace("'", "\\'"))
    name = ".".join(f"`{part}`" for part in column)

    def one(query: str) -> str:
        return str(chdb.query(query, "TSVRaw")).removesuffix("\n")

    kind = one(f"SELECT toTypeName({name}) FROM {table} LIMIT 1")
    for outer in ("Array(", "Nullable("):
        if kind.startswith(outer):
            kind = kind[len(outer) : -1]

    def literal(value: pa.Scalar) -> str:
        if pa.types.is_timestamp(value.type) or pa.types.is_time(value.type):  # a time is one of the first day
            text = str(np.datetime64(value.value, value.type.unit)).replace("T", " ")
            return f"toDateTime64('{text}', {({'ms': 3, 'us': 6, 'ns': 9})[value.type.unit]}, 'UTC')"
        stored = value.as_py()
        if kind == "UUID":
            return f"toUUID('{stored if isinstance(stored, uuid.UUID) else uuid.UUID(bytes=stored)}')"
        text = f"unhex('{stored.hex()}')" if isinstance(stored, bytes) else f"'{value}'"
        return f"CAST({text}, '{kind}')"

    where = sql_condition(question, name, [literal(value) for value in values], "has")
    return int(one(f"SELECT count() FROM {table} WHERE {where}"))


def polars(path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
    """Its native reader, by a lazy scan."""
    import polars as pl

    name = pl.col(column[0])
    for part in column[1:]:
        name = name.struct.field(part)
    series: Any = pl.from_arrow(pa.array(values, values[0].type))
    numbers = series.to_physical() if series.dtype.is_temporal() else series  # Python's times have no nanoseconds
    literals = [pl.lit(value).cast(series.dtype) for value in numbers]
    if question == CONTAINS:
        where = name.list.contains(literals[0])
    else:
        where = operators(question, name, literals, lambda _: name.is_in(series.implode()))
    return int(pl.scan_parquet(path).filter(where).select(pl.len()).collect().item())


def pyarrow(path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
    """Its data sets, which pandas and pyarrow.parquet.read_table read through."""
    if question == CONTAINS:
        raise CannotAskError("its expressions cannot read inside lists")
    name = pc.field(*column)
    where = operators(question, name, values, lambda some: name.isin(pa.array(some, some[0].type)))
    return int(ds.dataset(path).to_table(filter=where).num_rows)


def daft(path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
    """Its native runner."""
    import daft

    name = daft.col(column[0])
    for part in column[1:]:
        name = name.get(part)
    kind = daft.DataType.from_arrow_type(values[0].type)
    temporal = pa.types.is_timestamp(values[0].type) or pa.types.is_time(values[0].type)  # as in Polars
    literals = [daft.lit(value.value if temporal else value.as_py()).cast(kind) for value in values]
    if question == CONTAINS:
        where = name.list_contains(literals[0])
    else:
        where = operators(question, name, literals, name.is_in)
    return int(daft.read_parquet(path).where(where).count_rows())


def fastparquet(path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
    """ParquetFile.to_pandas with filters over row groups and rows, as its users write them."""
    import fastparquet

    if question == CONTAINS or len(column) > 1:
        raise CannotAskError("its filters name whole columns")
    decimal = pa.types.is_decimal(values[0].type)  # which it reads as floats
    name, asked = column[0], [float(value.as_py()) if decimal else value.as_py() for value in values]
    filters: list[tuple[str, str, Any]]
    if question == EQUAL:
        filters = [(name, "==", asked[0])]
    elif question == IN:
        filters = [(name, "in", asked)]
    else:
        filters = [(name, ">=", asked[0]), (name, "<=", asked[1])]
    return len(fastparquet.ParquetFile(path).to_pandas(columns=[name], filters=[filters], row_filter=True))


def this_package(path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
    """`read_table`, which reads the row groups that a predicate leaves."""

    def literal(value: pa.Scalar) -> Any:
        kind = value.type
        if isinstance(kind, pa.UuidType):
            return uuid.UUID(bytes=value.value.as_py())
        if pa.types.is_timestamp(kind):
            return Instant(value.value * UNIT_NS[kind.unit], kind.tz is not None)
        if pa.types.is_time(kind):
            return TimeOfDay(value.value * UNIT_NS[kind.unit])
        return float(value.as_py()) if pa.types.is_float16(kind) else as_literal(value.as_py())

    literals = tuple(map(literal, values))
    where: Predicate
    if question == CONTAINS:
        where = Contains(column, literals[0])
    elif question == EQUAL:
        where = Compare(column, "=", literals[0])
    elif question == IN:
        where = IsIn(column, literals)
    else:
        where = And((Compare(column, ">=", literals[0]), Compare(column, "<=", literals[1])))
    return int(parquet_bloom.read_table(path, where).num_rows)


COUNTS: dict[str, Count] = {
    "duckdb": duckdb,
    "datafusion": datafusion,
    "spark": spark,
    "clickhouse": clickhouse,
    "polars": polars,
    "pyarrow": pyarrow,
    "daft": daft,
    "fastparquet": fastparquet,
    "parquet_bloom": this_package,
}
