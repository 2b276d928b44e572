"""Random tables by deltalake, pyiceberg and DuckLake, random predicates: our answers are those of their rows."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, StringType
from support import delta_tables as made
from support import iceberg_tables
from support.ducklake_tables import Lake
from support.random_questions import few_of, random_rows
from support.repeats import more_then_slow
from table_judges import Asked, Values, hold

import parquet_bloom

pytestmark = [
    pytest.mark.filterwarnings("ignore:Iceberg scan planning"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match"),
    pytest.mark.filterwarnings("ignore::parquet_bloom.errors.TableWarning"),
]

# --- Delta ------------------------------------------------------------------------------------------


def delta_rows(root: Path) -> pa.Table:
    """The rows as deltalake reads them, in types that pyarrow takes rows of."""
    table = pa.table(DeltaTable(str(root)).to_pyarrow_table())
    kinds = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return table.cast(pa.schema([pa.field(one.name, kinds.get(one.type, one.type)) for one in table.schema]))


def delete_by_vectors(root: Path, rng: Random) -> list[int]:
    """Delete some rows of some files by deletion vectors; the deleted values of `row`."""
    log = sorted((root / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for path in log for line in path.read_text().splitlines()]
    live = {path.removeprefix("file://") for path in DeltaTable(str(root)).file_uris()}
    commit: list[dict[str, Any]] = [made.protocol(["deletionVectors"], ["deletionVectors"])]
    gone: list[int] = []
    for action in actions:
        add = action.get("add")
        if add is None or str(root / unquote(add["path"])) not in live or rng.random() < 0.4:
            continue
        rows = pq.ParquetFile(root / unquote(add["path"])).read(["row"])["row"].to_pylist()
        dead = [at for at in range(len(rows)) if rng.random() < 0.4]
        gone += [rows[at] for at in dead]
        remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
        commit += [{"remove": remove}, {"add": add | {"deletionVector": made.inline(dead)}}]
    made.commit(root, len(log), *commit)
    return gone


def hold_delta(seed: int, root: Path, predicates: int, asked: Asked) -> None:
    rng = Random(seed)
    made.random_table(root, rng, rng.randrange(2, 7))
    whole = delta_rows(root)
    frame = pl.scan_delta(str(root)).select("row").collect()
    assert sorted(frame["row"]) == sorted(whole["row"].to_pylist()), "Polars and deltalake agree"
    plain = {**made.KINDS, **made.PARTITIONS, "row": (pa.int64(), range(40))}
    values: Values = {
        name: plain[name]
        for name in whole.column_names
        if not pa.types.is_nested(plain[name][0]) and whole.schema.field(name).type == plain[name][0]
    }
    if rng.random() < 0.5:
        filtered = [path.removeprefix("file://") for path in DeltaTable(str(root)).file_uris()]
        parquet_bloom.add_filters(filtered, in_place=True, force=True, columns=["row"], placement="footer", sync=False)
    hold(f"delta:{root}", whole, values, rng, predicates, asked)
    hold(str(root), whole, values, rng, 1, asked)
    if rng.random() < 0.7 and not list((root / "_delta_log").glob("*.checkpoint.parquet")):
        gone = set(delete_by_vectors(root, rng))
        left = pa.array([i for i, row in enumerate(whole["row"].to_pylist()) if row not in gone], pa.int64())
        hold(f"delta:{root}", whole.take(left), values, rng, predicates, asked)


@pytest.mark.parametrize(
    "seeds",
    [range(5), *more_then_slow([range(100, 105), *(range(first, first + 30) for first in range(200, 1100, 100))], 1)],
    ids=str,
)
def test_delta(seeds: range, tmp_path: Path) -> None:
    asked = Asked()
    for seed in seeds:
        hold_delta(seed, tmp_path / str(seed), 40 if seed >= 100 else 8, asked)
    assert asked.excluded > 20, f"the log excludes files: {asked}"
    assert asked.by.keys() >= {"partition", "bounds"}


# --- Iceberg and DuckLake ---------------------------------------------------------------------------

DAYS = [dt.date(2026, 1, 1), dt.date(2026, 3, 5), dt.date(1969, 12, 31)]
TEXTS = ["", "a", "ab", "abcdefghijklmnopq", "é" * 20, "\U0001f600" * 17, "zz"]
NUMBERS = [-5, 0, 1, 7, 1000, 2**31 - 1]
TRANSFORMS = {"n": BucketTransform(4), "s": TruncateTransform(2), "d": DayTransform(), "p": IdentityTransform()}


class Growing:
    """A table that grows, changes its schema and loses rows, by its own library.

    name     as our functions name it
    values   of each column but `row`, which counts
    options  of our functions, for it
    """

    name: str
    values: dict[str, list[Any]]
    options: dict[str, Any]

    def __init__(self, rng: Random, nulls: Sequence[float]) -> None:
        self.rng, self.next, self.nulls, self.options = rng, 0, nulls, {}

    def rows(self) -> list[dict[str, Any]]:
        """Some new rows, of a few of the values, so that bounds exclude files."""
        few, first = few_of(self.rng, self.values), self.next
        self.next += self.rng.randint(1, 20)
        rows = random_rows(self.rng, few, self.next - first, self.rng.choice(self.nulls))
        return [{"row": first + i, **row} for i, row in enumerate(rows)]

    def append(self) -> None:
        raise NotImplementedError

    def change(self) -> None:
        raise NotImplementedError

    def whole(self) -> pa.Table:
        """All rows, as the library reads them, in the types that predicates are made for."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class IcebergTable(Growing):
    """Also its partition spec changes, and rows go in both of Iceberg's ways."""

    name = "iceberg:cat/ns.t"

    def __init__(self, root: Path, rng: Random) -> None:
        super().__init__(rng, (0, 0.2))
        root.mkdir()
        self.lake = iceberg_tables.Warehouse(root)
        self.options = {"catalog_properties": self.lake.properties}
        schema = pa.schema(
            [("row", pa.int64()), ("n", pa.int32()), ("s", pa.string()), ("d", pa.date32()), ("p", pa.string()),
             ("f", pa.float32())]
        )  # fmt: skip
        self.table = self.lake.create(schema)
        self.values = {
            "n": NUMBERS, "s": TEXTS, "d": DAYS, "p": ["x", "y", ""], "f": [0.0, -0.0, 1.5, -2.25, float("nan")],
        }  # fmt: skip

    def append(self) -> None:
        iceberg_tables.append(self.table, self.rows(), row_group_size=self.rng.choice([3, 100]))

    def change(self) -> None:
        name = self.rng.choice(list(self.values))
        match self.rng.choice(["rename", "add", "again", "promote", "spec", "delete", "positions"]):
            case "rename":
                with self.table.update_schema() as update:
                    update.rename_column(name, name + "_")
                self.values[name + "_"] = self.values.pop(name)
            case "add":
                added = f"c{len(self.values)}_{self.next}"
                with self.table.update_schema() as update:
                    update.add_column(added, StringType())
                self.values[added] = TEXTS
            case "again" if not any(
                part.source_id == self._id(name) for spec in self.table.specs().values() for part in spec.fields
            ):
                kind = self.table.schema().find_type(name)
                with self.table.update_schema() as update:
                    update.delete_column(name)
                with self.table.update_schema() as update:
                    update.add_column(name, kind)
            case "promote":
                kind = self.table.schema().find_type(name)
                wider = LongType() if isinstance(kind, IntegerType) else DoubleType() if name.startswith("f") else None
                if wider is not None:
                    with self.table.update_schema() as update:
                        update.update_column(name, wider)
            case "spec" if name[0] in TRANSFORMS and not self.table.spec().fields:
                with self.table.update_spec() as update:
                    update.add_field(name, TRANSFORMS[name[0]], f"part_{name}")
            case "delete" if self._id("p") in self._partitioned() or not self._partitioned():
                self.table.delete(f"row = {self.rng.randrange(self.next)}")
            case "positions":
                self.delete_positions()

    def _id(self, name: str) -> int:
        return next((one.field_id for one in self.table.schema().fields if one.name == name), -1)

    def _partitioned(self) -> set[int]:
        """The columns that some spec partitions by; pyiceberg rewrites files of identity alone."""
        return {part.source_id for spec in self.table.specs().values() for part in spec.fields}

    def delete_positions(self) -> None:
        for entry in iceberg_tables.entries(self.table):
            if self.rng.random() < 0.5:
                file = entry.data_file
                gone = [at for at in range(file.record_count) if self.rng.random() < 0.3]
                if gone:
                    deleted = iceberg_tables.position_deletes(self.table, {file.file_path: gone}, file)
                    iceberg_tables.add_deletes(self.table, deleted)

    def whole(self) -> pa.Table:
        whole = self.lake.load().scan().to_arrow()
        by_polars = pl.scan_iceberg(self.lake.load()).select("row").collect()["row"].to_list()
        assert sorted(by_polars) == sorted(whole["row"].to_pylist()), "Polars and pyiceberg agree"
        if self.rng.random() < 0.5:
            paths = [task.file.file_path.removeprefix("file://") for task in self.table.scan().plan_files()]
            parquet_bloom.add_filters(paths, in_place=True, force=True, columns=["row"], sync=False)
        return whole

    def close(self) -> None:
        self.lake.close()


