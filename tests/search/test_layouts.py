"""dataset() over files that keep texts and bytes in different layouts of Arrow: one type a column, and all rows.

    a.parquet  string_view    b.parquet  dictionary of large_string    c.parquet  string

Rows are held against those that each file has by itself, as Python's values.
"""

from __future__ import annotations

import base64
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.repeats import more_then_slow

import parquet_bloom
from parquet_bloom.rows.layouts import filterable

TEXTS = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "dictionary_int8": pa.dictionary(pa.int8(), pa.string()),
    "dictionary_large": pa.dictionary(pa.int32(), pa.large_string()),
}
BYTES = {
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
    "fixed": pa.binary(3),
    "dictionary_bytes": pa.dictionary(pa.int32(), pa.binary()),
}
LAYOUTS = TEXTS | BYTES
ROW_GROUP = 10

Rows = list[dict[str, Any]]


def is_bytes(name: str) -> bool:
    return name in BYTES


def array(values: list[str | None], name: str) -> pa.Array:
    """Texts, or their bytes, in one layout."""
    kind = LAYOUTS[name]
    plain = pa.array([v if v is None or not is_bytes(name) else v.encode() for v in values])
    if pa.types.is_null(plain.type):
        return pa.nulls(len(values), kind)
    if pa.types.is_dictionary(kind):
        return plain.cast(kind.value_type).dictionary_encode().cast(kind)
    return plain.cast(kind)


