"""Finds a table's columns in a file: by field id, by physical name, in every layout of lists and maps.

    table   Field tree, leaves as `source.columns.leaves_of` has them      tags.list.element
    file    SchemaElements, leaves as `format.schema` has them  tags.bag.array_element

A file keeps the names of the day it was written. Source: parquet-format LogicalTypes.md, "Lists" and "Maps" with their
rules for files of older writers; Iceberg's spec, "Column Projection"; Delta's protocol, "Column Mapping".
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from parquet_bloom._thrift.parquet.ttypes import FieldRepetitionType, SchemaElement
from parquet_bloom.errors import RequestError, TableFormatError
from parquet_bloom.format.arrow_types import fields_of, is_list, with_fields
from parquet_bloom.format.footer import decode_footer
from parquet_bloom.format.literals import day_number, read_date
from parquet_bloom.format.schema import BYTE_ARRAY, INT32, INT64, Leaf
from parquet_bloom.source.snapshot import Field, TableFile

# --- a table's fields as leaves -------------------------------------------------------------------
#
# A table's fields as the Arrow schema of its rows, and as leaves that predicates can be bound to.


def schema_of(fields: Sequence[Field]) -> pa.Schema:
    """The schema of the rows that are read from a table."""
    return pa.schema([pa.field(field.name, field.type, field.nullable) for field in fields])


def leaves_of(fields: Sequence[Field]) -> tuple[Leaf, ...]:
    """The leaves of a table's schema, as a file would have them that pyarrow writes now; index from 0."""
    return _leaves_of(tuple(fields))


def has_leaves(kind: pa.DataType) -> bool:
    """Whether a file can have a column of a type: none of a struct without fields, nor of what is made of such."""
    inside = [has_leaves(one.type) for one in fields_of(kind)]
    return any(inside) if pa.types.is_struct(kind) else all(inside)


def _stored(kind: pa.DataType) -> pa.DataType:
    """A type without the parts that no file can have."""
    inner = [one.with_type(_stored(one.type)) for one in fields_of(kind) if has_leaves(one.type)]
    return with_fields(kind, inner) if inner else kind


@lru_cache(64)
def _leaves_of(fields: tuple[Field, ...]) -> tuple[Leaf, ...]:
    import pyarrow.parquet as pq  # a tenth of a second, which only tables are to cost

    stored = [pa.field(one.name, _stored(one.type), one.nullable) for one in schema_of(fields) if has_leaves(one.type)]
    sink = io.BytesIO()
    pq.ParquetWriter(sink, pa.schema(stored)).close()
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    return decode_footer(data[-8 - length : -8], len(data) - 8 - length).leaves


# --- a table's fields in a file -------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """A field of a file: its children, or its place among the leaves; -1 for a group."""

    element: SchemaElement
    leaf: int = -1
    children: list[_Node] = field(default_factory=list)

    @property
    def repeated(self) -> bool:
        return bool(self.element.repetition_type == FieldRepetitionType.REPEATED)


class Match(NamedTuple):
    """A field of a table in one file.

    field     of the table
    at        its place among the children of its group in the file: of the root, a struct, a list's element or a
              map's key and value; None: the file lacks it
    name      there
    leaf      its place among the file's leaves; None for a group, and for what the file lacks
    children  of the field
    same_name whether the file calls by the field's name this column, and no other one that could be taken for it
    """

    field: Field
    at: int | None = None
    name: str = ""
    leaf: int | None = None
    children: tuple[Match, ...] = ()
    same_name: bool = True

    def leaves(self) -> Iterator[int | None]:
        """The place of each leaf of the field, in their order; None for those that the file lacks."""
        if not has_leaves(self.field.type):
            return
        if not self.children:
            yield self.leaf
        for child in self.children:
            yield from child.leaves()

    @property
    def same_names(self) -> bool:
        """Whether the file calls the field, and all below it, as the table does."""
        return self.same_name and all(child.same_names for child in self.children)


