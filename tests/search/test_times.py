"""Texts for days and times: one grammar for every verb, rows as brute force finds them, hints that can be typed.

Each column has a row group for every few values, so that verdicts mean something. Truth is arithmetic over the
integers that a file stores; DuckDB is asked as well, by literals of its own types.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import ParquetBloomError, RequestError

DAY = 86_400 * 10**9
KINDS: dict[str, pa.DataType] = {
    **{f"{unit}": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    **{f"{unit}_utc": pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")},
    "us_kyiv": pa.timestamp("us", "Europe/Kyiv"),
    "day": pa.date32(),
    "time": pa.time64("us"),
}
OPS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
DAYS = [dt.date(2026, 10, 31), dt.date(2026, 11, 1), dt.date(2026, 11, 2)]
CLOCKS = {  # a time of day as it is written, and in nanoseconds
    "": 0, "00:00": 0, "12:30": 45_000 * 10**9, "12:30:00": 45_000 * 10**9, "12:30:15": 45_015 * 10**9,
    "12:30:15.5": 45_015_500_000_000, "12:30:15.123456": 45_015_123_456_000, "12:30:15.123456789": 45_015_123_456_789,
    "23:59:59.999": 86_399_999_000_000,
}  # fmt: skip
ZONES = {"": None, "Z": 0, "+00:00": 0, "+02:00": 120, "-0530": -330, " UTC": 0}


@dataclass(frozen=True)
class Text:
    """What stands between the quotes, and what it means.

    place  nanoseconds since 1970, in UTC if there is a zone; since midnight for a time of day alone
    form   "moment" or "time"
    """

    text: str
    place: int
    zoned: bool
    form: str = "moment"

    def fits(self, kind: pa.DataType) -> bool:
        if pa.types.is_time(kind):
            return self.form == "time" and not self.zoned
        if self.form != "moment":
            return False
        return self.zoned == (pa.types.is_timestamp(kind) and kind.tz is not None)


def moment(day: dt.date, sign: str, clock: str, zone: str) -> Text:
    shift = ZONES[zone]
    place = (day - dt.date(1970, 1, 1)).days * DAY + CLOCKS[clock] - (shift or 0) * 60 * 10**9
    return Text(f"{day.isoformat()}{sign + clock if clock else ''}{zone}", place, shift is not None)


# Each clock with each sign, with and without a zone; each zone after no clock, a short one and a long one. What else
# may stand together is for the random texts.
TEXTS = [
    *(moment(DAYS[1], sign, clock, zone)
      for clock in CLOCKS for sign in (" T" if clock else " ") for zone in ("", "Z")),
    *(moment(DAYS[1], sign, clock, zone) for clock, sign in (("", ""), ("12:30", " "), ("12:30:15.123456", "T"))
      for zone in ZONES if zone not in ("", "Z")),
    moment(DAYS[0], " ", "23:59:59.999", ""), moment(DAYS[2], "T", "", "Z"),
    *(Text(clock, place, False, "time") for clock, place in CLOCKS.items() if clock),
]  # fmt: skip
# A time that is none, a day that is none, and other spellings: no column takes them.
WRONG = ["2026-11-01 24:00", "2026-13-01", "2026-02-30 12:00", "20261101", "soon", "2026-11", "12:60", "2026-11-01 12",
         "2026-11-01 12:30:15.", "01.11.2026", "", "9999-12-31 23:59-01:00"]  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """A file, its column's type, and its values in nanoseconds; None is NULL."""

    path: Path
    kind: pa.DataType
    values: list[int | None]
    source: parquet_bloom.Source

    def rows(self, op: str, place: int) -> list[int]:
        return [i for i, value in enumerate(self.values) if value is not None and OPS[op](value, place)]