class LakeTable(Growing):
    """Also updates put rows elsewhere; a catalog of either kind."""

    KINDS: ClassVar = {"n": pa.int64(), "d": pa.date32(), "f": pa.float32()}

    def __init__(self, root: Path, rng: Random) -> None:
        super().__init__(rng, (0.1,))
        self.lake = Lake(root, rng.random() < 0.5, "DATA_INLINING_ROW_LIMIT 0")
        self.name = f"ducklake:{self.lake.name()}"
        self.lake.sql("CREATE TABLE t (row BIGINT, n INTEGER, s VARCHAR, d DATE, f FLOAT)")
        if rng.random() < 0.4:
            self.lake.sql("ALTER TABLE t SET PARTITIONED BY (s)")
        self.values = {"n": NUMBERS, "s": TEXTS[:4], "d": DAYS, "f": [0.0, 1.5, -2.25]}

    def append(self) -> None:
        rows = self.rows()
        lines = [f"({', '.join(map(sql_text, row.values()))})" for row in rows]
        columns = ", ".join(f'"{name}"' for name in rows[0])
        self.lake.sql(f"INSERT INTO t ({columns}) VALUES {', '.join(lines)}")

    def change(self) -> None:
        match self.rng.choice(["delete", "update", "rename", "add", "promote"]):
            case "delete":
                self.lake.sql(f"DELETE FROM t WHERE row % {self.rng.randint(2, 5)} = 0")
            case "update":
                self.lake.sql(f"UPDATE t SET d = DATE '2026-03-05' WHERE row % {self.rng.randint(2, 5)} = 1")
            case "rename":
                old = self.rng.choice([name for name in self.values if name[0] not in "sd"])
                self.lake.sql(f"ALTER TABLE t RENAME COLUMN {old} TO {old}_")
                self.values = {name + "_" if name == old else name: known for name, known in self.values.items()}
            case "add" if f"c{self.next}" not in self.values:
                self.lake.sql(f"ALTER TABLE t ADD COLUMN c{self.next} VARCHAR DEFAULT 'ab'")
                self.values[f"c{self.next}"] = TEXTS[:4]
            case "promote":
                name = next(name for name in self.values if name[0] == "n")
                self.lake.sql(f"ALTER TABLE t ALTER {name} SET TYPE BIGINT")

    def whole(self) -> pa.Table:
        kinds = [(name, self.KINDS.get(name[0], pa.string())) for name in self.values]
        whole = pa.Table.from_pylist(self.lake.answer("SELECT * FROM t"), pa.schema([("row", pa.int64()), *kinds]))
        self.lake.release()
        return whole

    def close(self) -> None:
        self.lake.release()


def sql_text(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"DATE '{value}'" if isinstance(value, dt.date) else repr(value)


def hold_growing(make: type[Any], seed: int, root: Path, predicates: int, asked: Asked) -> None:
    rng = Random(seed)
    made = make(root, rng)
    for _ in range(rng.randrange(3, 7)):
        made.append()
        for _ in range(rng.randrange(3)):
            made.change()
    whole = made.whole()
    values: Values = {name: (whole.schema.field(name).type, known) for name, known in made.values.items()} | {
        "row": (pa.int64(), range(40))
    }
    hold(made.name, whole, values, rng, predicates, asked, **made.options)
    made.close()


@pytest.mark.parametrize("make", [IcebergTable, LakeTable])
@pytest.mark.parametrize(
    "seeds",
    [range(2), *more_then_slow([range(100, 103), *(range(first, first + 15) for first in range(200, 1100, 100))], 1)],
    ids=str,
)
def test_tables_that_grow(seeds: range, make: type[Any], tmp_path: Path) -> None:
    asked = Asked()
    for seed in seeds:
        hold_growing(make, seed, tmp_path / str(seed), 30 if seed >= 100 else 6, asked)
    assert asked.excluded > 7, f"the log excludes files: {asked}"
