"""The leaves of a Parquet schema: their names, types and levels, and how people name them.

A column is named by its path_in_schema, components joined by dots; a component that holds a dot
or a quote, or is empty, is written as "a.b" (quotes inside doubled), as in SQL:

    user.id      tags.list.element      "dotted.name"      stats."p.99"

Source: parquet-format LogicalTypes.md and the SchemaElement of parquet.thrift.
"""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Any

from parquet_bloom._thrift.parquet.ttypes import ConvertedType, FieldRepetitionType, SchemaElement, Type
from parquet_bloom.errors import FooterError, RequestError, UnknownColumnError, parameter

BOOLEAN, INT32, INT64, INT96 = Type.BOOLEAN, Type.INT32, Type.INT64, Type.INT96
FLOAT, DOUBLE, BYTE_ARRAY, FLBA = Type.FLOAT, Type.DOUBLE, Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY

# The members of LogicalType in the order of their ids.
_LOGICAL = (
    "STRING",
    "MAP",
    "LIST",
    "ENUM",
    "DECIMAL",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "INTEGER",
    "UNKNOWN",
    "JSON",
    "BSON",
    "UUID",
    "FLOAT16",
    "VARIANT",
    "GEOMETRY",
    "GEOGRAPHY",
    "FILE",
)
_CONVERTED = {
    ConvertedType.UTF8: "STRING",
    ConvertedType.ENUM: "ENUM",
    ConvertedType.DECIMAL: "DECIMAL",
    ConvertedType.DATE: "DATE",
    ConvertedType.TIME_MILLIS: "TIME",
    ConvertedType.TIME_MICROS: "TIME",
    ConvertedType.TIMESTAMP_MILLIS: "TIMESTAMP",
    ConvertedType.TIMESTAMP_MICROS: "TIMESTAMP",
    ConvertedType.JSON: "JSON",
    ConvertedType.BSON: "BSON",
    ConvertedType.INTERVAL: "INTERVAL",
}
_MAX_DEPTH = 500
UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_UNIT_NS = {"MILLIS": UNIT_NS["ms"], "MICROS": UNIT_NS["us"], "NANOS": UNIT_NS["ns"]}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column: one leaf of the schema.

    index     its number among the leaves, and among the chunks of every row group
    path      path_in_schema
    physical  Type; type_length in bytes for FIXED_LEN_BYTE_ARRAY
    logical   name of the logical type ("STRING", "INTEGER", ...), from logicalType or else from
              converted_type; "INTERVAL" too; None without one, "?" for one we do not know
    bits, signed       of INTEGER
    scale, precision   of DECIMAL
    unit_ns, utc       of TIME and TIMESTAMP; utc is None where an old converted type does not say
    repeated  some ancestor or the leaf itself may occur many times a row
    optional  some ancestor or the leaf itself may be missing: a row may hold a NULL, or no element
    element   its position in the schema list
    """

    index: int
    path: tuple[str, ...]
    physical: int
    type_length: int = 0
    logical: str | None = None
    bits: int = 0
    signed: bool = True
    scale: int = 0
    precision: int = 0
    unit_ns: int = 0
    utc: bool | None = None
    repeated: bool = False
    element: int = 0
    optional: bool = True

    @property
    def name(self) -> str:
        """The path in the schema, components joined by dots."""
        return _joined(self.path)

    @property
    def type_name(self) -> str:
        """Physical and logical type, as messages name them."""
        text = str(Type._VALUES_TO_NAMES.get(self.physical, self.physical))
        if self.physical == FLBA:
            text = f"{text}({self.type_length})"
        return f"{text} {self.logical}" if self.logical else text

    @property
    def width(self) -> int:
        """Bytes of one value; 0 where every value has its own length."""
        widths = {INT32: 4, INT64: 8, INT96: 12, FLOAT: 4, DOUBLE: 8, FLBA: self.type_length}
        return widths.get(self.physical, 0)

    @property
    def float_bits(self) -> int:
        """16, 32 or 64 for a column that has two zeros and NaN, else 0."""
        if self.physical == FLBA and self.logical == "FLOAT16" and self.type_length == 2:
            return 16
        return {FLOAT: 32, DOUBLE: 64}.get(self.physical, 0)

    @property
    def refusal(self) -> str | None:
        """Why no filter can be built over this column; None if one can."""
        if self.physical == BOOLEAN:
            return "BOOLEAN has two values, which min/max separate, and readers meet all-zero filters for it"
        if self.physical == INT96:
            return "INT96 is deprecated and no engine prunes on it"
        if self.logical == "INTERVAL":
            return "INTERVAL has no order and one span has many spellings, so engines hash it in private ways"
        if self.physical == FLBA and self.type_length < 1:
            return f"FIXED_LEN_BYTE_ARRAY of {self.type_length} bytes holds no values"
        if self.physical not in Type._VALUES_TO_NAMES:
            return f"physical type {self.physical} is unknown"
        return None


@lru_cache(maxsize=1 << 14)
def _joined(path: tuple[str, ...]) -> str:
    return join_path(path)


def join_path(path: Sequence[str]) -> str:
    """Write a path as people type it."""
    return ".".join(quoted(part) if not part or set(part) & set('."') else part for part in path)


def quoted(part: str) -> str:
    """A name in double quotes, as SQL has it too."""
    return '"' + part.replace('"', '""') + '"'


def split_path(text: str) -> tuple[str, ...]:
    """Split a text of join_path. Raises RequestError where a quote is not closed or stands inside."""
    parts: list[str] = []
    at = 0
    while True:
        if text[at : at + 1] == '"':
            part, at = _quoted(text, at + 1)
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            part, at = text[at:end], end
            if '"' in part:
                raise RequestError(f'column {text}: write "{part.replace(chr(34), chr(34) * 2)}" in quotes')
        parts.append(part)
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            raise RequestError(f"column {text}: a dot must follow the closing quote")
        at += 1


def _quoted(text: str, at: int) -> tuple[str, int]:
    parts = []
    while (end := text.find('"', at)) >= 0:
        parts.append(text[at:end])
        if text[end + 1 : end + 2] != '"':
            return '"'.join(parts), end + 1
        at = end + 2
    raise RequestError(f"column {text}: the closing quote is missing")


def find_leaf(leaves: Sequence[Leaf], name: str | tuple[str, ...]) -> Leaf:
    """Find the one leaf that a name means: its whole path, or a prefix that has exactly one leaf.

    Raises UnknownColumnError with near names, or with those a prefix could mean.
    """
    path = split_path(name) if isinstance(name, str) else name
    shown = name if isinstance(name, str) else join_path(name)
    found = [leaf for leaf in leaves if leaf.path == path]
    if not found:
        found = [leaf for leaf in leaves if leaf.path[: len(path)] == path]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(leaf.name for leaf in found[:5]) + (", ..." if len(found) > 5 else "")
        raise UnknownColumnError(f"column {shown} is ambiguous, it fits {len(found)} columns: {names}")
    raise unknown_column(shown, [leaf.name for leaf in leaves])


def unknown_column(shown: str, names: Sequence[str], none: str = "none", where: str = "") -> UnknownColumnError:
    """The message on an unknown name: near names, or some of all; `none` where there are none; `where` before it."""
    from difflib import get_close_matches  # for messages alone

    near = get_close_matches(shown, names, 3, 0.6)
    near += [n for n in names if n.lower() == shown.lower() or n.rsplit(".", 1)[-1] == shown]
    near = [name for name in dict.fromkeys(near) if name != shown][:3]
    if "," in shown and all(part.strip() in names for part in shown.split(",")):
        apart = parameter("columns", [part.strip() for part in shown.split(",")])
        return UnknownColumnError(f"{where}no column {shown}; name each by itself: " + apart)
    if near:
        return UnknownColumnError(f"{where}no column {shown}; near names: {', '.join(near)}")
    some = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return UnknownColumnError(f"{where}no column {shown}; there are: {some or none}")


def choose_leaves(leaves: Sequence[Leaf], patterns: Iterable[str]) -> list[Leaf]:
    """Find the leaves that names or patterns (`user.*`, `*_id`) mean, in schema order, each once.

    A name that exists is never taken as a pattern. A pattern that fits nothing is an error, as a
    name would be.
    """
    chosen: dict[int, Leaf] = {}
    for pattern in patterns:
        found = match_leaves(leaves, pattern)
        chosen.update((leaf.index, leaf) for leaf in found)
    return [chosen[i] for i in sorted(chosen)]


def select_leaves(leaves: Sequence[Leaf], columns: Iterable[str] | None, exclude: Iterable[str] | None) -> list[Leaf]:
    """The leaves that `columns` mean (None: all of them), less those that `exclude` mean."""
    left_out = {leaf.index for leaf in choose_leaves(leaves, exclude or ())}
    chosen = leaves if columns is None else choose_leaves(leaves, columns)
    return [leaf for leaf in chosen if leaf.index not in left_out]


def is_pattern(leaves: Sequence[Leaf], text: str) -> bool:
    """Say whether a text is a pattern, and no name of a column."""
    return _pattern(text) is not None and all(leaf.name != text for leaf in leaves)


_COMPONENT = re.compile(r'"((?:[^"]|"")*)"')


def _pattern(text: str) -> str | None:
    """The fnmatch pattern for a name with `*`, `?` or `[` in it; None for a plain name. Parts in quotes are plain."""
    parts = _COMPONENT.split(text)
    if not any(c in part for part in parts[::2] for c in "*?["):
        return None
    quoted = [glob.escape(join_path((part.replace('""', '"'),))) for part in parts[1::2]]
    return "".join(chain.from_iterable(zip_longest(parts[::2], quoted, fillvalue="")))


def match_leaves(leaves: Sequence[Leaf], pattern: str) -> list[Leaf]:
    """The leaves that one name or pattern means; raises UnknownColumnError if there are none."""
    if not is_pattern(leaves, pattern):
        return [find_leaf(leaves, pattern)]
    wanted = _pattern(pattern) or pattern
    found = [leaf for leaf in leaves if fnmatch.fnmatchcase(leaf.name, wanted)]
    if not found:
        raise UnknownColumnError(f"no column fits the pattern {pattern}")
    return found


# --- reading the schema -----------------------------------------------------------------------


def leaves_of(schema: Sequence[SchemaElement]) -> tuple[Leaf, ...]:
    """Walk the flattened schema tree. Raises FooterError where its counts do not add up."""
    leaves: list[Leaf] = []
    # (children still to come, path, repeated, optional); the root has no name in paths.
    if not schema:
        raise FooterError("the schema is empty")
    open_groups: list[list[Any]] = [[schema[0].num_children or 0, (), False, False]]
    for at, element in enumerate(schema[1:], 1):
        while open_groups and open_groups[-1][0] == 0:
            open_groups.pop()
        if not open_groups:
            raise FooterError(f"the schema has {len(schema) - at} elements more than its groups announce")
        open_groups[-1][0] -= 1
        _, parent, repeated, optional = open_groups[-1]
        path = (*parent, element.name or "")
        repeated = repeated or element.repetition_type == FieldRepetitionType.REPEATED
        optional = optional or element.repetition_type != FieldRepetitionType.REQUIRED
        if len(path) > _MAX_DEPTH:
            raise FooterError(f"the schema is nested deeper than {_MAX_DEPTH} groups")
        if element.type is None:
            open_groups.append([element.num_children or 0, path, repeated, optional])
        else:
            leaves.append(_leaf(element, len(leaves), path, (repeated, optional), at))
    if any(group[0] for group in open_groups):
        raise FooterError("the schema ends before its groups are full")
    return tuple(leaves)


def _leaf(e: SchemaElement, index: int, path: tuple[str, ...], occurs: tuple[bool, bool], at: int) -> Leaf:
    fields: dict[str, Any] = {"index": index, "path": path, "repeated": occurs[0], "optional": occurs[1], "element": at}
    fields |= {"physical": e.type, "type_length": e.type_length or 0}
    union = e.logicalType
    known = next((n for n in _LOGICAL if getattr(union, n) is not None), None) if union is not None else None
    converted = e.converted_type
    if known is not None:
        fields["logical"] = known
        member = getattr(union, known)
        if known == "INTEGER":
            sound = member.bitWidth in (8, 16, 32, 64) and member.isSigned is not None
            fields |= {"bits": member.bitWidth, "signed": member.isSigned} if sound else {"logical": "?"}
        elif known == "DECIMAL":
            sound = member.scale is not None
            fields |= {"scale": member.scale, "precision": member.precision or 0} if sound else {"logical": "?"}
        elif known in ("TIME", "TIMESTAMP"):
            unit = next((ns for n, ns in _UNIT_NS.items() if getattr(member.unit, n, None) is not None), 0)
            fields |= {"unit_ns": unit, "utc": member.isAdjustedToUTC}
    elif union is not None:
        fields["logical"] = "?"  # a member that is newer than the bindings
    elif converted is not None:
        if ConvertedType.UINT_8 <= converted <= ConvertedType.INT_64:
            fields["logical"] = "INTEGER"
            fields["signed"] = converted >= ConvertedType.INT_8
            fields["bits"] = 8 << (converted - ConvertedType.UINT_8) % 4
        elif converted in _CONVERTED:
            logical = fields["logical"] = _CONVERTED[converted]
            if logical == "DECIMAL":
                fields |= {"scale": e.scale or 0, "precision": e.precision or 0}
            elif logical in ("TIME", "TIMESTAMP"):
                millis = converted in (ConvertedType.TIME_MILLIS, ConvertedType.TIMESTAMP_MILLIS)
                fields["unit_ns"] = 1_000_000 if millis else 1_000
        else:
            fields["logical"] = "?"
    return Leaf(**fields)
