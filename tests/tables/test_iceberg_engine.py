"""What is kept of Iceberg's Java library as an engine (facts/engines.json), asked of Spark 3.5 with its runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from support.denying import COLUMNS, question_values, write_pair
from support.iceberg_spark import PACKAGES, IcebergSpark, IcebergSparkError
from support.iceberg_tables import Warehouse

from parquet_bloom.facts.known import (
    CANNOT_ASK,
    CONTAINS,
    EQUAL,
    IN,
    KINDS,
    NOT_USED,
    STORED,
    USED,
    known_engines,
    questions_of,
)

pytestmark = pytest.mark.slow

Answers = dict[str, dict[str, dict[str, str]]]
UNSIGNED = {kind for kind in KINDS if kind.startswith("uint")}  # Iceberg has no such types


def literal(value: pa.Scalar, kind: str) -> str:
    """A value in Spark's SQL."""
    stored, arrow = value.as_py(), value.type
    if kind == "uuid":
        text = stored.hex()
        return "'" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])) + "'"
    if isinstance(stored, bytes):
        return f"X'{stored.hex()}'"
    if pa.types.is_decimal(arrow):
        return f"CAST('{stored}' AS decimal({arrow.precision},{arrow.scale}))"
    if pa.types.is_timestamp(arrow):
        text = str(value.cast(pa.timestamp(arrow.unit)))
        return f"TIMESTAMP'{text}+00:00'" if arrow.tz else f"TIMESTAMP_NTZ'{text}'"
    if pa.types.is_date(arrow):
        return f"DATE'{stored}'"
    if pa.types.is_floating(arrow):
        return f"CAST('{stored}' AS {'float' if arrow == pa.float32() else 'double'})"
    return f"'{stored}'" if isinstance(stored, str) else str(stored)


def condition(kind: str, stored: str, question: str, values: Sequence[pa.Scalar]) -> str:
    name, literals = ".".join(COLUMNS[stored]), [literal(value, kind) for value in values]
    if question == CONTAINS:
        return f"array_contains({name}, {literals[0]})"
    if question == EQUAL:
        return f"{name} = {literals[0]}"
    return f"{name} IN ({', '.join(literals)})" if question == IN else f"{name} BETWEEN {literals[0]} AND {literals[1]}"


def as_table(lake: Warehouse, name: str, file: Path) -> str:
    """The metadata file of a table that has one file, which stays as it is."""
    table = lake.create(pq.read_schema(file), name)
    table.add_files([f"file://{file}"])
    return table.refresh().metadata_location


def answers_of(kind: str, spark: IcebergSpark, lake: Warehouse, folder: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, Any]] = {stored: {} for stored in STORED}
    asked = [(stored, question) for stored in STORED for question in questions_of(kind, stored)]
    counts: dict[tuple[str, str], list[int]] = {one: [] for one in asked}
    for number, file in enumerate(write_pair(folder, kind)):
        try:
            if kind in UNSIGNED:
                raise ValueError(kind)
            metadata = as_table(lake, f"ns.{''.join(c for c in kind if c.isalnum())}_{number}", file)
            spark.view(metadata, "pair")
        except (IcebergSparkError, UnsupportedPyArrowTypeException, TypeError, ValueError, NotImplementedError):
            continue
        for stored, question in asked:
            values, _ = question_values(kind, question)
            try:
                ((count,),) = spark.sql(f"SELECT count(*) FROM pair WHERE {condition(kind, stored, question, values)}")
            except IcebergSparkError:
                count = -1
            counts[stored, question].append(count)
    for stored, question in asked:
        _, wanted = question_values(kind, question)
        uses = {(wanted, 0): USED, (wanted, wanted): NOT_USED}
        found[stored][question] = uses.get(tuple(counts[stored, question]), CANNOT_ASK)
    return found


def test_what_is_kept_of_iceberg_is_so(tmp_path: Path) -> None:
    spark, lake = IcebergSpark(tmp_path / "warehouse"), Warehouse(tmp_path)
    kept = next(facts for facts in known_engines() if facts.name == "iceberg-java")
    found = {kind: answers_of(kind, spark, lake, tmp_path) for kind in KINDS}
    spark.close()
    lake.close()
    assert found == kept.answers
    assert kept.version == "1.10.2"
    assert PACKAGES[2].endswith("1.0.3"), "which has that version; of another one the answers may differ"
