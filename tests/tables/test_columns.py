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
REQUIRED, OPTIONAL, REPEATED = (
    FieldRepetitionType.REQUIRED,
    FieldRepetitionType.OPTIONAL,
    FieldRepetitionType.REPEATED,
)


def file_leaves(fields, by_id: bool, schema, name: str) -> dict[tuple[str, ...], int]:
    """Where a file has the leaves of its table."""
    table = Snapshot("t", "1", tuple(fields), by_id, [])
    return dict(FileView(table, TableFile(name), schema).places)


def schema_of_file(tmp_path, schema: pa.Schema):
    pq.write_table(schema.empty_table(), tmp_path / "x.parquet")
    with OpenFile(Location(str(tmp_path / "x.parquet"))) as source:
        return source.footer().head.schema


def numbered(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={ID: str(field_id)})


def element(name: str, repetition: int, children: int = 0, field_id: int | None = None) -> SchemaElement:
    kind = None if children else Type.INT64
    return SchemaElement(
        name=name, repetition_type=repetition, num_children=children or None, type=kind, field_id=field_id
    )


def test_ids_find_a_column_that_was_renamed_and_pass_over_one_that_took_its_name(tmp_path):
    schema = schema_of_file(tmp_path, pa.schema([numbered("a", pa.int64(), 1), numbered("b", pa.int64(), 2)]))
    fields = [Field("b", pa.int64(), field_id=1), Field("a", pa.int64(), field_id=7)]
    assert file_leaves(fields, True, schema, "x.parquet") == {("b",): 0}, (
        "a is a column of a later day, whatever the file calls a"
    )


def test_files_without_ids_are_read_by_physical_names(tmp_path):
    schema = schema_of_file(tmp_path, pa.schema([("col-1", pa.int64()), ("id", pa.int64())]))
    fields = [Field("id", pa.int64(), field_id=1, physical="col-1"), Field("x", pa.int64(), field_id=2)]
    assert file_leaves(fields, True, schema, "x.parquet") == {("id",): 0}
    assert file_leaves(fields, False, schema, "x.parquet") == {("id",): 0}


def test_physical_names_count_where_ids_do_not(tmp_path):
    schema = schema_of_file(tmp_path, pa.schema([numbered("p", pa.int64(), 9), numbered("q", pa.int64(), 1)]))
    assert file_leaves([Field("x", pa.int64(), field_id=1, physical="p")], False, schema, "x.parquet") == {("x",): 0}


def test_nested_fields_are_found_by_their_ids(tmp_path):
    inner = pa.struct([numbered("old", pa.int32(), 3), numbered("gone", pa.int32(), 4)])
    listed = pa.list_(numbered("item", pa.string(), 6))
    mapped = pa.map_(numbered("key", pa.string(), 8).with_nullable(False), numbered("value", pa.int64(), 9))
    schema = schema_of_file(
        tmp_path, pa.schema([numbered("s", inner, 2), numbered("l", listed, 5), numbered("m", mapped, 7)])
    )
    fields = [
        Field("map", pa.map_(pa.string(), pa.int64()), field_id=7,
              children=(Field("key", pa.string(), field_id=8), Field("value", pa.int64(), field_id=9))),
        Field("list", pa.list_(pa.string()), field_id=5, children=(Field("element", pa.string(), field_id=6),)),
        Field("struct", pa.struct([("new", pa.int32()), ("later", pa.int32())]), field_id=2,
              children=(Field("new", pa.int32(), field_id=3), Field("later", pa.int32(), field_id=10))),
    ]  # fmt: skip
    assert file_leaves(fields, True, schema, "x.parquet") == {
        ("map", "key_value", "key"): 3,
        ("map", "key_value", "value"): 4,
        ("list", "list", "element"): 2,
        ("struct", "new"): 0,
    }


def test_children_come_from_the_type_where_an_adapter_gives_none(tmp_path):
    kind = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.struct([("b", pa.int64())])))])
    schema = schema_of_file(tmp_path, pa.schema([("x", pa.int8()), ("s", kind)]))
    assert file_leaves([Field("s", kind)], False, schema, "x.parquet") == {
        ("s", "a"): 1,
        ("s", "l", "list", "element", "b"): 2,
    }


LISTS = {
    "three levels": [element("l", OPTIONAL, 1), element("bag", REPEATED, 1), element("array_element", OPTIONAL)],
    "two levels": [element("l", OPTIONAL, 1), element("array", REPEATED)],
    "no group": [element("l", REPEATED)],
}


@pytest.mark.parametrize("layout", LISTS)
def test_lists_of_all_layouts(layout):
    schema = [SchemaElement(name="schema", num_children=2), element("first", REQUIRED), *LISTS[layout]]
    assert file_leaves([Field("l", pa.list_(pa.int64()))], False, schema, "x.parquet") == {("l", "list", "element"): 1}


@pytest.mark.parametrize("name", ["array", "l_tuple"])
def test_a_struct_as_the_repeated_group_itself(name):
    schema = [
        SchemaElement(name="schema", num_children=1), element("l", OPTIONAL, 1), element(name, REPEATED, 1),
        element("b", OPTIONAL),
    ]  # fmt: skip
    kind = pa.list_(pa.struct([("b", pa.int64())]))
    assert file_leaves([Field("l", kind)], False, schema, "x.parquet") == {("l", "list", "element", "b"): 0}


STRUCT, LIST, MAP = pa.struct([("a", pa.int64())]), pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (pa.int64(), STRUCT), (STRUCT, pa.int64()), (LIST, pa.int64()), (LIST, STRUCT), (MAP, LIST), (MAP, STRUCT),
        (pa.int64(), LIST),
    ],
    ids=str,
)  # fmt: skip
def test_another_shape_is_no_missing_column(tmp_path, here, there):
    schema = schema_of_file(tmp_path, pa.schema([("x", there)]))
    with pytest.raises(TableFormatError, match=r"^x\.parquet: column x is a?"):
        file_leaves([Field("x", here)], False, schema, "x.parquet")


def test_a_list_without_a_group_is_no_single_value():
    schema = [SchemaElement(name="schema", num_children=1), element("x", REPEATED)]
    with pytest.raises(TableFormatError, match="many values a row"):
        file_leaves([Field("x", pa.int64())], False, schema, "x.parquet")


def test_what_two_columns_could_be_is_an_error():
    schema = [SchemaElement(name="schema", num_children=2), *[element(name, OPTIONAL, 0, 1) for name in "ab"]]
    with pytest.raises(TableFormatError, match="column a is 2 columns of the file"):
        file_leaves([Field("a", pa.int64(), field_id=1)], True, schema, "x.parquet")
    with pytest.raises(TableFormatError, match="column a has no field id"):
        file_leaves([Field("a", pa.int64())], True, schema, "x.parquet")
