"""One SQL text, asked of check and of engines: where an engine finds a row, check must not skip.

Literals of every kind against columns of every type, most of them of another type than the column:
engines cast, round and compare in ways of their own, and check may only skip where all agree. The
engines read the source, without any filter.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.repeats import first_then_more

from engines import made
from engines.asking import duckdb
from parquet_bloom import FooterCache, add_filters, check
from parquet_bloom.errors import RequestError

KEY = "123e4567-e89b-12d3-a456-426614174000"
UTC = dt.UTC
NOON = dt.datetime(2020, 1, 1, 12, 0, 0, 500_000)

# Values that literals below equal, exactly or nearly, beside those at the edges of the types.
NEAR: dict[str, list[Any]] = {
    "int8": [5, -5, 100], "int16": [5, 300], "int32": [5, 255, 2**24 + 1, 20_000],
    "int64": [5, 255, 2**53, 2**53 + 1, 10**18, 100],
    "uint8": [5, 200], "uint16": [5], "uint32": [5, 2**31], "uint64": [5, 2**63, 2**53 + 1],
    "float16": [0.5, 5, 65504], "float32": [0.5, 5.0, 16_777_216.0, 1e10], "float64": [0.5, 5.0, 2.0**53, 0.3],
    "string": ["5", "5.0", "abc", "ABC", "a ", "2020-01-01", "true", "1.50", r"\xAA"], "large_string": ["5", "abc"],
    "binary": [b"abc", b"\xaa", rb"\xAA", b"5"], "fixed_binary_3": [b"abc"], "uuid": [uuid.UUID(KEY).bytes],
    "decimal_9": [Decimal("1.50"), Decimal("5.00"), Decimal("0.10")],
    "decimal_38": [Decimal(5), Decimal(2**53 + 1), Decimal(10) ** 20],
    "date": [dt.date(2020, 1, 1)],
    "timestamp_ms": [dt.datetime(2020, 1, 1), NOON], "timestamp_us": [dt.datetime(2020, 1, 1), NOON],
    "timestamp_ns": [dt.datetime(2020, 1, 1)], "timestamp_ns_zone": [dt.datetime(2020, 1, 1, tzinfo=UTC)],
    "timestamp_us_utc": [dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2019, 12, 31, 23, tzinfo=UTC)],
    "time_ms": [dt.time(12)], "time_us": [dt.time(12), NOON.time()], "time_ns": [dt.time(12)],
}  # fmt: skip
NUMBERS = """
    5 +5 -5 5. 5.0 5e0 0 0.0 -0.0 0e0 1 1.0 -1 0xff 127 -128 255 300 -129 100.00 1e2
    .5 0.5 0.1 0.10 0.1e0 1.5 1.50 1.500 0.3 0.30000000000000004 1e-45 5e-324 1e300 1e999 -1e999
    16777216 16777217 16777217e0 9007199254740992e0 9007199254740993 9007199254740993.0 9007199254740993e0
    1e10 1e18 1e20 100000000000000000000 4294967295 2147483648 9223372036854775808 -9223372036854775808
    65504.0 3.4028234663852886e38 18446744073709551615 18446744073709551616 1.0000000000000001 TRUE FALSE NULL
