"""A table in the order of its rows, in four row groups, so that bounds decide as well as filters.

Every column but `ok` grows with the row; rows 50 to 74 have nulls, and each name says what it holds.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa

ROWS, ROW_GROUPS = 25, 4
_DAY = dt.datetime(2026, 1, 1)


def _struct(row: int) -> dict[str, Any]:
    return {"id": row - 40, "mail": f"{row:03}@x", "deep": None if row % 7 == 0 else {"score": row / 4}}


def _list(row: int) -> list[int | None] | None:
    return [None, [], [row], [row, row + 1], [None, row * 100]][row % 5]


_OK: list[Callable[[int], bool | None]] = [
    lambda row: True,
    lambda row: False,
    lambda row: (True, False, None)[row % 3],
    lambda row: None,
]

_COLUMNS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "i": (pa.int32(), lambda row: row * 10 - 300),
    "wide": (pa.int64(), lambda row: (row - 50) << 50),
    "small": (pa.uint8(), lambda row: row),
    "unsigned": (pa.uint64(), lambda row: row << 57 if row < 100 else None),
    "price": (pa.decimal128(9, 2), lambda row: Decimal(row * 125 - 2000).scaleb(-2)),
    "big": (pa.decimal128(38, 6), lambda row: Decimal(row - 50).scaleb(20)),
    "x": (pa.float64(), lambda row: (row - 40) / 4),
    "f": (pa.float32(), lambda row: (row - 40) / 10),
    "day": (pa.date32(), lambda row: (_DAY + dt.timedelta(days=row)).date()),
    "ts": (pa.timestamp("us"), lambda row: _DAY + dt.timedelta(hours=6 * row, microseconds=row)),
    "ts_ms": (pa.timestamp("ms"), lambda row: _DAY + dt.timedelta(hours=6 * row, milliseconds=row)),
    "utc": (pa.timestamp("us", "UTC"), lambda row: _DAY + dt.timedelta(hours=6 * row)),
    "clock": (pa.time64("us"), lambda row: (_DAY + dt.timedelta(minutes=14 * row)).time()),
    "ok": (pa.bool_(), lambda row: _OK[row // ROWS](row)),
    "s": (pa.string(), lambda row: f"name-{row:03}"),
    "colour": (pa.string(), lambda row: ("red", "green", "blue", "")[row % 4]),
    "b": (pa.binary(), lambda row: bytes([row, 0])),
    "fixed": (pa.binary(3), lambda row: bytes([row, 0, 0])),
    "id": (pa.uuid(), lambda row: uuid.UUID(int=row << 120).bytes),
    "person": (pa.struct({"id": pa.int64(), "mail": pa.string(), "deep": pa.struct({"score": pa.float64()})}), _struct),
    "tags": (pa.list_(pa.int64()), _list),
    "words": (pa.list_(pa.string()), lambda row: [f"w{row}", "all"]),
    "dotted.name": (pa.int64(), lambda row: row),
    'say "hi"': (pa.int64(), lambda row: row),
    "select": (pa.int64(), lambda row: row),
    "nothing": (pa.int64(), lambda row: None),
}


@cache
def row_groups() -> tuple[pa.Table, ...]:
    tables = []
    for group in range(ROW_GROUPS):
        rows = range(group * ROWS, (group + 1) * ROWS)
        columns = {
            name: pa.array([None if group == 2 and row % 3 == 1 else value(row) for row in rows], kind)
            for name, (kind, value) in _COLUMNS.items()
        }
        tables.append(pa.table(columns))
    return tuple(tables)


TEXTS = '''
i = 50; i = 51; i <> 50; i != 50; i == 50; 50 = i; i < -250; i <= -250; i > 650; i >= 650; 650 <= i; NOT i > -200
i BETWEEN 0 AND 95; i NOT BETWEEN 0 AND 95; i BETWEEN 95 AND 0; i BETWEEN -5 AND 5; NOT (i BETWEEN 0 AND 95)
i IN (0, 10, 11); i NOT IN (0, 10, 11); i IN (0, NULL); i NOT IN (0, NULL); i IN (NULL); NOT (i IN (0, NULL))
i IS NULL; i IS NOT NULL; NOT (i IS NULL); i = NULL; i <> NULL; i = 0 OR i = NULL; i = 0 AND i = NULL; i IN (5, 6, 7)
i IS DISTINCT FROM 0; i IS NOT DISTINCT FROM 0; i IS DISTINCT FROM NULL; i IS NOT DISTINCT FROM NULL
NOT (i IS DISTINCT FROM 0); NOT (i IS NOT DISTINCT FROM 0); i = 0x32; i = -100; i = - 100; -100 < i; i > +640
i >= 0x280
i = 1.5; i < 1.5; i > 1.5; i = 50.0; i <= 49.999; i <> 1.5; i IN (1.5, 50.0); i BETWEEN 49.5 AND 60.5; NOT (i = 1.5)
i = 5e1; i > 6.45e2; i < 1e10; i < -1e10; i = 2147483648; i < 2147483648; i > -2147483649; i >= 99999999999999999999
i <> 4294967346; i NOT IN (2147483648); i IN (2147483648, 50); i BETWEEN -99999999999 AND -200; i = 4294967346
i > 12 AND i < 28; i > 12 AND i < 18; i > 20 AND i < 30; i > 0 AND i < 0; i >= 50 AND i <= 50; i > 50 OR i < 40
wide = 1125899906842624; wide < -11258999068426240; wide > 9223372036854775807; wide >= -9223372036854775808
wide = 9223372036854775808; wide < 9223372036854775808; wide > 0.5; wide = 0.0; wide IN (0, 1); wide BETWEEN -1 AND 1
small = 7; small = 300; small < 300; small > -1; small = -1; small <> -1; small >= 99; small > 99; small IN (-1, 256, 3)
small BETWEEN -5 AND 5; small < 0; small <= 0; NOT (small < 300); small = 7.5; small < 7.5
unsigned = 9223372036854775808; unsigned > 9223372036854775807; unsigned >= 18446744073709551615; unsigned = -1
unsigned BETWEEN 9223372036854775807 AND 9223372036854775809; unsigned = 0; unsigned < 144115188075855873
price = 1.25; price = 1.250; price = 1.251; price < 1.251; price > 1.2499; price <= -19.99; price >= 103; price = 5
price IN (1.25, 2.5, 3.751); price NOT IN (1.25, NULL); price BETWEEN -1.255 AND 1.255; price = -20; price <> -20.00
price > 99999999999; price < -1e20; price = 12345678.90; price IS NULL OR price < -15; price = 1.25 OR price = 1.251
big = 100000000000000000000; big > 4800000000000000000000; big < -4.9e21; big = 0; big <> 0; big BETWEEN -0.5 AND 0.5
x = 0.25; x = 0; x = -0.0; x < -9; x > 14.5; x >= 14.75; x BETWEEN -0.25 AND 0.25; x IN (0, 1, 1.5); x NOT IN (0, 1)
x > 1e300; x < -1e300; x = 'inf'::DOUBLE; x < 'inf'::DOUBLE; x IS NULL; NOT (x < 0); x <> 0.25; x > 5 AND x < 6
x = 0.1; x <> 0.1; x = 1; 1 > x; x IN (NULL, 2)
f = 0.5; f = 0.1; f > 0.1; f >= 0.1; f < 0.1; f IN (0.1, 0.2, 0.3); f BETWEEN 0.1 AND 0.3; f <> 0.1; f = 0; f = 2
f > 5.8; f < -3.9; NOT (f > 0.1); f NOT IN (0.1)
day = DATE '2026-02-01'; day = '2026-02-01'; day < DATE '2026-01-03'; day > '2026-04-08'; day <> DATE '2026-02-01'
day BETWEEN DATE '2026-01-20' AND DATE '2026-01-22'; day IN (DATE '2026-01-05', DATE '1900-01-01', NULL)
day > DATE '2026-02-01' AND day < DATE '2026-02-03'; day < TIMESTAMP '2026-01-03 12:00:00'; day IS DISTINCT FROM NULL
day >= TIMESTAMP '2026-04-08 00:00:01'; day = TIMESTAMP '2026-02-01 00:00:00'; day = TIMESTAMP '2026-02-01 00:00:01'
day < DATE '0001-01-02'; day > DATE '9999-12-30'; day NOT IN (DATE '2026-01-05')
ts = TIMESTAMP '2026-01-01 06:00:00.000001'; ts = TIMESTAMP '2026-01-01 06:00:00'; ts < TIMESTAMP '2026-01-01 12:00'
ts = '2026-01-02 00:00:00.000004'; ts >= '2026-01-25'; ts > DATE '2026-01-25'; ts < DATE '2026-01-02'
ts BETWEEN TIMESTAMP '2026-01-01' AND TIMESTAMP '2026-01-02 00:00:00.000004'; ts IN ('2026-01-02 00:00:00.000004', NULL)
ts <> TIMESTAMP '2026-01-01 06:00:00.000001'; NOT (ts > TIMESTAMP '2026-01-03 00:00:00')
ts_ms = TIMESTAMP '2026-01-01 06:00:00.001'; ts_ms = TIMESTAMP '2026-01-01 06:00:00.0010001'
ts_ms < TIMESTAMP '2026-01-01 06:00:00.001'; ts_ms <= TIMESTAMP '2026-01-01 06:00:00.001'; ts_ms >= '2026-01-25'
utc = TIMESTAMP '2026-01-02 00:00:00+00:00'; utc = TIMESTAMP '2026-01-02 02:00:00+02:00'
utc < TIMESTAMP '2026-01-02 00:00:00-06:00'; utc >= TIMESTAMP '2026-01-25T12:00:00Z'
utc <> TIMESTAMP '2026-01-02 00:00:00Z'
utc BETWEEN TIMESTAMP '2026-01-05 00:00:00+00:00' AND TIMESTAMP '2026-01-06 00:00:00+00:00'; utc IS NULL
clock = TIME '00:14:00'; clock < TIME '01:00'; clock >= TIME '22:00:00'; clock = TIME '00:14:00.000001'
clock BETWEEN TIME '12:00:00' AND TIME '13:00:00'; clock IN (TIME '00:14:00', TIME '00:28:00')
ok; NOT ok; ok = TRUE; ok = FALSE; ok <> TRUE; ok IS TRUE; ok IS NOT TRUE; ok IS FALSE; ok IS NOT FALSE; ok IS NULL
ok IS NOT NULL; ok AND i > 0; ok OR i > 0; NOT ok OR ok IS NULL; NOT (ok AND i < 0); NOT (ok OR i < 0)
ok IN (TRUE, NULL)
s = 'name-007'; s = 'name-0070'; s < 'name-01'; s >= 'name-09'; s > 'name-098'; s <> 'name-007'; s = ''; s <> ''; s > ''
s IN ('name-007', 'name-077', 'x'); s NOT IN ('name-007', NULL); s BETWEEN 'name-05' AND 'name-06'; s LIKE 'name-007'
s = 'it''s'; s > 'é'; s < 'é'; s IS NOT NULL AND s < 'name-003'; s NOT LIKE 'name-007'
s IS NOT DISTINCT FROM 'name-007'
colour = 'red'; colour = ''; colour <> 'red'; colour IN ('red', 'blue') AND i < -250; colour > 'green' AND NOT ok
colour = 'red' OR s = 'name-001' AND i < 0; (colour = 'red' OR s = 'name-001') AND i < 0; colour < 'blue'
b = x'0700'; b = x'07'; b = x'070000'; b < x'0200'; b < x'02'; b >= x'6200'; b IN (x'0700', x'63'); b > x'62'
b <> x'07'
b BETWEEN x'0700' AND x'0900'; b = x''; b <> x''; b = x'0000'; b <= x'0000'; b > x'630000'; b NOT IN (x'00', x'0100')
fixed = x'070000'; fixed = x'07'; fixed < x'020000'; fixed >= x'620000'; fixed = x'000000'; fixed <= x'000000'
fixed IN (x'070000', x'0700'); fixed > x'63'; fixed <> x'000000'; fixed >= x'63000000'
id = UUID '07000000-0000-0000-0000-000000000000'; id = '07000000-0000-0000-0000-000000000000'; id IS NULL
id > '62000000-0000-0000-0000-000000000000'; id <> '00000000-0000-0000-0000-000000000000'
id IN ('07000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000')
id < UUID '01000000-0000-0000-0000-000000000001'; id BETWEEN UUID '00000000-0000-0000-0000-000000000000'
  AND UUID '02000000-0000-0000-0000-000000000000'
person.id = -33; person.id > 58; person.id IN (1, 2, 300); person.id IS NULL; person.id <> 0; NOT (person.id < 50)
person.mail = '007@x'
person.mail < '003'; person.deep.score = 2.5; person.deep.score > 24; person.deep.score IS NULL
person.deep.score IS NOT NULL
person.deep.score IS NOT DISTINCT FROM 2.5; "person"."id" = -33; "person".mail >= '098@x'
person.id = 5 OR person.mail IS NULL
list_contains(tags, 3); list_contains(tags, 7300); NOT list_contains(tags, 3); list_contains(tags, -1)
list_contains(tags, 3) OR list_contains(tags, 98); list_contains(words, 'w7'); list_contains(words, 'all') AND i > 650
NOT list_contains(words, 'all'); array_contains(tags, 3); 3 = ANY(tags); list_contains(tags, 3) AND tags IS NOT NULL
tags IS NULL; tags IS NOT NULL; list_has(words, 'w7'); NOT (list_contains(tags, 3) OR i > 0)
"dotted.name" = 7; "dotted.name" > 97; "dotted.name" IS NULL; "say ""hi""" = 7; "select" = 7; "select" NOT IN (7, 8)
nothing IS NULL; nothing = 5; nothing <> 5; NOT (nothing = 5); nothing IS NOT NULL; nothing IS DISTINCT FROM 5
nothing = 5 OR i = 50; nothing = 5 AND i = 50; nothing IN (NULL, 5); nothing NOT IN (5); nothing < 5 OR nothing >= 5
i = 50 AND s = 'name-035'; i = 50 AND s = 'name-036'; i = 50 OR s = 'name-036'; NOT (i = 50 OR s = 'name-036')
NOT (i <> 50 OR s <> 'name-035'); (i < -200 OR i > 600) AND colour = 'red'; NOT ((i < -200 OR i > 600) AND NOT ok)
i < 0 AND x > 0; i < 0 OR x > 0; NOT (i < 0 AND x > -5); i IN (0, 10) OR x IN (0, 1) AND NOT small IN (1, 2)
NOT NOT i = 50; NOT (NOT (i = 50)); i = 50 AND TRUE; i = 50 OR TRUE; i = 50 AND FALSE; i = 50 OR FALSE; TRUE; FALSE
(i = 1 OR i = 10) AND (s = 'name-031' OR s = 'x')
'''


def texts() -> list[str]:
    """Each predicate of TEXTS; one that goes on in the next line is indented there."""
    return [text.strip() for text in TEXTS.strip().replace("\n  ", " ").replace("\n", ";").split(";")]
