"""Predicates that nobody would write: texts, DNF lists and pyarrow Expressions, each from a random generator."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hostile_words import listed

TEXTS = listed(
    "id = 5 AND name NOT IN ('a', NULL) OR price BETWEEN 1.50 AND 2¦5 < id¦flag IS NOT TRUE",
    "\"dotted.name\" = x'00ff'¦user.id = -7¦list_contains(tags, 5)¦at >= TIMESTAMP '2026-01-31 12:00:00+02:00'",
    "id IN (1, 2, 3, -4)¦NOT (id = 5)¦name IN ('a', 'b''c')¦id IS NOT DISTINCT FROM NULL¦CAST('5' AS BIGINT) = id",
    "5 = ANY(tags)¦id = 0xff¦half_null > 1e-3¦DATE '2026-01-31' <= day¦lower(name) = 'x'¦id = name",
    "CASE WHEN id = 5 THEN TRUE END¦id = 5 -- why¦id /* ( */ = 5¦name LIKE 'a%'",
    "id = UUID '00112233-4455-6677-8899-aabbccddeeff'¦id IN (SELECT 5)¦((id = 5))¦id = TIME '12:00:00'",
)
PIECES = listed(
    "(¦)¦,¦'¦\"¦`¦.¦=¦<¦<>¦!=¦!¦AND¦OR¦NOT¦IN¦IS¦NULL¦TRUE¦BETWEEN¦LIKE¦ESCAPE¦CAST(¦AS¦DATE¦TIMESTAMP¦INTERVAL",
    "DECIMAL(5, 2)¦x'¦0x¦1e¦1e999¦-¦+¦~¦*¦/¦%¦||¦::int¦->¦[¦]¦{¦}¦$1¦:p¦?¦@¦#¦;¦--¦/*¦*/¦\\¦\n¦\t¦\x00¦\x0b¦\xa0",
    "\ud800¦é¦CASE¦END¦WHEN¦SELECT¦FROM¦EXISTS¦ANY¦ALL¦list_contains(¦id¦name¦tags¦user.id¦half_null",
    "99999999999999999999¦1.5¦'2026-01-31'¦x IN (1, 2)¦OVER¦LATERAL¦PIVOT¦MATCH¦GLOB¦SIMILAR TO¦AT TIME ZONE 'x'",
    "COLLATE x¦<=>¦@>",
)
NAMES = ["id", "name", "half_null", "flag", "colour", "tags", "user", "no", "user.id", "", "a.b", "*", "\0", "\u00e9"]
OPERATORS = ["=", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "IN", "", "~", None, 5]


def text(seed: bytes, rng: random.Random) -> bytes:
    """A text with pieces put in, taken out, doubled."""
    said = seed.decode()
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at = rng.randrange(len(said) + 1)
        what = rng.random()
        if what < 0.45:
            blank = rng.choice(("", " "))
            said = said[:at] + blank + rng.choice(PIECES) + blank + said[at:]
        elif what < 0.65:
            said = said[:at] + said[at + rng.choice((1, 1, 3, 10)) :]
        elif what < 0.8:
            said = said[:at] + rng.choice((" AND ", " OR ", ", ", " ")) + rng.choice(TEXTS) + said[at:]
        elif what < 0.9:
            said = said[:at] + said[at : at + rng.randrange(1, 20)] * rng.choice((2, 30)) + said[at:]
        else:
            said = said[:at] + chr(rng.choice((rng.randrange(128), rng.randrange(0x3000), 0x1F600))) + said[at:]
    return said.encode("utf-8", "surrogatepass")


def _value(rng: random.Random, deep: int = 0) -> Any:
    made = [
        lambda: rng.choice((0, 1, -1, 5, 2**31, 2**63, 2**64, 10**30, 10**400)),
        lambda: rng.choice((0.0, -0.0, 1.5, 1e308, float("nan"), float("inf"))),
        lambda: rng.choice(("", "a", "user-1", "\0", "2026-01-31", "x" * 300)),
        lambda: rng.choice((b"", b"\xff", b"a" * 20)),
        lambda: None,
        lambda: True,
        lambda: dt.date(rng.choice((1, 1970, 9999)), 1, 1),
        lambda: dt.datetime(rng.choice((1, 1970, 9999)), 1, 1, tzinfo=rng.choice((None, dt.UTC))),
        lambda: dt.time(12, 30, 1, 5),
        lambda: dt.timedelta(rng.choice((0, 10**8))),
        lambda: Decimal(rng.choice(("1.50", "NaN", "1E+400", "-0", "Infinity"))),
        lambda: pa.scalar(5, pa.int8()),
        lambda: pa.scalar(None),
        lambda: pa.scalar([1]),
        lambda: pa.scalar(1, pa.timestamp("ns", "UTC")),
        object,
        lambda: pa.array(rng.choice(([], [None], [1, 2], ["a", None]))),
        lambda: pc.field("id"),
        lambda: (1, 2),
        lambda: [_value(rng, deep + 1) for _ in range(rng.randrange(4))] if deep < 3 else 5,
    ]
    return rng.choice(made)()


def filters(rng: random.Random) -> Any:
    """What somebody might give as DNF lists."""

    def condition() -> Any:
        what = rng.random()
        if what < 0.1:
            return rng.choice((None, 5, "id = 5", [], ("id",), ("id", "="), ("id", "=", 5, 6)))
        kind = rng.choice((tuple, tuple, list))
        name = rng.choice(NAMES) if what < 0.95 else _value(rng)
        return kind((name, rng.choice(OPERATORS[: 9 if what < 0.9 else None]), _value(rng)))

    conditions = [condition() for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return rng.choice((conditions, tuple(conditions), [conditions], [conditions, [condition()]], condition()))


def expression(rng: random.Random, deep: int = 0) -> Any:
    """A pyarrow Expression; what pyarrow itself refuses to build is tried again."""
    while True:
        try:
            return _expression(rng, deep)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, NotImplementedError, AttributeError):
            continue


def _expression(rng: random.Random, deep: int) -> Any:
    fields = [pc.field(rng.choice(NAMES)), pc.field("user", "id"), pc.field(0), pc.field(("user", "mail"))]
    column = rng.choice([*fields, pc.scalar(_value(rng))])
    if deep > 4 or rng.random() < 0.4:
        value = _value(rng)
        made = [
            lambda: column == value,
            lambda: column < value,
            lambda: value >= column,
            lambda: column != value,
            lambda: column.is_null(),
            lambda: column.is_null(nan_is_null=True),
            lambda: column.is_valid(),
            lambda: column.isin(value),
            lambda: column.cast(rng.choice((pa.int8(), pa.string()))),
            lambda: column.isin(pa.array([1, None, 2**40])),
            lambda: pc.starts_with(column, "a"),
            lambda: column + value,
            lambda: pc.is_nan(column),
            lambda: pc.if_else(column, True, value),
            lambda: pc.list_value_length(column) > 1,
            lambda: column,
            lambda: pc.scalar(value),
        ]
        return rng.choice(made)()
    left, right = expression(rng, deep + 1), expression(rng, deep + 1)
    return rng.choice((lambda: left & right, lambda: left | right, lambda: ~left, lambda: left == right))()
