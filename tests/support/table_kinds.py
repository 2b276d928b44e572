"""One table of each kind, under one set of verbs: what tests of all kinds append, delete, rewrite and read.

A kind changes and reads its table by the library that others would take; `add` and `remove` are ours.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import parquet_bloom as pb
from parquet_bloom.tables.ducklake.table import open_ducklake
from support.ducklake_tables import NOTHING_INLINED, Lake
from support.iceberg_tables import Warehouse

N = 200  # rows of one append


def rows_of(seed: int) -> pa.Table:
    ids = np.random.default_rng(seed).integers(0, 2**60, N)
    return pa.table({"id": ids, "name": [f"n{i % 50}" for i in range(N)]})


def in_order(table: pa.Table) -> list[str]:
    """Rows as texts, sorted."""
    return sorted(str((row["id"], row["name"])) for row in table.select(["id", "name"]).to_pylist())


class Kind(ABC):
    """A table `id, name`. `commit_modes` are the commit modes that it takes, None its default."""

    name: str
    commit_modes: ClassVar[tuple[str | None, ...]] = (None, "same-path")
    options: dict[str, Any]

    # --- by its own library -----------------------------------------------------------------------

    @abstractmethod
    def append(self, seed: int) -> None:
        """One more file, with the rows of `rows_of(seed)`."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete the rows of a name."""

    @abstractmethod
    def rewrite(self) -> None:
        """The same rows in one other file, or in a few."""

    @abstractmethod
    def rows(self, version: str | None = None) -> list[str]: ...

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def files(self) -> list[str]:
        """Paths of the live data files."""

    @abstractmethod
    def folder(self) -> Path:
        """Where all files of the table lie."""

    def read_by_others(self) -> Iterator[pa.Table]:
        """The rows as other programs read them that trust the log."""
        yield from ()

    def close(self) -> None:  # noqa: B027
        """Let go of connections."""

    # --- by ours ----------------------------------------------------------------------------------

    def add(self, columns: list[str], **options: Any) -> pb.AddReport:
        return pb.add_filters(self.name, columns=columns, **options, **self.options)

    def remove(self, **options: Any) -> pb.RemoveReport:
        return pb.remove_filters(self.name, **options, **self.options)

    def read_by_us(self) -> pa.Table:
        return pb.read_table(self.name, **self.options)

    def row_groups_read(self, predicate: str) -> int:
        return sum(not one.skipped for one in pb.check(self.name, predicate, **self.options))

    def filtered(self) -> list[set[str]]:
        """The columns with filters of each live file."""
        found = pb.inspect(self.files(), raw_files=True).files
        return [{one.column for one in file.filters} for file in found]

    def named(self) -> set[str] | None:
        """The data files that a version names, of those that can be read; None where that is not asked of a kind."""
        return None

    def data_files(self) -> set[str]:
        """All data files in the folder, live or not."""
        return {os.path.realpath(path) for path in self.folder().rglob("*.parquet*") if "_delta_log" not in path.parts}


class Delta(Kind):
    def __init__(self, root: Path) -> None:
        self.root = root / "delta"
        self.name, self.options = f"delta:{self.root}", {}

    def _table(self, version: str | None = None) -> DeltaTable:
        return DeltaTable(str(self.root), version=None if version is None else int(version))

    def append(self, seed: int) -> None:
        write_deltalake(str(self.root), rows_of(seed), mode="append")

    def delete(self, name: str) -> None:
        self._table().delete(f"name = '{name}'")

    def rewrite(self) -> None:
        self._table().optimize.compact()

    def rows(self, version: str | None = None) -> list[str]:
        return in_order(pa.table(self._table(version).to_pyarrow_table()))

    def read_by_others(self) -> Iterator[pa.Table]:
        yield pl.scan_delta(str(self.root)).collect().to_arrow()
        yield pa.table(QueryBuilder().register("t", self._table()).execute("select * from t").read_all())

    def version(self) -> str:
        return str(self._table().version())

    def files(self) -> list[str]:
        return self._table().file_uris()

    def named(self) -> set[str]:
        versions = map(str, range(int(self.version()) + 1))
        return {os.path.realpath(path) for at in versions for path in self._table(at).file_uris()}

    def folder(self) -> Path:
        return self.root


class Iceberg(Kind):
    def __init__(self, root: Path) -> None:
        self.warehouse = Warehouse(root)
        self.root = root / "warehouse"
        self.name, self.options = "iceberg:cat/ns.t", {"catalog_properties": self.warehouse.properties}
        self.warehouse.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))

    def append(self, seed: int) -> None:
        self.warehouse.load().append(rows_of(seed))

    def delete(self, name: str) -> None:
        self.warehouse.load().delete(f"name == '{name}'")

    def rewrite(self) -> None:
        table = self.warehouse.load()
        table.overwrite(table.scan().to_arrow())

    def rows(self, version: str | None = None) -> list[str]:
        scan = self.warehouse.load().scan(snapshot_id=None if version is None else int(version))
        return in_order(scan.to_arrow())

    def read_by_others(self) -> Iterator[pa.Table]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pl.exceptions.PerformanceWarning)  # another planner would be faster
            yield pl.scan_iceberg(self.warehouse.load()).collect().to_arrow()

    def version(self) -> str:
        snapshot = self.warehouse.load().current_snapshot()
        assert snapshot is not None
        return str(snapshot.snapshot_id)

    def files(self) -> list[str]:
        return [file.path for file in self.warehouse.read().files]

    def named(self) -> set[str]:
        paths = self.warehouse.load().inspect.all_data_files()["file_path"].to_pylist()
        return {os.path.realpath(path.removeprefix("file://")) for path in paths}

    def folder(self) -> Path:
        return self.root

    def close(self) -> None:
        self.warehouse.close()


class DuckLake(Kind):
    """Its files never grow: the catalog has no size that an older snapshot could read."""

    commit_modes = (None,)

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lake = Lake(root, True)
        self._do(NOTHING_INLINED, "CREATE TABLE t (id BIGINT, name VARCHAR)")
        self.name, self.options = f"ducklake:{self.lake.name()}", {}

    def _do(self, *sql: str) -> None:
        self.lake.sql(*sql)
        self.lake.release()

    def append(self, seed: int) -> None:
        pq.write_table(rows_of(seed), self.root / "rows.parquet")
        self._do(f"INSERT INTO t SELECT * FROM '{self.root / 'rows.parquet'}'")
        (self.root / "rows.parquet").unlink()

    def delete(self, name: str) -> None:
        self._do(f"DELETE FROM t WHERE name = '{name}'")

    def rewrite(self) -> None:
        self._do("CALL ducklake_merge_adjacent_files('lake')")

    def rows(self, version: str | None = None) -> list[str]:
        at = "" if version is None else f" AT (VERSION => {version})"
        found = self.lake.answer(f"SELECT * FROM t{at}")
        self.lake.release()
        return in_order(pa.Table.from_pylist(found, schema=rows_of(0).schema))

    def version(self) -> str:
        found = max(self.lake.snapshots())
        self.lake.release()
        return str(found)

    def files(self) -> list[str]:
        return [file.path for file in open_ducklake(self.lake.name(), None).snapshot().files]

    def folder(self) -> Path:
        return self.lake.data

    def close(self) -> None:
        self.lake.release()


KINDS: dict[str, type[Kind]] = {"delta": Delta, "iceberg": Iceberg, "ducklake": DuckLake}