def nested(values: list[str | None], name: str) -> dict[str, pa.Array]:
    """One layout in a struct, a list and a list of structs; a third of them are NULL themselves."""
    inner = array(values, name)
    mask = pa.array([i % 3 == 2 for i in range(len(values))], pa.bool_())
    structs = pa.StructArray.from_arrays([inner, pa.array(range(len(values)), pa.int64())], names=["k", "n"], mask=mask)
    offsets = pa.array(range(len(values) + 1), pa.int32())
    deep = pa.StructArray.from_arrays([inner], names=["k"])
    starts = pa.array([i - i // 3 for i in range(len(values) + 1)], pa.int32())  # a NULL list has no elements
    lists = pa.ListArray.from_arrays(starts, inner.filter(pc.invert(mask)), mask=mask)
    return {"k": inner, "s": structs, "l": lists, "d": pa.ListArray.from_arrays(offsets, deep)}


def as_views(schema: pa.Schema) -> dict[str, str]:
    """The key-value by which a file of plain columns says that they were views: pyarrow writes no views in lists."""

    def viewed(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([field.with_type(viewed(field.type)) for field in kind])
        if pa.types.is_list(kind):
            return pa.list_(kind.value_field.with_type(viewed(kind.value_type)))
        return {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}.get(kind, kind)

    views = pa.schema([field.with_type(viewed(field.type)) for field in schema])
    return {"ARROW:schema": base64.b64encode(views.serialize()).decode()}


def write(path: Path, values: list[str | None], name: str, first: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {"string_view": "string", "binary_view": "binary"}.get(name, name)
    table = pa.table({"id": pa.array(range(first, first + len(values)), pa.int64()), **nested(values, plain)})
    with pq.ParquetWriter(path, table.schema, store_schema=plain == name) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)
        if plain != name:
            writer.add_key_value_metadata(as_views(table.schema))
    assert pq.read_schema(path).field("l").type.value_type == LAYOUTS[name] or name.startswith("dictionary")


def texts(value: Any) -> Any:
    """A value with its bytes as texts, so that rows of all layouts compare."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {key: texts(one) for key, one in value.items()}
    return [texts(one) for one in value] if isinstance(value, list) else value


def rows_of(table: pa.Table) -> Rows:
    return [texts(row) for row in table.to_pylist()]


def brute(folder: Path) -> Rows:
    """The rows of each file, by itself."""
    rows = []
    for path in sorted(folder.glob("*.parquet")):
        file = pq.ParquetFile(path)  # by row groups, as pyarrow joins no dictionaries in lists
        rows += [row for at in range(file.num_row_groups) for row in rows_of(file.read_row_group(at))]
    return rows


def literal(value: str, kind: pa.DataType) -> pa.Scalar:
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    plain = pa.types.is_string(values) or pa.types.is_large_string(values)
    return pa.scalar(value if plain else value.encode())


def has_views(kind: pa.DataType) -> bool:
    return "view" in str(kind)


def hold(folder: Path, asked: list[str], part: int = -1) -> None:
    """Each filter, and each second method of a data set, against brute force; of `part` 0, 1, 2 a third of the filters
    by one method.
    """
    stored, rows = parquet_bloom.dataset(folder), brute(folder)
    assert not any(has_views(field.type) for field in stored.schema)
    whole = stored.to_table()
    assert whole.schema.equals(stored.schema)
    assert rows_of(whole) == rows
    kind = stored.schema.field("k").type
    k, inside = pc.field("k"), pc.field("s", "k")
    filters: list[tuple[pc.Expression, Callable[[dict[str, Any]], Any]]] = [
        (pc.field("id") >= 0, lambda row: True),
        (k.is_null(), lambda row: row["k"] is None),
        (inside.is_valid(), lambda row: row["s"] is not None and row["s"]["k"] is not None),
    ]
    for text in asked:
        value = literal(text, kind)
        low = literal(text[:1], kind)
        others = pa.array([value.as_py(), literal("zzz", kind).as_py()])
        filters += [
            (k == value, lambda row, t=text: row["k"] == t),
            (pc.scalar(value) == k, lambda row, t=text: row["k"] == t),
            (k != value, lambda row, t=text: row["k"] is not None and row["k"] != t),
            (k.isin(others), lambda row, t=text: row["k"] in (t, "zzz")),
            (inside == value, lambda row, t=text: row["s"] is not None and row["s"]["k"] == t),
            (
                (k == value) & (pc.field("id") > 3) | ~(k >= value),
                lambda row, t=text: row["k"] is not None and ((row["k"] == t and row["id"] > 3) or row["k"] < t),
            ),
        ]
        if not pa.types.is_fixed_size_binary(kind):  # pyarrow casts a literal to that length
            filters.append((k > low, lambda row, t=text: row["k"] is not None and row["k"] > t[:1]))
    for i, (expression, keep) in enumerate(filters if part < 0 else filters[part::3]):
        wanted = [row for row in rows if keep(row)]
        assert rows_of(stored.to_table(filter=expression)) == wanted, expression
        if part >= 0:
            continue
        assert stored.count_rows(filter=expression) == len(wanted), expression
        if i % 2:
            assert rows_of(stored.filter(expression).to_table()) == wanted, expression
            assert rows_of(stored.head(3, filter=expression)) == wanted[:3], expression
            continue
        found = pa.Table.from_batches(stored.to_batches(filter=expression), stored.schema)
        assert rows_of(found) == wanted, expression
        some = stored.scanner(columns=["s", "k"], filter=expression).to_table()
        assert rows_of(some) == [{"s": row["s"], "k": row["k"]} for row in wanted], expression
    assert rows_of(stored.take([0, len(rows) - 1])) == [rows[0], rows[-1]]
    assert stored.scanner(columns={"n": pc.field("s", "k").is_null()}).to_table().num_rows == len(rows)
    parts = [fragment.to_table(schema=stored.schema) for fragment in stored.get_fragments()]
    assert rows_of(pa.concat_tables(parts)) == rows, "for who goes by fragments, as Dask does"


VALUES = ["aaa", "abc", None, "b00", "b01", "", "c", "ccc", "Ω", "abc", None, "x" * 40]
OF_THREE = ["aaa", "abc", None, "b00", "b01", "ccc", "abc", None]


@pytest.mark.parametrize("first", LAYOUTS)
def test_each_layout_after_each(first: str, tmp_path: Path) -> None:
    for part, second in enumerate(LAYOUTS, list(LAYOUTS).index(first)):
        folder = tmp_path / second
        values = OF_THREE if "fixed" in (first, second) else VALUES
        write(folder / "a.parquet", values, first, 0)
        write(folder / "b.parquet", values, second, len(values))
        hold(folder, ["abc"], part % 3)


@pytest.mark.parametrize("seed", [0, 1, *more_then_slow(range(2, 6), 2)])
def test_random_mixes(seed: int, tmp_path: Path) -> None:
    """Up to five files, some with filters, some all NULL, all alike or without rows."""
    random_ = random.Random(seed)
    names = random_.choices(list(LAYOUTS), k=random_.randint(2, 5))
    pool = OF_THREE if "fixed" in names else VALUES
    first = 0
    for at, name in enumerate(names):
        values = random_.choices(pool, k=random_.randint(1, 40))
        match random_.randrange(5):
            case 0:
                values = [None] * len(values)
            case 1:
                values = ["abc"] * len(values)
            case 2 if at:
                values = []
        write(tmp_path / f"{at}.parquet", values, name, first)
        first += len(values)
        if values and random_.random() < 0.7:
            parquet_bloom.add_filters(tmp_path / f"{at}.parquet", in_place=True, columns=["k", "s.k"], sync=False)
    hold(tmp_path, ["abc", "b00", "ab0"])


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Three files of two row groups, of three layouts, with filters."""
    folder = tmp_path / "mixed"
    for at, name in enumerate(("string", "string_view", "dictionary")):
        values: list[str | None] = [f"{(i * 7919 + at * 104729) % 9973:05d}" for i in range(2 * ROW_GROUP)]
        write(folder / f"{at}.parquet", values, name, at * 2 * ROW_GROUP)
    parquet_bloom.add_filters(folder, in_place=True, columns=["k"], sync=False)
    return folder


def wanted(folder: Path, at: int) -> tuple[str, Rows]:
    rows = brute(folder)
    return rows[at]["k"], [row for row in rows if row["k"] == rows[at]["k"]]


def test_filters_choose_row_groups_of_every_layout(mixed: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "parquet_bloom")
    for at in (3, 25, 55):
        caplog.clear()
        text, rows = wanted(mixed, at)
        assert rows_of(parquet_bloom.dataset(mixed).to_table(filter=pc.field("k") == text)) == rows
        assert any("1 of 6 row groups can match" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)], ids=str)
def test_engines(mixed: Path, order: tuple[int, ...], tmp_path: Path) -> None:
    """DuckDB and Polars, with each of the layouts as the first."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    folder = tmp_path / "ordered"
    folder.mkdir()
    for name, at in enumerate(order):
        shutil.copy(mixed / f"{at}.parquet", folder / f"{name}.parquet")
    text, rows = wanted(folder, 25)
    ids = [row["id"] for row in rows]
    stored = parquet_bloom.dataset(folder)
    connection = duckdb.connect()
    connection.register("stored", stored)
    for predicate in (f"k = '{text}'", f"k IN ('{text}', 'no')", f"k >= '{text}' AND k <= '{text}'", f"s.k = '{text}'"):
        found = connection.execute(f"SELECT id FROM stored WHERE {predicate}").fetchall()
        inside = [row["id"] for row in rows if row["s"] is not None]
        assert [one for (one,) in found] == (inside if "s.k" in predicate else ids), predicate
    connection.close()
    frame = polars.scan_pyarrow_dataset(stored)
    assert frame.filter(polars.col("k") == text).collect()["id"].to_list() == ids
    assert frame.filter(polars.col("k").is_in([text, "no"])).collect()["id"].to_list() == ids


def test_a_delta_table_after_a_delete(tmp_path: Path) -> None:
    """deltalake writes the file again, and says string_view and binary_view in it."""
    deltalake = pytest.importorskip("deltalake")
    ids = list(range(100))
    table = pa.table({
        "k": [f"k{i}" for i in ids], "b": [b"b%d" % i for i in ids], "s": [{"k": f"s{i}"} for i in ids],
        "l": [[f"l{i}"] for i in ids], "id": ids,
    })  # fmt: skip
    where = str(tmp_path / "table")
    deltalake.write_deltalake(where, table)
    deltalake.DeltaTable(where).delete("id = 7")
    deltalake.write_deltalake(where, table.slice(0, 10), mode="append")
    parquet_bloom.add_filters(f"delta:{where}", columns=["k", "b", "s.k"])
    views = [any(has_views(field.type) for field in pq.read_schema(path)) for path in tmp_path.glob("table/*.parquet")]
    assert any(views), "a file that says views, or this shows nothing"
    duckdb = pytest.importorskip("duckdb")
    for predicate in (None, "id >= 0"):
        stored = parquet_bloom.dataset(f"delta:{where}", predicate)
        assert not any(has_views(field.type) for field in stored.schema)
        for expression, found in (
            (ds.field("k") == "k5", [5, 5]), (ds.field("k").isin(["k5", "k55"]), [5, 5, 55]),
            (ds.field("b") == b"b55", [55]), (ds.field("s", "k") == "s5", [5, 5]), (ds.field("k") == "k7", [7]),
            (ds.field("id") == 5, [5, 5]),
        ):  # fmt: skip
            assert sorted(stored.to_table(filter=expression)["id"].to_pylist()) == found, expression
        assert sorted(duckdb.sql("SELECT id FROM stored WHERE k = 'k5'").fetchall()) == [(5,), (5,)]
    assert len(parquet_bloom.read_table(f"delta:{where}", "k = 'k5'")) == 2


def test_one_file_is_filterable_whatever_it_says(tmp_path: Path) -> None:
    """Views within lists, list views, maps."""
    views = pa.table(
        {
            "v": pa.array(["a", None, "c"], pa.string_view()),
            "b": pa.array([b"a", None, b"c"], pa.binary_view()),
            "l": pa.array([["a", None], None, []], pa.list_(pa.string_view())),
            "large": pa.array([["a", None], None, []], pa.large_list(pa.string_view())),
            "two": pa.array([["a", None], ["d", ""], ["b", "c"]], pa.list_(pa.string_view(), 2)),
            "m": pa.array([[("a", "x")], None, []], pa.map_(pa.string_view(), pa.string_view())),
            "s": pa.array([{"v": "a"}, None, {"v": None}], pa.struct([("v", pa.string_view())])),
        }
    )
    pq.write_table(views, tmp_path / "views.parquet")
    stored = parquet_bloom.dataset(tmp_path / "views.parquet")
    assert not any(has_views(field.type) for field in stored.schema)
    assert stored.schema.field("large").type == pa.large_list(stored.schema.field("large").type.value_field)
    assert stored.to_table().to_pylist() == views.to_pylist()
    assert stored.to_table(filter=pc.field("v") == "c").to_pylist() == views.to_pylist()[2:]
    assert stored.to_table(filter=pc.field("b") == b"a").to_pylist() == views.to_pylist()[:1]
    assert parquet_bloom.read_table(tmp_path / "views.parquet").schema.field("v").type == pa.string_view(), "as pyarrow"


VIEWS = {
    "texts": (pa.string_view(), "a"),
    "bytes": (pa.binary_view(), b"a"),
    "a list": (pa.list_(pa.string_view()), ["x", "a text that lies behind its view"]),
    "a large list": (pa.large_list(pa.string_view()), ["x"]),
    "a list of two": (pa.list_(pa.string_view(), 2), ["x", "y"]),
    "a map": (pa.map_(pa.string_view(), pa.binary_view()), [("k", b"v")]),
}


def test_a_predicate_on_one_column_filters_views_in_another(tmp_path: Path) -> None:
    """Each kind of view beside a column that the predicate is on, of one file and of two."""
    views = {name: pa.array([value, None] * 5, kind) for name, (kind, value) in VIEWS.items()}
    table = pa.table({"id": range(10)} | views)
    paths = [tmp_path / "v.parquet", tmp_path / "w.parquet"]
    for one in paths:
        pq.write_table(table, one, row_group_size=4)
    as_sql, as_expression = "id = 5 OR id = 6", (pc.field("id") == 5) | (pc.field("id") == 6)
    for predicate in (as_sql, as_expression, [[("id", "=", 5)], [("id", "=", 6)]]):
        for sources, times in ((paths[0], 1), (paths, 2)):
            expected = times * table.slice(5, 2).to_pylist()
            assert parquet_bloom.read_table(sources, predicate).to_pylist() == expected
            assert pa.Table.from_batches(parquet_bloom.read_batches(sources, predicate)).to_pylist() == expected
            assert parquet_bloom.count(sources, predicate) == 2 * times
    schemas = [parquet_bloom.read_table(paths[0], predicate).schema for predicate in (as_expression, as_sql)]
    assert schemas[0] == schemas[1]
    for name in VIEWS:
        assert parquet_bloom.count(paths[0], f'"{name}" IS NULL AND id > 4') == 3, name
        rows = parquet_bloom.read_table(paths[0], "id = 6", ["id", name])
        assert rows.to_pylist() == table.select(["id", name]).slice(6, 1).to_pylist(), name


def test_what_has_kernels() -> None:
    text, view = pa.string(), pa.string_view()
    assert filterable(pa.list_view(view)) == pa.list_(text)
    assert filterable(pa.large_list_view(pa.binary_view())) == pa.large_list(pa.binary())
    assert filterable(pa.struct([("a", pa.map_(view, pa.list_(view, 2)))])) == pa.struct(
        [("a", pa.map_(text, pa.list_(text, 2)))]
    )
    assert filterable(pa.dictionary(pa.int8(), text, ordered=True)) == pa.dictionary(pa.int8(), text, ordered=True)
    assert filterable(pa.list_(pa.dictionary(pa.int8(), view)), dictionaries=False) == pa.list_(text)
    assert filterable(pa.timestamp("us", "UTC")) == pa.timestamp("us", "UTC")