def matches(
    fields: Sequence[Field],
    by_id: bool,
    schema: Sequence[SchemaElement],
    file: object,
    logged: Collection[str] = (),
) -> tuple[Match, ...]:
    """The places in a file of its table's fields. A field without a place is surely absent.

    by_id, logged  as `Snapshot` has them; of a column in `logged` a file counts as lacking it
    schema  the file's, flattened, its root first
    file    a TableFile, whose own fields go first; named in errors
    Raises TableFormatError where it cannot be told which column of the file is meant.
    """
    if isinstance(file, TableFile) and file.fields:
        fields, by_id = file.fields, False
    root = _tree(schema)
    search = _Search(file, by_id and any(element.field_id is not None for element in schema))
    found = [search.match(one, *((None, None) if one.name in logged else search.child(one, root))) for one in fields]
    alike = _named_alike(found, root)
    return tuple(one._replace(same_name=True) if one.field.name in logged else one for one in alike)


def _named_alike(found: Sequence[Match], group: _Node) -> tuple[Match, ...]:
    """The fields of one group, each with whether its name means the same there."""
    names = {node.element.name for node in group.children}
    return tuple(
        one._replace(same_name=one.name == one.field.name if one.at is not None else one.field.name not in names)
        for one in found
    )


def identities(fields: Sequence[Field]) -> dict[str, tuple[str, ...]]:
    """The name of each leaf of a table -> its identity among all columns of that name, past and future: ids and type.

    Where a table has no ids names are its columns' identity: there they are never another's.
    """
    found = [identity for one in fields for identity in _identities(one, ())]
    return {leaf.name: identity for leaf, identity in zip(leaves_of(fields), found, strict=True)}


