"""A table's columns are found in files of other days and other writers: by ids, by physical names, in any layout."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquet_bloom._thrift.parquet.ttypes import FieldRepetitionType, SchemaElement, Type
from parquet_bloom.errors import TableFormatError
from parquet_bloom.source.snapshot import Field, Snapshot, TableFile
from parquet_bloom.source.view import FileView
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location

ID = "PARQUET:field_id"
REQUIRED, OPTIONAL, REPEATED = (getattr(FieldRepetitionType, name) for name in ("REQUIRED", "OPTIONAL", "REPEATED"))


def file_leaves(fields, by_id: bool, schema, name: str = "x.parquet") -> dict[tuple[str, ...], int]:
    """Where a file has the leaves of its table."""
    table = Snapshot("t", "1", tuple(fields), by_id, [])
    return dict(FileView(table, TableFile(name), schema).places)


def group(*elements: SchemaElement, children: int) -> list[SchemaElement]:
    """A file's schema, by hand."""
    return [SchemaElement(name="schema", num_children=children), *elements]


def schema_of_file(tmp_path, schema):
    pq.write_table(pa.schema(schema).empty_table(), tmp_path / "x.parquet")
    with OpenFile(Location(str(tmp_path / "x.parquet"))) as source:
        return source.footer().head.schema


def numbered(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={ID: str(field_id)})


def element(name: str, repetition: int, children: int | None = None, field_id: int | None = None) -> SchemaElement:
    kind = None if children else Type.INT64
    return SchemaElement(name=name, repetition_type=repetition, num_children=children, type=kind, field_id=field_id)


def test_ids_find_a_column_that_was_renamed_and_pass_over_one_that_took_its_name(tmp_path):
    schema = schema_of_file(tmp_path, [numbered("a", pa.int64(), 1), numbered("b", pa.int64(), 2)])
    fields = [Field("b", pa.int64(), field_id=1), Field("a", pa.int64(), field_id=7)]
    found = file_leaves(fields, True, schema)
    assert found == {("b",): 0}, "a is a column of a later day, whatever the file calls a"


def test_files_without_ids_are_read_by_physical_names(tmp_path):
    schema = schema_of_file(tmp_path, [("col-1", pa.int64()), ("id", pa.int64())])
    fields = [Field("id", pa.int64(), field_id=1, physical="col-1"), Field("x", pa.int64(), field_id=2)]
    for by_id in (True, False):
        assert file_leaves(fields, by_id, schema) == {("id",): 0}
    schema = schema_of_file(tmp_path, [numbered("p", pa.int64(), 9), numbered("q", pa.int64(), 1)])
    found = file_leaves([Field("x", pa.int64(), field_id=1, physical="p")], False, schema)
    assert found == {("x",): 0}, "they count where ids do not"


def test_nested_fields_are_found_by_their_ids(tmp_path):
    inner = pa.struct([numbered("old", pa.int32(), 3), numbered("gone", pa.int32(), 4)])
    listed = pa.list_(numbered("item", pa.string(), 6))
    mapped = pa.map_(numbered("key", pa.string(), 8).with_nullable(False), numbered("value", pa.int64(), 9))
    schema = schema_of_file(tmp_path, [numbered("s", inner, 2), numbered("l", listed, 5), numbered("m", mapped, 7)])
    fields = [
        Field("map", pa.map_(pa.string(), pa.int64()), field_id=7,
              children=(Field("key", pa.string(), field_id=8), Field("value", pa.int64(), field_id=9))),
        Field("list", pa.list_(pa.string()), field_id=5, children=(Field("element", pa.string(), field_id=6),)),
        Field("struct", pa.struct([("new", pa.int32()), ("later", pa.int32())]), field_id=2,
              children=(Field("new", pa.int32(), field_id=3), Field("later", pa.int32(), field_id=10))),
    ]  # fmt: skip
    assert file_leaves(fields, True, schema) == {
        ("map", "key_value", "key"): 3,
        ("map", "key_value", "value"): 4,
        ("list", "list", "element"): 2,
        ("struct", "new"): 0,
    }


def test_children_come_from_the_type_where_an_adapter_gives_none(tmp_path):
    kind = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.struct([("b", pa.int64())])))])
    schema = schema_of_file(tmp_path, [("x", pa.int8()), ("s", kind)])
    found = file_leaves([Field("s", kind)], False, schema)
    assert found == {("s", "a"): 1, ("s", "l", "list", "element", "b"): 2}


LISTS = {
    "three levels": [element("l", OPTIONAL, 1), element("bag", REPEATED, 1), element("array_element", OPTIONAL)],
    "two levels": [element("l", OPTIONAL, 1), element("array", REPEATED)],
    "no group": [element("l", REPEATED)],
}


def test_lists_of_all_layouts():
    for layout, elements in LISTS.items():
        schema = group(element("first", REQUIRED), *elements, children=2)
        found = file_leaves([Field("l", pa.list_(pa.int64()))], False, schema)
        assert found == {("l", "list", "element"): 1}, layout
    for name in ("array", "l_tuple"):  # a struct as the repeated group itself
        elements = [element("l", OPTIONAL, 1), element(name, REPEATED, 1), element("b", OPTIONAL)]
        found = file_leaves([Field("l", pa.list_(pa.struct([("b", pa.int64())])))], False, group(*elements, children=1))
        assert found == {("l", "list", "element", "b"): 0}, name


STRUCT, LIST, MAP = pa.struct([("a", pa.int64())]), pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())


SHAPES = [(pa.int64(), STRUCT), (STRUCT, pa.int64()), (LIST, pa.int64()), (LIST, STRUCT), (MAP, LIST), (MAP, STRUCT)]


def test_another_shape_is_no_missing_column(tmp_path):
    for here, there in [*SHAPES, (pa.int64(), LIST)]:
        schema = schema_of_file(tmp_path, [("x", there)])
        with pytest.raises(TableFormatError, match=r"^x\.parquet: column x is a?"):
            file_leaves([Field("x", here)], False, schema)
    with pytest.raises(TableFormatError, match="many values a row"):
        file_leaves([Field("x", pa.int64())], False, group(element("x", REPEATED), children=1))


def test_what_two_columns_could_be_is_an_error():
    schema = group(*(element(name, OPTIONAL, None, 1) for name in "ab"), children=2)
    with pytest.raises(TableFormatError, match="column a is 2 columns of the file"):
        file_leaves([Field("a", pa.int64(), field_id=1)], True, schema)
    with pytest.raises(TableFormatError, match="column a has no field id"):
        file_leaves([Field("a", pa.int64())], True, schema)
