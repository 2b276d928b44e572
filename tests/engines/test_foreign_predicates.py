"""Files of other writers, with the bounds and filters these wrote: no row group with a hit is skipped.

Each file is asked for its own values, in every comparison; pyarrow's kernels over the rows of each row
group say which of them hold a hit.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.corpus import corpus_file, footer_files
from support.repeats import first_then_more

import parquet_bloom
from engines.spelling import spelled
from parquet_bloom.errors import RequestError
from parquet_bloom.format.schema import join_path
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.text import parse

_BIG = 20_000_000
_COLUMNS = 8
READ_BY_NOBODY = (pa.ArrowException, OSError, ValueError, NotImplementedError)


def tables(path: Path) -> list[pa.Table]:
    """Each row group, as pyarrow reads it; none of a file that is big, or that pyarrow does not read."""
    try:
        with pq.ParquetFile(path) as file:
            if sum(file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)) > _BIG:
                return []
            return [file.read_row_group(i) for i in range(file.num_row_groups)]
    except READ_BY_NOBODY:
        return []


def questions(column: str, values: list[str]) -> Iterator[str]:
    first, last = values[0], values[-1]
    for value in values:
        yield f"{column} = {value}"
    yield f"{column} < {first}"
    yield f"{column} <= {first}"
    yield f"{column} > {last}"
    yield f"{column} >= {last}"
    yield f"{column} IN ({', '.join(values)})"
    yield f"{column} NOT IN ({first}, {last})"
    yield f"NOT ({column} > {first}) OR {column} IS NULL"
    yield f"{column} IS NULL"
    yield f"{column} BETWEEN {first} AND {last}"


def literals(groups: list[pa.Table], name: str) -> list[str]:
    """The first, a middle and the last value of a column, and its ends; none for types without a literal."""
    column = pa.chunked_array([c for table in groups for c in table[name].chunks], groups[0].schema.field(name).type)
    try:
        texts = [value.sql for value in spelled(column)]
        chosen = [*texts[:1], *texts[len(texts) // 2 :][:1], *texts[-1:]]
        ends = pc.min_max(column)
        chosen += [value.sql for value in spelled(pa.array([ends["min"].as_py(), ends["max"].as_py()], column.type))]
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        return []
    return list(dict.fromkeys(chosen))


def holding(groups: list[pa.Table], text: str) -> set[int]:
    keep = row_filter(parse(text), groups[0].schema)
    return {
        at
        for at, table in enumerate(groups)
        if any(keep.mask(b).true_count for b in table.combine_chunks().to_batches())
    }


# pyarrow aborts the process on some files with encrypted columns.
NAMES = [name for name in footer_files() if "encrypt" not in name]


@pytest.mark.parametrize("first", first_then_more(range(6), 2))
def test_no_row_group_with_a_hit_is_skipped(first: int) -> None:
    asked = 0
    for name in NAMES[first::6]:
        groups = tables(corpus_file(name))
        if not groups:
            continue
        schema, source = groups[0].schema, parquet_bloom.Source(corpus_file(name))
        flat = [f.name for f in schema if not pa.types.is_nested(f.type) and schema.names.count(f.name) == 1]
        for column in flat[:_COLUMNS]:
            values = literals(groups, column)
            for text in questions(join_path((column,)), values) if values else ():
                ask(name, source, groups, text, pa.types.is_floating(schema.field(column).type))
                asked += 1
    assert asked > 100


def ask(name: str, source: parquet_bloom.Source, groups: list[pa.Table], text: str, floats: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", parquet_bloom.errors.FilterWarning)
        try:
            verdicts = source.check(text)
            wanted = holding(groups, text)
        except RequestError:
            return  # a literal that is none of the column's
        kept = {v.row_group for v in verdicts if not v.skipped}
        assert wanted <= kept, f"{name}, {text}: {sorted(wanted - kept)} were skipped"
        if floats:
            kept = {v.row_group for v in source.check(text, nan="largest") if not v.skipped}
            assert wanted <= kept, f"{name}, {text}: {sorted(wanted - kept)} were skipped under nan='largest'"


def test_files_that_prove_something() -> None:
    """Bounds or filters of each of these writers exclude a row group with a value that is elsewhere in the file."""
    decided = set()
    for name in footer_files():
        writer = name.partition("/")[0]
        if writer in ("duckdb", "datafusion", "pyarrow", "spark"):
            groups = tables(corpus_file(name))
            for column in (
                f.name for f in groups[0].schema if pa.types.is_integer(f.type) or pa.types.is_string(f.type)
            ):
                for value in literals(groups, column):
                    verdicts = parquet_bloom.check(corpus_file(name), f"{join_path((column,))} = {value}")
                    decided |= {(writer, v.decided_by) for v in verdicts if v.skipped}
    assert {writer for writer, by in decided if by == "bounds"} >= {"duckdb", "pyarrow", "spark"}
    assert {writer for writer, by in decided if by == "filter"} >= {"duckdb", "datafusion", "pyarrow", "spark"}
