"""ClickHouse in this process (chDB), by SQL with typed literals."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import chdb
import numpy as np
import pyarrow as pa

from parquet_bloom.trials.adapters.adapter import Column, QueryStats, sql_condition

_DIGITS = {"ms": 3, "us": 6, "ns": 9}


class ClickHouse:
    """Its table function `file`."""

    def count(self, path: str, column: Column, question: str, values: Sequence[pa.Scalar]) -> int:
        """As Adapter has it."""
        name = f"`{'.'.join(column)}`" if len(column) == 1 else ".".join(f"`{part}`" for part in column)
        where = sql_condition(question, name, [_literal(path, column, value) for value in values], "has")
        return int(_text(f"SELECT count() FROM {_table(path)} WHERE {where}"))

    def find(self, path: str, where: str) -> pa.Table:
        """As Adapter has it."""
        return pa.ipc.open_file(chdb.query(f"SELECT * FROM {_table(path)} WHERE {where}", "Arrow").bytes()).read_all()

    def tell(self, path: str, where: str) -> QueryStats:
        """ClickHouse counts pages and row groups in system.query_log, which chDB does not keep."""
        return QueryStats()


def _table(path: str) -> str:
    return "file('{}', Parquet)".format(path.replace("\\", "\\\\").replace("'", "\\'"))


def _text(query: str) -> str:
    return str(chdb.query(query, "TSVRaw")).removesuffix("\n")


def _literal(path: str, column: Column, value: pa.Scalar) -> str:
    """A value with the type that ClickHouse gives the column, but for NULL."""
    kind = _text(f"SELECT toTypeName({'.'.join(f'`{part}`' for part in column)}) FROM {_table(path)} LIMIT 1")
    for outer in ("Array(", "Nullable("):
        if kind.startswith(outer):
            kind = kind[len(outer) : -1]
    if pa.types.is_timestamp(value.type) or pa.types.is_time(value.type):  # a time is one of the first day
        text = str(np.datetime64(value.value, value.type.unit)).replace("T", " ")
        return f"toDateTime64('{text}', {_DIGITS[value.type.unit]}, 'UTC')"
    stored = value.as_py()
    if kind == "UUID":
        return f"toUUID('{stored if isinstance(stored, uuid.UUID) else uuid.UUID(bytes=stored)}')"
    return f"CAST(unhex('{stored.hex()}'), '{kind}')" if isinstance(stored, bytes) else f"CAST('{value}', '{kind}')"
