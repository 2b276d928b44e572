"""How a stored value is written: as our own SQL literal, and as DuckDB's.

Both are worked out from the Arrow value, so that no engine's reading of the file is in between.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

DUCKDB_TYPES = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT",
    "uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT",
    "halffloat": "FLOAT", "float": "FLOAT", "double": "DOUBLE",
    "string": "VARCHAR", "large_string": "VARCHAR", "binary": "BLOB", "date32[day]": "DATE",
    "time32[ms]": "TIME", "time64[us]": "TIME", "time64[ns]": "TIME_NS",
    "timestamp[ms]": "TIMESTAMP", "timestamp[us]": "TIMESTAMP", "timestamp[ns]": "TIMESTAMP_NS",
    "timestamp[us, tz=UTC]": "TIMESTAMPTZ", "timestamp[ns, tz=Asia/Tokyo]": "TIMESTAMPTZ_NS",
    "duration[us]": "BIGINT",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spelled:
    """One value; `sql` for our check, `duckdb` for DuckDB, NaN and NULL have none."""

    sql: str
    duckdb: str


def storage(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array without nulls, dictionaries and extension types."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    return (array.storage if isinstance(array, pa.ExtensionArray) else array).drop_null()


def spelled_rows(array: pa.Array | pa.ChunkedArray) -> list[Spelled | None]:
    """Each row of storage(array), NaN as None."""
    plain, kind = storage(array), array.type
    if kind == pa.uuid():
        return [_uuid(value) for value in plain.to_pylist()]
    kind = plain.type
    if pa.types.is_temporal(kind):
        plain = plain.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return [_one(kind, value) if value == value else None for value in plain.to_pylist()]


def spelled(array: pa.Array | pa.ChunkedArray) -> list[Spelled]:
    """Each distinct value that is neither NULL nor NaN, in the order of the rows."""
    return [value for value in dict.fromkeys(spelled_rows(array)) if value is not None]


def counts(array: pa.Array | pa.ChunkedArray) -> dict[Spelled, tuple[pa.Scalar, int]]:
    """Each distinct value, as an Arrow scalar, and how many rows are equal to it: 0.0 is -0.0 too."""
    plain, rows = storage(array), spelled_rows(array)
    by_value: dict[Spelled, list[int]] = {}
    for at, value in enumerate(rows):
        if value is not None:
            by_value.setdefault(value, []).append(at)
    zeros = sum(len(places) for value, places in by_value.items() if value.sql in ("0.0e0", "-0.0e0"))
    return {
        value: (plain[places[0]], zeros if value.sql in ("0.0e0", "-0.0e0") else len(places))
        for value, places in by_value.items()
    }


def _one(kind: pa.DataType, value: Any) -> Spelled:
    duckdb_type = DUCKDB_TYPES.get(str(kind), "")
    if pa.types.is_floating(kind):
        text = repr(float(value))
        # With an exponent it is a double to our parser, and asks for these bits and no neighbours.
        ours = f"DOUBLE '{text}'" if "inf" in text else text if "e" in text else text + "e0"
        return Spelled(ours, f"'{text}'::{duckdb_type}")
    if pa.types.is_decimal(kind):
        return Spelled(f"{value:f}", f"'{value:f}'::DECIMAL({kind.precision}, {kind.scale})")
    if isinstance(value, bytes):
        return Spelled(f"x'{value.hex()}'", f"unhex('{value.hex()}')")
    if isinstance(value, str):
        quoted = "'" + value.replace("'", "''") + "'"
        return Spelled(quoted, f"{quoted}::VARCHAR")
    if pa.types.is_date(kind):
        text = str(np.datetime64(value, "D"))
        return Spelled(f"DATE '{text}'", f"'{text}'::DATE")
    if pa.types.is_time(kind):
        text = str(np.datetime64(value, kind.unit)).partition("T")[2]
        return Spelled(f"TIME '{text}'", f"'{text}'::{duckdb_type}")
    if pa.types.is_timestamp(kind):
        text = str(np.datetime64(value, kind.unit)).replace("T", " ") + ("+00:00" if kind.tz else "")
        return Spelled(f"TIMESTAMP '{text}'", f"'{text}'::{duckdb_type}")
    return Spelled(str(value), f"'{value}'::{duckdb_type}")


def _uuid(value: bytes) -> Spelled:
    text = str(uuid.UUID(bytes=value))
    return Spelled(f"UUID '{text}'", f"'{text}'::UUID")


def from_expected(text: str, physical: str, logical: str | None) -> str | None:
    """A value of a fixture's expected.json as our SQL literal; None for NaN, which has none."""
    kind = (logical or "").partition("(")[0]
    if kind in ("Date", "Timestamp", "Time"):
        shown = text.replace("T", " ").replace("Z", "+00:00")
        return f"{kind.upper()} '{shown}'"
    if kind == "UUID":
        return f"UUID '{text}'"
    if kind == "Float16" or physical in ("FLOAT", "DOUBLE"):
        return None if text == "nan" else text if "e" in text else text + "e0"
    if kind in ("String", "JSON", "Enum"):
        return "'" + text.replace("'", "''") + "'"
    if kind == "Decimal" or physical in ("INT32", "INT64"):
        return text
    if physical == "BOOLEAN":
        return text.upper()
    return f"x'{text}'" if physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY") else f"'{text}'"
