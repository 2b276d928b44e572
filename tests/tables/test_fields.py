"""A table's fields become the leaves that pyarrow writes for such rows: predicates are bound to these."""

from __future__ import annotations

import pyarrow as pa

from parquet_bloom._thrift.parquet.ttypes import SchemaElement, Type
from parquet_bloom.format.statistics import domain_of
from parquet_bloom.source.columns import leaves_of, schema_of
from parquet_bloom.source.snapshot import Field, Snapshot, TableFile
from parquet_bloom.source.view import FileView

TYPES = {
    "int64": (pa.int64(), [("x",)], "integer"),
    "timestamp": (pa.timestamp("us", "UTC"), [("x",)], "integer"),
    "decimal": (pa.decimal128(10, 2), [("x",)], "integer"),
    "date": (pa.date32(), [("x",)], "integer"),
    "string": (pa.string(), [("x",)], "bytes"),
    "double": (pa.float64(), [("x",)], "float"),
    "list": (pa.list_(pa.int32()), [("x", "list", "element")], "integer"),
    "struct": (pa.struct([("a", pa.float32()), ("b", pa.binary())]), [("x", "a"), ("x", "b")], "float"),
}


def test_leaves_have_the_paths_and_the_order_of_parquet() -> None:
    for name, (kind, paths, domain) in TYPES.items():
        leaves = leaves_of([Field("first", pa.int8()), Field("x", kind)])
        assert [leaf.path for leaf in leaves[1:]] == paths, f"{name}: names in a predicate are looked up by these"
        assert [leaf.index for leaf in leaves] == list(range(len(leaves))), "an index is a position among them"
        assert domain_of(leaves[1]) == domain, f"{name}: bounds of the log are places in this order"


def test_a_struct_without_fields_has_no_leaves() -> None:
    empty = pa.struct([])
    within = pa.struct([("a", pa.int64()), ("b", pa.list_(empty)), ("c", pa.map_(pa.string(), empty))])
    fields = [Field("e", empty), Field("x", within), Field("l", pa.list_(within)), Field("y", pa.int64())]
    leaves = leaves_of(fields)
    assert [leaf.path for leaf in leaves] == [("x", "a"), ("l", "list", "element", "a"), ("y",)]
    schema = [SchemaElement(name="root", num_children=1), SchemaElement(name="y", type=Type.INT64)]
    view = FileView(Snapshot("t", "1", tuple(fields), False, []), TableFile("a file"), schema)
    assert view.places == {("y",): 0}, "each leaf has its own place"


def test_a_required_field_stays_required() -> None:
    field = Field("id", pa.int64(), nullable=False)
    assert not schema_of([field]).field("id").nullable
    assert not leaves_of([field])[0].optional, "IS NULL is then never true"


def test_what_the_log_says_is_no_part_of_a_files_identity() -> None:
    bare, told = TableFile("a/b"), TableFile("a/b", rows=3, constants={"p": pa.scalar(1)})
    assert {bare} == {told}, "a file is one file, whatever is known of it, and one key in a table of results"
