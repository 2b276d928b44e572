"""Engines that answer the same question about the same file, and the answers of theirs that are known to be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lab_files import LabFile, lab_file
from lab_predicates import Part, columns_of, expression, predicate, sql, truths

import parquet_bloom

Rows = list[int]


class LostError(AssertionError):
    """An answer of ours that is not the exact one."""


@dataclass
class Tally:
    """How often each engine agreed with the exact answer, by engine and outcome."""

    asked: int = 0
    found: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    groups: int = 0
    wrong: list[str] = field(default_factory=list)


def cases(seeds: Sequence[int], folder: Path, each: int, nan: bool = True) -> Iterator[tuple[LabFile, int, Part]]:
    for seed in seeds:
        file = lab_file(seed, folder, nan)
        rng = Random(seed + 1)
        for number in range(each):
            yield file, number, predicate(rng, file)
        file.path.unlink()


def ask(seeds: Sequence[int], folder: Path, each: int, tally: Tally) -> None:
    """Ask ourselves, DuckDB and pyarrow. Raises LostError where our answer is not the exact one."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for file, number, part in cases(seeds, folder, each):
            tally.asked += 1
            where = f"seed {file.path.stem}, predicate {number}, by {file.writer}: {sql(part)}"
            ours(file, part, number, where, tally)
            largest = rows_of(truths(part, file, "largest"))
            hold("DuckDB", lambda f=file, p=part: by_duckdb(connection, f, p), largest, file, part, where, tally)
            asked = expression(part)
            if asked is not None:
                ieee = rows_of(truths(part, file, "ieee"))
                hold("pyarrow", lambda f=file, a=asked: by_pyarrow(f, a), ieee, file, part, where, tally)


def rows_of(found: np.ndarray) -> Rows:
    return np.flatnonzero(found == 1).tolist()


def ours(file: LabFile, part: Part, number: int, where: str, tally: Tally) -> None:
    """check, prune, read_table, count, and now and then dataset and the order where NaN is largest."""
    text = sql(part)
    for nan in ("ieee", "largest") if number % 5 == 0 else ("ieee",):
        truth = truths(part, file, nan)
        verdicts = parquet_bloom.check(file.path, text, nan=nan)
        start = 0
        for verdict, rows in zip(verdicts, file.groups, strict=True):
            seen = set(truth[start : start + rows].tolist())
            start += rows
            if verdict.skipped and 1 in seen:
                raise LostError(f"{where}\n  row group {verdict.row_group} is skipped: {verdict.reason}")
            allowed = {value for bit, value in ((1, 1), (2, 0), (4, -1)) if verdict.outcome.value & bit}
            if not seen <= allowed:
                raise LostError(f"{where}\n  row group {verdict.row_group} gives {verdict.outcome}, rows {seen}")
            tally.groups += 1
            tally.skipped += verdict.skipped
    expected = rows_of(truths(part, file, "ieee"))
    found = parquet_bloom.read_table(file.path, text, columns=["row"])["row"].to_pylist()
    if found != expected:
        raise LostError(f"{where}\n  read {found}\n  not {expected}")
    if number % 3 == 0:
        kept = [v.row_group for v in parquet_bloom.check(file.path, text) if not v.skipped]
        pruned = [group for _, groups in parquet_bloom.prune(file.path, text) for group in groups]
        counted = parquet_bloom.count(file.path, text)
        if kept != pruned or counted != len(expected):
            raise LostError(f"{where}\n  check keeps {kept}, prune {pruned}; count {counted} of {len(expected)}")
    if number % 10 == 0 and (asked := expression(part)) is not None and not _has_nan(file):
        part_of = parquet_bloom.dataset(file.path, text).to_table(columns=["row"], filter=asked)["row"].to_pylist()
        if part_of != expected:
            raise LostError(f"{where}\n  dataset gives {part_of}\n  not {expected}")


def _has_nan(file: LabFile) -> bool:
    return any(v is not None and v != v for name in ("f32", "f64") for v in file.values.get(name, ()))


def by_duckdb(connection: duckdb.DuckDBPyConnection, file: LabFile, part: Part) -> Rows:
    query = f"SELECT row FROM '{file.path}' WHERE {sql(part)}"
    return sorted(row for (row,) in connection.execute(query).fetchall())


def by_pyarrow(file: LabFile, asked: object) -> Rows:
    return sorted(pq.read_table(file.path, columns=["row"], filters=asked)["row"].to_pylist())


def hold(
    engine: str, answer: Callable[[], Rows], expected: Rows, file: LabFile, part: Part, where: str, tally: Tally
) -> None:
    """Count how an engine's answer compares with the exact one; one that nobody knows is kept."""
    try:
        found = answer()
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        outcome = known_refusal(engine, file, str(error))
        tally.found[f"{engine}: {outcome or 'refused'}"] += 1
        if outcome is None:
            tally.wrong.append(f"{engine}: {where}\n  {str(error)[:200]}")
        return
    if found == expected:
        tally.found[f"{engine}: agrees"] += 1
        return
    lost, more = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    outcome = known_error(engine, file, part, lost + more)
    tally.found[f"{engine}: {outcome or 'differs'}"] += 1
    if outcome is None:
        tally.wrong.append(f"{engine}: {where}\n  lost {lost[:9]}, more {more[:9]}")


def known_refusal(engine: str, file: LabFile, said: str) -> str | None:
    if engine == "DuckDB" and file.spec.startswith("parquet-41") and "TProtocolException" in said:
        return "fails on filters of 2018, which the form's own notes tell"
    return None


def known_error(engine: str, file: LabFile, part: Part, differing: Rows) -> str | None:
    """Both skip row groups by bounds that leave NaN out.

    DuckDB  has NaN above all, so `f64 >= 1` is true of it, whatever the max is
    pyarrow has no comparison true of it, so `NOT f64 >= 1` is
    """
    floats = [file.values[name] for name in sorted(columns_of(part) & {"f32", "f64"})]
    if differing and all(any(v[row] is not None and v[row] != v[row] for v in floats) for row in differing):
        return "loses NaN to bounds without it"
    if (
        engine == "DuckDB"
        and differing
        and any(_one_value_and_nulls(file, name, differing) for name in columns_of(part))
    ):
        return "takes a row group of one value and NULLs for one of NULLs, as 2.0.0 does without filters too"
    return None


def _one_value_and_nulls(file: LabFile, name: str, rows: Rows) -> bool:
    """Whether each of the rows lies in a row group whose column has NULLs, and min = max beside them."""
    metadata = pq.read_metadata(file.path)
    if name not in metadata.schema.names:  # a list
        return False
    column, first, ends = metadata.schema.names.index(name), 0, []
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        found = group.column(column).statistics
        one = found is not None and found.has_min_max and found.min == found.max and bool(found.null_count)
        ends.append((first, first + group.num_rows, one))
        first += group.num_rows
    return all(one for row in rows for start, stop, one in ends if start <= row < stop)