def _identities(one: Field, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not has_leaves(one.type):
        return
    path = (*above, str(one.field_id) if one.field_id is not None else one.physical or one.name)
    children = children_of(one)
    if not children:
        yield (*path, str(one.type))
    for child in children:
        yield from _identities(child, path)


def _tree(schema: Sequence[SchemaElement]) -> _Node:
    rest = iter(schema)
    leaves = iter(range(len(schema)))

    def node(element: SchemaElement) -> _Node:
        if element.type is not None:
            return _Node(element, next(leaves))
        return _Node(element, -1, [node(next(rest)) for _ in range(element.num_children or 0)])

    return node(next(rest))


def children_of(one: Field) -> Sequence[Field]:
    """The children of a field that an adapter gave, or else those of its type."""
    if one.children:
        return one.children
    return [Field(child.name, child.type, child.nullable) for child in fields_of(one.type)]


class _Search(NamedTuple):
    """In one file, by ids or else by names."""

    file: object
    ids: bool

    def child(self, one: Field, group: _Node) -> tuple[int | None, _Node | None]:
        """The field of a group that is this one of the table, and its place."""
        nodes = list(enumerate(group.children))
        if self.ids:
            if one.field_id is None:
                raise self._unclear(one, "has no field id in the table")
            found = [(at, node) for at, node in nodes if node.element.field_id == one.field_id]
        elif one.reused:
            reason = "shared a name with another column, and the file has no field ids that say which it has"
            raise self._unclear(one, f"{reason}; give the table its schema.name-mapping.default")
        else:
            names = {one.physical or one.name, *one.aliases}
            found = [(at, node) for at, node in nodes if node.element.name in names]
        if len(found) > 1:
            raise self._unclear(one, f"is {len(found)} columns of the file")
        if found and found[0][1].repeated and not is_list(one.type):
            raise self._unclear(one, "is many values a row in the file, and one in the table")
        return found[0] if found else (None, None)

    def match(self, one: Field, at: int | None, node: _Node | None) -> Match:
        """The place in the file of a field and all below it."""
        children = children_of(one)
        name = "" if node is None else node.element.name
        if pa.types.is_struct(one.type):
            if node is not None and node.leaf >= 0:
                raise self._unclear(one, "is a struct in the table and none in the file")
            below = [(child, *((None, None) if node is None else self.child(child, node))) for child in children]
        elif pa.types.is_map(one.type) or is_list(one.type):
            entries = [None] * len(children) if node is None else self._entries(one, node, len(children))
            for child, entry in zip(children, entries, strict=True):
                known = None if entry is None or child.field_id is None else entry.element.field_id
                if self.ids and known not in (None, child.field_id):
                    raise self._unclear(child, f"of {one.name} has another field id in the file")
            below = [
                (child, None if entry is None else place, entry)
                for place, (child, entry) in enumerate(zip(children, entries, strict=True))
            ]
        else:
            if node is not None and node.leaf < 0:
                raise self._unclear(one, "is one value in the table and none in the file")
            return Match(one, at, name, None if node is None else node.leaf)
        found = tuple(self.match(*entry) for entry in below)
        if pa.types.is_struct(one.type) and node is not None:
            found = _named_alike(found, node)
        return Match(one, at, name, None, found)

    def _entries(self, one: Field, node: _Node, n: int) -> list[_Node]:
        """The element of a list, or key and value of a map: by their position, as their names are any writer's own."""
        if n == 1 and node.repeated:  # a list without a group of its own
            return [node]
        middle = node.children[0] if len(node.children) == 1 else None
        if middle is None or not middle.repeated or (n == 2 and len(middle.children) != 2):
            raise self._unclear(one, f"is a {'map' if n == 2 else 'list'} in the table and none in the file")
        if n == 2:
            return middle.children
        two_levels = len(middle.children) != 1 or middle.element.name in ("array", f"{node.element.name}_tuple")
        return [middle if two_levels else middle.children[0]]

    def _unclear(self, one: Field, reason: str) -> TableFormatError:
        return TableFormatError(self.file, f"column {one.name} {reason}")


# --- values of folders' names ---------------------------------------------------------------------
#
# Hive-style folders, `year=2026/city=Kyiv/x.parquet`, as columns with one value a file.
#
# Types follow pyarrow: a key whose values are all whole numbers of 32 bits is int32, any other a
# string; `__HIVE_DEFAULT_PARTITION__` is NULL. Where all are dates, `day=2026-01-02`, the key is a
# string in rows, and can be compared with dates as well as with texts; both have one order.

Pairs = Sequence[tuple[str, str | None]]
Value = int | bytes | None
_WHOLE = re.compile(r"-?[0-9]{1,10}")


def _is_int32(text: str) -> bool:
    return _WHOLE.fullmatch(text) is not None and -(1 << 31) <= int(text) < 1 << 31


def _is_date(text: str) -> bool:
    try:
        read_date(text)
    except ValueError:
        return False
    return True


def partition_keys(files: Iterable[Pairs]) -> tuple[Leaf, ...]:
    """A pseudo leaf for each key, index -1, -2, ... in the order of their appearance.

    Whole numbers are INT32, texts BYTE_ARRAY STRING; dates BYTE_ARRAY DATE, which format.values.key_for makes
    a text or a date by the literals it is compared with.
    Raises RequestError where files lie under different keys, as no table has them all.
    """
    values: dict[str, list[str]] = {}
    names: list[str] | None = None
    for pairs in files:
        found = [key for key, _ in pairs]
        if names is not None and sorted(set(found)) != sorted(set(names)):
            both = [", ".join(n) or "none" for n in (names, found)]
            raise RequestError(f"folders name different partition columns: {both[0]} here, {both[1]} there")
        names = found if names is None else names
        for key, value in pairs:
            values.setdefault(key, []).extend([value] if value is not None else [])
    keys = []
    for at, (name, texts) in enumerate(values.items(), 1):
        whole, days = (bool(texts) and all(map(test, texts)) for test in (_is_int32, _is_date))
        logical = None if whole else "DATE" if days else "STRING"
        keys.append(Leaf(-at, (name,), INT32 if whole else BYTE_ARRAY, logical=logical))
    return tuple(keys)


def partition_value(key: Leaf, pairs: Pairs) -> Value:
    """The value of one file, in the order of statistics.domain_of: an int, the bytes of a text, or None."""
    text = dict(pairs).get(key.path[0])
    if text is None:
        return None
    if key.logical == "DATE" and key.physical == INT32:
        return day_number(read_date(text))
    return int(text) if key.physical in (INT32, INT64) else text.encode("utf-8", "surrogateescape")
