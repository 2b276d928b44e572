"""Tables made by hand over real files: columns renamed, dropped, added again, promoted; constants, defaults, deletes.

No library writes all of it. Rows are known by field ids, so what a table holds is known without reading it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import parquet_bloom
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import domain_of
from parquet_bloom.format.values import Operand, operand
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.source.columns import leaves_of
from parquet_bloom.source.snapshot import Field, FileBounds, Snapshot, TableFile
from support.random_questions import random_predicate

VALUES: dict[pa.DataType, list[Any]] = {
    pa.int32(): [-7, 0, 1, 2, 5, 100, 2**31 - 1],
    pa.int64(): [-7, 0, 1, 2, 5, 100, 2**40],
    pa.float32(): [0.0, -0.0, 1.5, 0.5, -2.25, float("nan")],
    pa.float64(): [0.0, -0.0, 1.5, 0.1, -2.25, float("nan"), float("inf")],
    pa.string(): ["", "a", "b", "ab", "zz", "é"],
    pa.decimal128(9, 2): [Decimal("1.20"), Decimal("-0.01"), Decimal("99.99")],
    pa.decimal128(20, 2): [Decimal("1.20"), Decimal("-0.01"), Decimal("123456789012.00")],
    pa.date32(): [dt.date(2026, 1, 1), dt.date(2026, 1, 2), dt.date(1969, 12, 31)],
    pa.timestamp("us", "UTC"): [dt.datetime(2026, 1, 1, 12, 0, 0, 1, dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
}
PROMOTED = {pa.int32(): pa.int64(), pa.float32(): pa.float64(), pa.decimal128(9, 2): pa.decimal128(20, 2)}
PARTS = ["north", "south", "", None]


@dataclass(frozen=True)
class Positions:
    """Deleted rows of a file."""

    of: tuple[int, ...]

    @property
    def rows(self) -> int | None:
        return len(self.of)

    def positions(self) -> NDArray[np.int64]:
        return np.array(self.of, np.int64)


@dataclass(frozen=True)
class Remainder:
    """A bucket: whole numbers by their remainder."""

    path: tuple[str, ...]
    by: int
    of: int

    def admits(self, leaf: Leaf, operand: Operand) -> bool:
        return operand.lower != operand.upper or operand.lower % self.by == self.of


@dataclass
class Column:
    """A column of the table as it is now. Values lie in rows under `id`."""

    id: int
    name: str
    type: pa.DataType
    children: list[Column] = field(default_factory=list)
    default: Any = None

    @property
    def arrow(self) -> pa.DataType:
        if self.children:
            return pa.struct([pa.field(child.name, child.arrow) for child in self.children])
        return self.type

    def as_field(self, by_id: bool) -> Field:
        children = tuple(child.as_field(by_id) for child in self.children)
        default = None if self.default is None else pa.scalar(self.default, self.type)
        number, physical = (self.id, "") if by_id else (None, f"col-{self.id}")
        return Field(self.name, self.arrow, True, number, physical, children, default)

    def stored(self, by_id: bool) -> pa.Field:
        """As a file has it that is written now."""
        kind = pa.struct([child.stored(by_id) for child in self.children]) if self.children else self.type
        name = self.name if by_id else f"col-{self.id}"
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(self.id)} if by_id else None)


@dataclass
class Evolving:
    """A table that changes.

    rows   of the table as they are now, each a mapping field id -> value; None for a row that is deleted
    """

    folder: Path
    rng: Random
    by_id: bool
    columns: list[Column] = field(default_factory=list)
    files: list[tuple[TableFile, list[dict[int, Any]], list[bool]]] = field(default_factory=list)
    ids: int = 0
    part: Column | None = None

    def new(self, name: str, kind: pa.DataType | None = None, children: list[Column] | None = None) -> Column:
        self.ids += 1
        kinds = [one for one in VALUES if one not in PROMOTED.values()]
        return Column(self.ids, name, kind or self.rng.choice(kinds), children or [])

    def start(self) -> None:
        self.part = self.new("part", pa.string())
        place = self.new("place", children=[self.new("x", pa.int32()), self.new("y", pa.string())])
        lists = self.new("tags", pa.list_(pa.field("element", pa.int64(), metadata=self._id())))
        self.columns = [self.new("n", pa.int32()), self.new("f", pa.float32()), self.part, place, lists]
        self.columns += [self.new(f"c{i}") for i in range(3)]

    def _id(self) -> dict[str, str] | None:
        self.ids += 1
        return {"PARQUET:field_id": str(self.ids)} if self.by_id else None

    # --- changes ----------------------------------------------------------------------------------

    def change(self) -> None:
        """One random change of the schema."""
        plain = [one for one in self.columns if one is not self.part and not one.children and not _is_list(one.type)]
        match self.rng.choice(["rename", "swap", "drop", "add", "again", "promote", "inside"]):
            case "rename":
                self.rng.choice(self.columns).name += "_"
            case "swap" if len(plain) > 1:
                one, other = self.rng.sample(plain, 2)
                one.name, other.name = other.name, one.name
            case "drop" if len(plain) > 2:
                self.columns.remove(self.rng.choice(plain))
            case "add":
                added = self.new(f"d{self.ids}")
                added.default = self.rng.choice([None, *VALUES[added.type]])
                self.columns.append(added)
            case "again" if plain:
                gone = self.rng.choice(plain)
                self.columns[self.columns.index(gone)] = self.new(gone.name, gone.type)
            case "promote":
                one = self.rng.choice(plain)
                one.type = PROMOTED.get(one.type, one.type)
            case "inside":
                place = next(one for one in self.columns if one.children)
                if self.rng.random() < 0.5:
                    inner = self.new(f"z{self.ids}", pa.int64())
                    inner.default = self.rng.choice([None, 5, 100])
                    place.children.append(inner)
                else:
                    self.rng.choice(place.children).name += "_"
        self.rng.shuffle(self.columns)

    def append(self) -> None:
        """A file of some rows in small row groups, with filters or without, and what a log says of it."""
        rng, n = self.rng, self.rng.randrange(1, 40)
        fixed = rng.choice(PARTS) if rng.random() < 0.7 else PARTS
        rows = [{key: value for one in self.columns for key, value in self._row(one, fixed).items()} for _ in range(n)]
        assert self.part is not None
        written = [one for one in self.columns if one is not self.part or fixed is PARTS or rng.random() < 0.3]
        table = pa.Table.from_arrays(
            [pa.array([_value(one, row, self.by_id) for row in rows], one.stored(self.by_id).type) for one in written],
            schema=pa.schema([one.stored(self.by_id) for one in written]),
        )
        path = self.folder / f"{len(self.files)}.parquet"
        pq.write_table(table, path, row_group_size=rng.choice([3, 7, 100]), store_schema=rng.random() < 0.5)
        if rng.random() < 0.7:
            leaves = parquet_bloom.inspect(path).files[0].columns
            if leaves:
                parquet_bloom.add_filters(path, in_place=True, columns=["*"], sync=False)
        dead = [rng.random() < 0.2 for _ in rows] if rng.random() < 0.5 else [False] * n
        constants = {} if fixed is PARTS else {self.part.id: pa.scalar(fixed, pa.string())}
        file = TableFile(str(path), rows=n, size=path.stat().st_size, entry=(constants, table.schema))
        self.files.append((file, rows, dead))

    def _row(self, one: Column, part: Any) -> dict[int, Any]:
        rng = self.rng
        if one is self.part:
            return {one.id: rng.choice(PARTS) if part is PARTS else part}
        if one.children:
            if rng.random() < 0.2:
                return {one.id: None}
            return {one.id: True} | {k: v for child in one.children for k, v in self._row(child, part).items()}
        if _is_list(one.type):
            return {one.id: rng.choice([None, [], [1], [1, None, 5], [7, 7, 2]])}
        return {one.id: rng.choice([None, *rng.sample(VALUES[one.type], 2)])}

    # --- what there is ----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The table as it is, with a log that knows bounds of some columns of some files."""
        fields = tuple(one.as_field(self.by_id) for one in self.columns)
        leaves = leaves_of(fields)
        files = []
        for file, rows, dead in self.files:
            constants, _ = file.entry
            names = {one.id: one.name for one in self.columns}
            bounds, buckets = {}, []
            for one in self.columns:
                if one.children or _is_list(one.type) or self.rng.random() < 0.4 or one.id not in rows[0]:
                    continue
                [leaf] = [leaf for leaf in leaves if leaf.path == (one.name,)]
                values = [row[one.id] for row in rows]
                bounds[leaf.path] = self._bounds(leaf, values)
                whole = {value % 3 for value in values if value is not None} if pa.types.is_integer(one.type) else set()
                if len(whole) == 1:
                    buckets.append(Remainder(leaf.path, 3, whole.pop()))
            gone = tuple(i for i, is_dead in enumerate(dead) if is_dead)
            files.append(
                replace(
                    file,
                    constants={names[key]: value for key, value in constants.items() if key in names},
                    bounds=bounds, buckets=tuple(buckets), deletes=Positions(gone) if gone else None,
                )
            )  # fmt: skip
        return Snapshot("hand:made", "1", fields, self.by_id, files)

    def _bounds(self, leaf: Leaf, values: list[Any]) -> FileBounds:
        nulls = sum(value is None for value in values)
        count = nulls if self.rng.random() < 0.7 else None
        known = [value for value in values if value is not None and value == value]
        nan_free = len(known) + nulls == len(values)
        if domain_of(leaf) is None or not known:
            return FileBounds(null_count=count, has_values=nulls < len(values), nan_free=nan_free)
        places = [operand(value, leaf) for value in known]
        low, high = min(one.lower for one in places), max(one.upper for one in places)
        if self.rng.random() < 0.3:
            low = None
        return FileBounds(low, high, count, True, nan_free)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table, in order, by its names now."""
        living = [row for _, rows, dead in self.files for row, is_dead in zip(rows, dead, strict=True) if not is_dead]
        return [{one.name: _now(one, row) for one in self.columns} for row in living]

    def table(self) -> pa.Table:
        """The same as pyarrow has it."""
        schema = pa.schema([pa.field(one.name, one.arrow) for one in self.columns])
        return pa.Table.from_pylist(self.rows(), schema)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind))


def _value(one: Column, row: Mapping[int, Any], by_id: bool) -> Any:
    """A value as a file stores it, under the names of that day."""
    if one.children and row[one.id] is not None:
        return {child.stored(by_id).name: row[child.id] for child in one.children}
    return row[one.id]


def _now(one: Column, row: Mapping[int, Any]) -> Any:
    if one.id not in row:
        return one.default
    if one.children and row[one.id] is not None:
        return {child.name: row.get(child.id, child.default) for child in one.children}
    return row[one.id]


def evolved(seed: int, folder: Path) -> Evolving:
    """A table after a few appends with changes between them."""
    rng = Random(seed)
    made = Evolving(folder, rng, by_id=rng.random() < 0.6)
    made.start()
    for _ in range(rng.randrange(2, 6)):
        made.append()
        for _ in range(rng.randrange(3)):
            made.change()
    return made


def a_tree(table: Evolving, rng: Random) -> Predicate:
    """A random predicate over the columns as they are now."""
    leaves: dict[tuple[str, ...], tuple[pa.DataType, list[Any]]] = {}
    for one in table.columns:
        for path, leaf in [((one.name, child.name), child) for child in one.children] or [((one.name,), one)]:
            leaves[path] = leaf.type, [1, 5, 9] if _is_list(leaf.type) else VALUES[leaf.type]
    return random_predicate(rng, leaves)
