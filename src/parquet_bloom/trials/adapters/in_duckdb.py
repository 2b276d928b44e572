"""DuckDB, by SQL with typed literals."""

from __future__ import annotations

import re
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from parquet_bloom.trials.adapters.adapter import Column, QueryStats, sql_condition


class DuckDB:
    """A connection a question, as one keeps what it knows of a file."""

    def count(self, path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
        """As Adapter has it."""
        with duckdb.connect() as connection:
            connection.sql("SET TimeZone = 'UTC'")
            literals = [_literal(connection, path, column, value) for value in values]
            name = ".".join(f'"{part}"' for part in column)
            where = sql_condition(question, name, literals, "list_contains")
            ((n,),) = connection.execute(f"SELECT count(*) FROM read_parquet(?) WHERE {where}", [path]).fetchall()
            return int(n)

    def find(self, path: str, where: str) -> pa.Table:
        """As Adapter has it."""
        with duckdb.connect() as connection:
            return connection.execute(f"SELECT * FROM read_parquet(?) WHERE {where}", [path]).to_arrow_table()

    def tell(self, path: str, where: str) -> QueryStats:
        """The line "Row Groups Scanned: 1 / 5" of EXPLAIN ANALYZE, which came with DuckDB 2.0."""
        with duckdb.connect() as connection:
            plan = connection.execute(f"EXPLAIN ANALYZE SELECT * FROM read_parquet(?) WHERE {where}", [path]).fetchall()
        found = re.search(r"Row Groups Scanned:\s*([\d,]+) / ([\d,]+)", plan[0][1])
        if found is None:
            return QueryStats()
        read, of = (int(number.replace(",", "")) for number in found.groups())
        return QueryStats(read, of)


def _literal(connection: duckdb.DuckDBPyConnection, path: str, column: Column, value: pa.Scalar) -> str:
    """A value as DuckDB writes it, with the type that the column has in DuckDB."""
    name = ".".join(f'"{part}"' for part in column)
    ((typed,),) = connection.execute(f"SELECT typeof({name}) FROM read_parquet(?) LIMIT 1", [path]).fetchall()
    kind = typed.removesuffix("[]")
    if pa.types.is_float16(value.type):
        value = value.cast(pa.float32())
    values = pa.table({"v": pa.array([value], value.type)})
    if kind == "UUID":
        text = value.as_py().hex()
    else:
        connection.register("asked", values)
        ((text,),) = connection.execute("SELECT v::VARCHAR FROM asked").fetchall()
    return "'{}'::{}".format(text.replace("'", "''"), kind)