"""
LITERALS = [
    *NUMBERS.split(),
    "'5'", "'5.0'", "'0'", "'0.1'", "'1.50'", "'abc'", "'ABC'", "'a '", "''", "'true'", "'NULL'", r"'\xAA'",
    "x'616263'", "x'aa'", "x''", "DECIMAL '1.50'",
    "DATE '2020-01-01'", "DATE '1969-12-31'", "DATE '1970-01-01'", "'2020-01-01'",
    "TIMESTAMP '2020-01-01'", "TIMESTAMP '2020-01-01 00:00:00'", "TIMESTAMP '2020-01-01 12:00:00.5'",
    "TIMESTAMP '2020-01-01 00:00:00+00:00'", "TIMESTAMP '2020-01-01 01:00:00+01:00'",
    "TIMESTAMPTZ '2020-01-01 00:00:00+00:00'", "'2020-01-01 00:00:00'", "'2020-01-01 12:00:00.5'",
    "'2020-01-01 00:00'", "'2020-01-01T00:00'", "'2020-01-01T12:00:00.5'", "'2020-01-01 12:00:00.500000001'",
    "'2020-01-01 00:00:00+00:00'", "'2020-01-01T00:00Z'", "'2020-01-01 01:00+01:00'", "'2020-01-01Z'",
    "TIMESTAMP '1969-12-31 23:59:59.999999'", "TIMESTAMP '1969-12-31'",
    "TIME '12:00'", "TIME '12:00:00.5'", "TIME '00:00:00'", "'12:00:00'", "'12:00'", "'12:00:00.5'",
    f"UUID '{KEY}'", f"'{KEY}'", f"'{KEY.upper()}'", f"'{{{KEY}}}'", f"'{KEY.replace('-', '')}'",
]  # fmt: skip

COLUMNS = made.boundaries()[0].column_names
_FOOTERS = FooterCache()
Ask = Callable[[str, str], set[int]]

# Where check says "no value of this type equals it", as SQL does, and an engine rounds the literal first.
DOUBLES = ("1.0000000000000001", "1e-45", "5e-324", "18446744073709551616")
ROUNDED: dict[str, list[tuple[str | None, str]]] = {
    "datafusion": [(None, literal) for literal in DOUBLES],  # takes them as doubles, or as DECIMAL(38, 0)
    "polars": [],
}
for rounds in ROUNDED.values():  # both cut it to the milliseconds of the column
    rounds.append(("timestamp_ms", "TIMESTAMP '1969-12-31 23:59:59.999999'"))


ZONED = ("timestamp_us_utc", "timestamp_ns_zone")  # Polars' SQL has no literal with a zone


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two row groups, `row_group` 0 with the values above, 1 with those at the edges; and with filters."""
    folder, edges = tmp_path_factory.mktemp("files"), made.boundaries()[0]
    rows = max(map(len, NEAR.values()))
    near = {}
    for field in edges.schema:
        storage = pa.binary(16) if field.type == pa.uuid() else field.type
        values = pa.array(NEAR.get(field.name, []), storage)
        padded = pa.concat_arrays([values, pa.nulls(rows - len(values), storage)])
        near[field.name] = pa.ExtensionArray.from_storage(field.type, padded) if storage != field.type else padded
    tables = [
        table.append_column("row_group", pa.array([group] * len(table)))
        for group, table in enumerate([pa.table(near, schema=edges.schema), edges])
    ]
    source = made.write(folder / "source.parquet", tables)
    add_filters(source, folder / "ours.parquet", exclude=["row_group"], sync=False, columns=["*"])
    return source, folder / "ours.parquet"


def _skipped(path: Path, text: str) -> list[bool]:
    """Which row groups check skips; a literal that it refuses for the column skips none."""
    try:
        return [verdict.skipped for verdict in check(path, text, cache=_FOOTERS)]
    except RequestError:
        return []


@pytest.fixture(scope="module")
def skips(files: tuple[Path, Path]) -> Callable[[str], dict[str, list[bool]]]:
    """Column -> literal -> check's verdicts, of those that skip something."""

    @cache
    def of(column: str) -> dict[str, list[bool]]:
        asked = {s: _skipped(files[1], f'"{column}" = {s}') for s in LITERALS}
        return {s: verdicts for s, verdicts in asked.items() if any(verdicts)}

    return of


@pytest.fixture(scope="module", params=["duckdb", "datafusion", "polars"])
def engine(request: pytest.FixtureRequest, files: tuple[Path, Path]) -> Iterator[tuple[str, Ask]]:
    """The engine's name, and how to ask it in which row groups it finds `column = literal`."""
    query = 'SELECT DISTINCT row_group FROM {} WHERE "{}" = {}'
    if request.param == "duckdb":
        with duckdb() as asked:
            asked.connection.execute("SET TimeZone = 'UTC'")
            source = f"'{files[0]}'"
            yield "duckdb", lambda c, s: {n for (n,) in asked.connection.execute(query.format(source, c, s)).fetchall()}
    elif request.param == "datafusion":
        context = pytest.importorskip("datafusion").SessionContext()
        context.register_parquet("source", str(files[0]))
        yield "datafusion", lambda c, s: _numbers(context.sql(query.format("source", c, s)).to_arrow_table())
    else:
        frame = pytest.importorskip("polars").read_parquet(files[0])
        yield "polars", lambda c, s: _numbers(frame.sql(query.format("self", c, s)).to_arrow())


def _numbers(table: pa.Table) -> set[int]:
    return set(table["row_group"].to_pylist())


@pytest.mark.parametrize("first", first_then_more(range(3), 1))
def test_no_row_that_an_engine_finds_is_skipped(
    skips: Callable[[str], dict[str, list[bool]]], engine: tuple[str, Ask], first: int
) -> None:
    name, ask = engine
    for column in COLUMNS[first::3]:
        assert skips(column), "check skips nothing, so nothing is compared"
        lost, answered = [], 0
        for literal, skipped in skips(column).items():
            if {(column, literal), (None, literal)} & set(ROUNDED.get(name, ())):
                continue
            try:
                found = ask(column, literal)
            except KeyboardInterrupt:
                raise
            except BaseException:  # no such comparison; DataFusion's and Polars' panics are no Exception
                continue
            answered += 1
            lost += [(literal, group) for group in found if skipped[group]]
        assert lost == [], column
        assert answered or (name == "polars" and column in ZONED), f"the engine understood no comparison of {column}"
