"""Columns as callers name them, fields of structs too: files and tables give what pyarrow's own scanner gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from parquet_bloom import read_batches, read_table
from parquet_bloom.errors import UnknownColumnError


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Structs, and a column with a dot in its name; some NOT NULL."""
    kind = pa.struct([pa.field("x", pa.int32()), pa.field("in", pa.struct([pa.field("z", pa.string())]))])
    fields = [pa.field("id", pa.int64(), False), pa.field("place", kind), pa.field("a.b", pa.int64(), False)]
    structs = [None if i == 3 else {"x": i, "in": {"z": str(i)}} for i in range(10)]
    table = pa.Table.from_pydict({"id": range(10), "place": structs, "a.b": range(10)}, pa.schema(fields))
    root = tmp_path_factory.mktemp("places")
    pq.write_table(table, root / "file.parquet", row_group_size=4)
    write_deltalake(root / "table", table)
    return root


CHOSEN = [
    ["id", "place.x"], ["place.x", "id"], ["place.in.z", "place", "place.x"], ["a.b"], ["a.b", "place.in"],
    ["id", "id"], ["place.x", "place.x", "a.b"],
]  # fmt: skip


@pytest.mark.parametrize("is_table", [False, True])
def test_fields_of_structs_are_columns_too(places: Path, is_table: bool) -> None:
    source = f"delta:{places}/table" if is_table else places / "file.parquet"
    data = ds.dataset(places / "file.parquet")
    asked: list[tuple[Any, Any]] = [
        (None, None),
        ("id > 4", pc.field("id") > 4),
        ("place.x > 4", pc.field("place", "x") > 4),
        ("id >= 0", pc.field("id") >= 0),
        ('place.x IS NULL OR "a.b" = 1', pc.field("place", "x").is_null() | (pc.field("a.b") == 1)),
        (pc.field("id") < 5, pc.field("id") < 5),
        (pc.field("id") + 1 > 5, pc.field("id") > 4),  # not understood: all columns are read
    ]
    for columns in CHOSEN:
        for predicate, same in asked:
            expected = data.to_table(columns=columns, filter=same)
            got = read_table(source, predicate, columns)
            assert got.schema == expected.schema, (columns, predicate)
            assert got.equals(expected), (columns, predicate)
            assert pa.Table.from_batches(read_batches(source, predicate, columns)).equals(expected)
            assert read_table(source, predicate, columns, progress=lambda _: None).equals(expected)


def test_fields_that_are_not_there(places: Path) -> None:
    for name in ("place.y", "place.x.y", "id.x", "place.", "place.in.q"):
        for source in (places / "file.parquet", f"delta:{places}/table"):
            for predicate in (None, "id > 4"):
                with pytest.raises(UnknownColumnError, match=f"{places}/.*: no column {name}"):
                    read_table(source, predicate, ["id", name])