def _file(folder: Path, name: str, kind: pa.DataType) -> Stored:
    exact = sorted({text.place for text in TEXTS if text.form == ("time" if name == "time" else "moment")})
    if pa.types.is_date(kind):
        unit = DAY
    else:
        unit = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[kind.unit]
    units: list[int | None] = [None, *sorted({place // unit + more for place in exact for more in (-1, 0, 1)})]
    if name == "time":
        units = [number for number in units if number is None or 0 <= number < DAY // unit]
    stored = pa.array(units, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({"at": stored, "row": range(len(units))}), path, row_group_size=5)
    parquet_bloom.add_filters(path, in_place=True, columns=["at"], sync=False)
    values = [None if number is None else number * unit for number in units]
    return Stored(path, kind, values, parquet_bloom.Source(path))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stored]:
    folder = tmp_path_factory.mktemp("times") / "one" / "two" / "three" / "four"  # searches look beside four levels
    folder.mkdir(parents=True)
    return {name: _file(folder, name, kind) for name, kind in KINDS.items()}


VERBS: dict[str, Callable[[Path, Any], Any]] = {
    "check": parquet_bloom.check,
    "prune": parquet_bloom.prune,
    "count": parquet_bloom.count,
    "read_table": parquet_bloom.read_table,
    "read_batches": lambda path, predicate: list(parquet_bloom.read_batches(path, predicate)),
    "dataset": parquet_bloom.dataset,
}


# Of other columns `check` is asked: they differ in unit and zone, not in who binds a literal.
ALL_VERBS = ("us", "time")


def answers(stored: Stored, predicate: Any) -> dict[str, str]:
    """Each verb's error, empty where it takes the predicate."""
    found = {}
    for name in VERBS if stored.path.stem in ALL_VERBS else ("check",):
        try:
            VERBS[name](stored.path, predicate)
            found[name] = ""
        except RequestError as error:
            found[name] = str(error)
    return found


def proposals(said: str) -> Iterator[str]:
    """The literals that a message advises."""
    yield from re.findall(r"(?:write|and|or) ((?:TIMESTAMP|DATE|TIME) '[^']*')", said)


def hold(stored: Stored, op: str, literal: str, place: int) -> None:
    """Verdicts, count and rows of a literal that the column takes are those of brute force."""
    expected = stored.rows(op, place)
    predicate = f"at {op} {literal}"
    assert stored.source.read_table(predicate)["row"].to_pylist() == expected, predicate
    assert stored.source.count(predicate) == len(expected), predicate
    skipped = {v.row_group for v in stored.source.check(predicate) if v.skipped}
    assert not skipped & {row // 5 for row in expected}, predicate


@pytest.mark.parametrize("name", KINDS)
def test_every_verb_takes_the_same_texts_and_finds_the_rows_of_brute_force(files: dict[str, Stored], name: str) -> None:
    stored = files[name]
    taken = 0
    for i, text in enumerate(TEXTS, list(KINDS).index(name)):
        typed = f"{'TIME' if text.form == 'time' else 'TIMESTAMP'} '{text.text}'"
        literal = (f"'{text.text}'", typed)[i % 2]  # of half of the columns the one, of the others the other
        found = answers(stored, f"at = {literal}")
        if text.fits(stored.kind):
            assert set(found.values()) == {""}, found
            hold(stored, "=", literal, text.place)
            taken += 1
        else:
            assert all("is no literal for it" in said for said in found.values()), found
            assert len(set(found.values())) == 1, "one message, whoever is asked"
    assert taken > 5


@pytest.mark.parametrize("name", ["s", "ns", "us", "us_utc", "us_kyiv", "day", "time"])
def test_what_a_hint_proposes_is_taken(files: dict[str, Stored], name: str) -> None:
    stored = files[name]
    some = TEXTS[list(KINDS).index(name) % 3 :: 3]
    literals = [*(f"'{text.text}'" for text in some), *(f"'{text}'" for text in WRONG), "5", "TRUE", "x'00'",
                "DATE '2026-11-01'", "TIMESTAMP '2026-11-01 12:30'", "TIMESTAMP '2026-11-01 12:30+02:00'",
                "TIMESTAMPTZ '2026-11-01 12:30'", "TIME '12:30'", "TIME '12:30+00:00'"]  # fmt: skip
    refused = 0
    for literal in literals:
        said = set(answers(stored, f"at = {literal}").values())
        assert len(said) == 1, said
        [message] = said
        if not message:
            message = "; ".join(reason for _, reason in parquet_bloom.check(stored.path, f"at = {literal}").unused)
        else:
            refused += 1
            assert list(proposals(message)), message
        offered = list(proposals(message))
        if literal.startswith("TIMESTAMPTZ"):
            offered = [
                one for one in offered if one.endswith("+00:00'") == stored.path.stem.endswith(("_utc", "_kyiv"))
            ]
        for proposal in offered if name != "time" or not literal.startswith("TIMESTAMPTZ") else []:
            assert set(answers(stored, f"at = {proposal}").values()) == {""}, f"{literal}: {message}"
    assert refused > len(WRONG), "what no column takes, and the other kinds"


@pytest.mark.parametrize("name", ["ms", "ns_utc", "us", "us_kyiv", "day", "time"])
def test_between_in_and_lists_of_conditions_take_them_too(files: dict[str, Stored], name: str) -> None:
    stored = files[name]
    top = next(text for text in reversed(TEXTS) if text.fits(stored.kind))
    which = list(KINDS).index(name) % 2
    for i, text in enumerate([t for t in TEXTS if t.fits(stored.kind)][which::2]):
        place = text.place
        both = [row for row in stored.rows(">=", place) if row in set(stored.rows("<=", top.place))]
        found = stored.source.read_table(f"at BETWEEN '{text.text}' AND '{top.text}'")
        assert found["row"].to_pylist() == both
        forms = (f"at IN ('{text.text}')", [("at", "=", text.text)], [[("at", "==", text.text)]])
        for predicate in (forms[i % 3], forms[(i + 1) % 3]):
            found = stored.source.read_table(predicate)["row"].to_pylist()
            assert found == stored.rows("=", place), predicate
        assert set(answers(stored, forms[i % 3]).values()) == {""}
        assert stored.source.count([("at", ">", text.text)]) == len(stored.rows(">", place))
    for text in [t for t in TEXTS if not t.fits(stored.kind)][which::2]:
        found = answers(stored, [("at", "=", text.text)])
        assert all("is no literal for it" in said for said in found.values()), found


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(KINDS)), op=st.sampled_from(sorted(OPS)), day=st.sampled_from(DAYS),
    sign=st.sampled_from(" T"), clock=st.sampled_from(sorted(CLOCKS)), zone=st.sampled_from(sorted(ZONES)),
    blanks=st.sampled_from(["", " "]),
)  # fmt: skip
def test_random_texts_lose_no_row(
    files: dict[str, Stored], name: str, op: str, day: dt.date, sign: str, clock: str, zone: str, blanks: str
) -> None:
    text = moment(day, sign, clock, zone)
    if name == "time":
        text = Text(clock or "00:00", CLOCKS[clock], False, "time")
    literal = f"'{blanks}{text.text}{blanks}'"
    if text.fits(KINDS[name]):
        hold(files[name], op, literal, text.place)
    else:
        assert all("is no literal for it" in said for said in answers(files[name], f"at {op} {literal}").values())


@pytest.mark.parametrize("name", ["s", "ms_utc", "us", "us_kyiv", "ns", "day"])  # TIME and ns_utc it does not compare
def test_duckdb_finds_the_same_rows(files: dict[str, Stored], name: str) -> None:
    """By typed literals, in a session in UTC; it cuts nanoseconds off, so texts that are as fine are left out."""
    stored, asked = files[name], 0
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE stored AS FROM '{stored.path}'")
        for text in TEXTS:
            spelled = text.text.endswith(("UTC", "-0530")) or re.fullmatch(r"[\d-]+Z?(\+\d\d:\d\d)?", text.text)
            if not text.fits(stored.kind) or text.place % 1000 or (text.zoned and spelled):  # no such spelling there
                continue
            kind = "TIMESTAMPTZ" if text.zoned else "TIMESTAMP"
            for op in list(OPS)[asked % 2 :: 2]:  # of every second text the others
                query = f"SELECT row FROM stored WHERE \"at\" {op} {kind} '{text.text}' ORDER BY row"
                rows = [row for (row,) in connection.execute(query).fetchall()]
                assert stored.source.read_table(f"at {op} '{text.text}'")["row"].to_pylist() == rows, query
                asked += 1
    assert asked >= 15


def test_commands_and_report_take_what_check_takes(
    files: dict[str, Stored], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = str(tmp_path / "page.html")
    for name, good, bad in (
        ("us", "'2026-11-01 00:00'", "'2026-11-01 00:00Z'"), ("day", "'2026-11-01'", "'2026-11-01Z'"),
        ("us_utc", "'2026-11-01T00:00Z'", "'2026-11-01 00:00'"),
    ):  # fmt: skip
        path = str(files[name].path)
        for text, status in ((f"at = {good}", 0), (f"at = {bad}", 2)):
            for words in (
                ["check", path, text], ["read", path, "--where", text],
                ["report", path, "--where", text, "--output", page, "--overwrite"],
            ):  # fmt: skip
                found, said = run(words), capsys.readouterr().err
                assert found == status, said
                assert ("is no literal for it" in said) == (status == 2), said


def test_engines_compare_days_with_instants_and_no_verdict_refuses_them(files: dict[str, Stored]) -> None:
    """pyarrow takes a day for its midnight in UTC: no evidence, and no error."""
    import pyarrow.compute as pc

    for name, literal in (("us_utc", DAYS[1]), ("day", dt.datetime(2026, 11, 1, tzinfo=dt.UTC))):
        stored = files[name]
        predicate = pc.field("at") == literal
        place = (DAYS[1] - dt.date(1970, 1, 1)).days * DAY
        assert parquet_bloom.read_table(stored.path, predicate)["row"].to_pylist() == stored.rows("=", place)
        assert not any(verdict.skipped for verdict in parquet_bloom.check(stored.path, predicate))


def test_a_text_finer_than_the_column_skips_nothing(files: dict[str, Stored]) -> None:
    """DuckDB, DataFusion and Polars cut it to the column's unit and find rows; behind TIMESTAMP it equals nothing."""
    for name, text, typed in (("ms", "2026-11-01 12:30:15.123456", True), ("day", "2026-11-01 12:30", True)):
        path = files[name].path
        assert not any(v.skipped for v in parquet_bloom.check(path, f"at = '{text}'"))
        [(_, reason)] = parquet_bloom.check(path, f"at = '{text}'").unused
        [proposal] = proposals(reason)
        assert all(v.skipped for v in parquet_bloom.check(path, f"at = {proposal}")) == typed
        assert parquet_bloom.count(path, f"at = '{text}'") == 0


def test_errors_are_ours(files: dict[str, Stored]) -> None:
    for stored in files.values():
        for text in WRONG:
            for literal in (f"'{text}'", f"TIMESTAMP '{text}'", f"DATE '{text}'"):
                with pytest.raises(ParquetBloomError):
                    parquet_bloom.count(stored.path, f"at = {literal}")
