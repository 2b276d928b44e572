"""Fixtures of tables that several modules here use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.duckdb_process import Asked, duckdb_with
from support.ducklake_tables import Lake
from support.iceberg_tables import Warehouse

from parquet_bloom.tables.delta import table as delta
from parquet_bloom.tables.ducklake import table as ducklake
from parquet_bloom.tables.iceberg import opened


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """No test begins with another's tables."""
    for states in (delta._VERSIONS, ducklake._SNAPSHOTS, opened._SNAPSHOTS):
        states.clear()


@pytest.fixture(params=["duckdb", pytest.param("sqlite", marks=pytest.mark.more)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A DuckLake without tables, with a catalog of either kind."""
    made = Lake(tmp_path, request.param == "sqlite")
    yield made
    made.release()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Lake]:
    """A DuckLake without tables, with the quicker kind of catalog."""
    made = Lake(tmp_path, True)
    yield made
    made.release()


@pytest.fixture
def delta_duckdb() -> Asked:
    """Ask DuckDB with the extension `delta`; skips where pip cannot bring it."""
    return duckdb_with("delta").ask


@pytest.fixture
def iceberg_duckdb() -> Asked:
    """Ask DuckDB with the extension `iceberg`; skips where pip cannot bring it."""
    return duckdb_with("avro", "iceberg").ask


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    """An Iceberg catalog without tables."""
    made = Warehouse(tmp_path)
    yield made
    made.close()
