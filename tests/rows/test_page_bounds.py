"""Column indexes as evidence: the rows of a brute force, and pages whose bounds exclude a match are not decoded."""

from __future__ import annotations

import math
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rows.test_offset_indexes import garbage, indexes_of, lies, lying, with_indexes
from rows.test_pages import written
from support.repeats import first_then_more

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import ColumnIndex
from parquet_bloom.format import compact
from parquet_bloom.rows.pages_file import PagesRead

ROWS = 2000


@cache
def table() -> pa.Table:
    """Columns in and out of order, with NULLs, NaN, and pages of one kind alone."""
    rng = Random(7)
    up = [n // 3 for n in range(ROWS)]
    return pa.table(
        {
            "up": pa.array(up, pa.int32()),
            "down": pa.array([ROWS - n if n % 10 else None for n in range(ROWS)]),
            "text": [f"{n:05}" if n % 300 > 40 else None for n in range(ROWS)],
            "float": pa.array([math.nan if n % 40 < 7 else n / 8 for n in range(ROWS)]),
            "signed": pa.array([n - 900 for n in range(ROWS)], pa.decimal128(9, 2)),
            "unsigned": pa.array([2**31 - 700 + n for n in range(ROWS)], pa.uint32()),
            "flag": [n > 1200 for n in range(ROWS)],
            "mixed": [rng.randrange(50) for n in range(ROWS)],
            "pair": pa.StructArray.from_arrays([pa.array(up), pa.array(range(ROWS))], ["a", "b"]),
            "at": pa.array(range(ROWS), pa.timestamp("ms")),
        }
    )  # fmt: skip


def clause(rng: Random) -> str:
    n = rng.randrange(-20, ROWS + 20)
    op = rng.choice(["=", "<", "<=", ">", ">="])
    return rng.choice(
        [
            f"up {op} {n // 3}", f"up BETWEEN {n // 3} AND {n // 3 + 9}", f"down {op} {n}", "down IS NULL",
            f"text {op} '{max(n, 0):05}'", "text IS NULL", "text IS NOT NULL",
            f"float {op} {n / 8}", f"float IN ({n / 8}, {n / 4})", f"signed {op} {n - 900}",
            f"unsigned {op} {2**31 - 700 + n}",
            "flag", "flag = FALSE", f"mixed {op} {n % 50}", f"pair.a {op} {n // 3}", f"pair.b IN ({n}, {n + 1})",
        ]
    )  # fmt: skip


def predicate(rng: Random, depth: int = 2) -> str:
    if not depth or rng.random() < 0.3:
        return clause(rng)
    kind = rng.choice(["AND", "AND", "OR", "NOT"])
    if kind == "NOT":
        return f"NOT ({predicate(rng, depth - 1)})"
    return f"({predicate(rng, depth - 1)}) {kind} ({predicate(rng, depth - 1)})"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bounds")
    return written(table(), folder / "a.parquet", write_page_index=True, data_page_size=200, write_batch_size=20)


@pytest.mark.parametrize("seed", first_then_more(range(3), 1))
@pytest.mark.parametrize("nan", ["ieee", "largest"])
def test_rows_of_a_brute_force(path: Path, nan: Any, seed: int) -> None:
    """The same file without a page index: the present evidence, and all pages."""
    plain = written(table(), path.with_name("plain.parquet"), data_page_size=200, write_batch_size=20)
    rng, some = Random(seed), 0
    for _ in range(50):
        where = predicate(rng)
        found = parquet_bloom.read_table(path, where, nan=nan)
        expected = parquet_bloom.read_table(plain, where, nan=nan)
        assert repr(found.to_pylist()) == repr(expected.to_pylist()), where
        some += 0 < len(found) < ROWS
        assert parquet_bloom.count(path, where, nan=nan) == len(expected), where
    assert some > 12


def test_no_row_of_a_nan_is_lost(path: Path) -> None:
    """Bounds of pages leave NaN out, and a NOT makes such rows TRUE."""
    for where, expression in (
        ("NOT (float <= 40)", ~(pc.field("float") <= 40)),
        ("", (pc.field("float") > 100)),
        ("NOT (float < 100 AND up >= 0)", ~((pc.field("float") < 100) & (pc.field("up") >= 0))),
    ):
        found = parquet_bloom.read_table(path, expression)
        assert repr(found.to_pylist()) == repr(table().filter(expression).to_pylist()), expression
        if where:
            assert parquet_bloom.count(path, where) == found.num_rows > 0, where


def test_pages_that_cannot_match_are_not_decoded(tmp_path: Path) -> None:
    """The predicate's own neither."""
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": False, "data_page_size": 100}
    flat = table().drop_columns(["pair"])
    path = written(flat, tmp_path / "a.parquet", write_page_index=True, **options)
    whole, data = pq.read_table(path), path.read_bytes()
    for where, rows in (
        ("up BETWEEN 110 AND 112", range(330, 339)),
        ("at >= TIMESTAMP '1970-01-01 00:00:01.998'", range(1998, 2000)),
        ("text > '01980' AND text < '01983'", range(1981, 1983)),
        ("signed < -895 AND up >= 0", range(5)),
        ("unsigned = 2147483000", range(52, 53)),
    ):
        path.write_bytes(data)
        expected = whole.slice(rows.start, len(rows))
        assert garbage(path, rows, but_the_first=False) > 100
        with pytest.raises(OSError, match=r"zstd|ZSTD|decompress"):
            pq.read_table(path)
        for columns in (None, ["mixed"]):
            found = parquet_bloom.read_table(path, where, columns=columns)
            assert repr(found.to_pylist()) == repr(expected.select(columns or flat.column_names).to_pylist()), where
        assert parquet_bloom.count(path, where) == len(rows), where


def test_a_wrong_offset_index_excludes_no_row(path: Path, tmp_path: Path) -> None:
    """Bounds of a page would exclude other rows than it has."""
    data = path.read_bytes()
    pages = next(
        pages for (_, column), pages in indexes_of(data).items() if column == table().column_names.index("pair") + 1
    )
    edges = [pages[3].first_row_index, pages[-1].first_row_index]
    names = [name for name, _ in lies(pages)]
    wrong = tmp_path / "a.parquet"
    for number in range(len(names)):
        wrong.write_bytes(data)
        with_indexes(wrong, lying(number))
        for n in (edges[0] - number % 2, edges[-1]):
            found = parquet_bloom.read_table(wrong, f"pair.b = {n}", columns=["up", "at"])
            assert found["up"].to_pylist() == [n // 3], names[number]


def _contradicting(kind: str, _: int, index: ColumnIndex) -> bytes:
    least, greatest = index.min_values, index.max_values
    if kind == "a page less":
        index.min_values = least[:-1]
    if kind == "no bounds":
        index.min_values = index.max_values = None
    if kind == "min above max":
        index.min_values, index.max_values = greatest, least
    if kind == "odd lengths":
        index.min_values, index.max_values = [one + b"\0\0\0" for one in least], [one[:1] for one in greatest]
    if kind == "all NULL":
        index.null_pages = [True] * len(index.null_pages)
    return b"\xff\xff\xff" if kind == "no bytes" else compact.encode(index)


def test_a_column_index_that_contradicts_itself_says_nothing(path: Path, tmp_path: Path) -> None:
    asked = ("up = 55", "down BETWEEN 600 AND 620", "signed > 1090", "text IS NULL", "unsigned < 2147482950")
    expected = {where: repr(parquet_bloom.read_table(path, where).to_pylist()) for where in asked}
    assert all(len(rows) > 2 for rows in expected.values())
    other = tmp_path / "a.parquet"
    for kind in ("no bytes", "a page less", "no bounds", "min above max", "odd lengths", "all NULL"):
        other.write_bytes(path.read_bytes())
        with_indexes(other, partial(_contradicting, kind), ColumnIndex)
        for where in asked:
            if kind != "odd lengths" or not where.startswith("text"):
                assert repr(parquet_bloom.read_table(other, where).to_pylist()) == expected[where], (kind, where)


def test_bounds_of_a_writer_that_is_known_to_be_wrong(path: Path, tmp_path: Path) -> None:
    """Polars 1: bounds of floats, of decimals in bytes and of unsigned numbers; its others are believed."""
    spared: dict[tuple[str, str], int] = {}
    for writer in ("Polars", "parquet-cpp-arrow version 26.0.0"):
        other = tmp_path / "a.parquet"
        other.write_bytes(path.read_bytes())

        def change(_: int, index: ColumnIndex) -> bytes:
            index.min_values = index.max_values = [max(index.max_values)] * len(index.max_values)
            return compact.encode(index)

        with_indexes(other, change, ColumnIndex, writer)
        for where in ("unsigned < 2147482960", "float < 1.5"):
            spared[writer, where] = parquet_bloom.count(other, where)
    right = [parquet_bloom.count(path, where) for where in ("unsigned < 2147482960", "float < 1.5")]
    assert list(spared.values())[:2] == right
    assert list(spared.values())[2:] != right, "the bounds are wrong, and would lose rows"


def test_large_row_groups_alone_are_read_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have them: 12 MB of one row group, a range of it."""
    monkeypatch.undo()
    rng = np.random.default_rng(1)
    columns = {"at": np.arange(300_000), **{name: rng.integers(0, 2**62, 300_000) for name in "abcde"}}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", use_dictionary=False, write_page_index=True)
    pages, add = PagesRead(), PagesRead.add
    monkeypatch.setattr(PagesRead, "add", lambda self, *more: add(pages, *more))
    found = parquet_bloom.read_table(tmp_path / "a.parquet", "at BETWEEN 99990 AND 100010")
    assert found["a"].to_pylist() == columns["a"][99990:100011].tolist()
    assert pages.read <= 12
    assert pages.left > 60
