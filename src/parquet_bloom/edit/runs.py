"""Neighbouring column chunks that one thread builds together: small ones, in thousands of which opening counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from parquet_bloom.chunks.decode import ColumnReader
from parquet_bloom.edit.build import build_several
from parquet_bloom.edit.plan import Plan, Request
from parquet_bloom.formats.forms.form import BuiltFilter
from parquet_bloom.formats.metadata.footer import ChunkKey, Footer

MOST, MOST_BYTES = 512, 256 << 10  # chunks of a run, and compressed bytes of them, if it is more than one


def runs_of(footer: Footer, keys: Sequence[ChunkKey], most: int = MOST) -> Iterator[list[ChunkKey]]:
    """Cut chunks, in their order, into runs."""
    run: list[ChunkKey] = []
    size = 0
    sizes = {column: footer.column_chunks(column).sizes for column in {column for _, column in keys}}
    for key in keys:
        chunk = sizes[key[1]][key[0]]
        if run and (size + chunk > MOST_BYTES or len(run) >= most):
            yield run
            run, size = [], 0
        run.append(key)
        size += chunk
    if run:
        yield run


def build_run(
    readers: Mapping[int, ColumnReader], footer: Footer, file_plan: Plan, request: Request, run: Sequence[ChunkKey]
) -> list[BuiltFilter]:
    """The filters of a run, in its order. Raises as build.build does."""
    built: dict[ChunkKey, BuiltFilter] = {}
    for column in {column for _, column in run}:
        groups = [group for group, of in run if of == column]
        sizing = file_plan.sizings[groups[0], column]  # one for the whole column
        some = build_several(readers[column], footer, groups, request.form, sizing)
        built.update(((group, column), one) for group, one in some.items())
    return [built[key] for key in run]
