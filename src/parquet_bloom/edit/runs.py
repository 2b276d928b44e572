"""Neighbouring column chunks that one thread builds together: small ones, in thousands of which opening counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from parquet_bloom.chunks.decode import ColumnReader
from parquet_bloom.edit.build import build_several
from parquet_bloom.edit.plan import Chunk, Plan, Request
from parquet_bloom.formats.forms.form import Built
from parquet_bloom.formats.metadata.footer import Footer

MOST, MOST_BYTES = 512, 256 << 10  # chunks of a run, and compressed bytes of them, if it is more than one


def runs_of(footer: Footer, keys: Sequence[Chunk], most: int = MOST) -> Iterator[list[Chunk]]:
    """Cut chunks, in their order, into runs."""
    run: list[Chunk] = []
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
    readers: Mapping[int, ColumnReader], footer: Footer, made: Plan, request: Request, run: Sequence[Chunk]
) -> list[Built]:
    """The filters of a run, in its order. Raises as build.build does."""
    built: dict[Chunk, Built] = {}
    for column in {column for _, column in run}:
        groups = [group for group, of in run if of == column]
        sizing = made.chosen[groups[0], column]  # one for the whole column
        some = build_several(readers[column], footer, groups, request.form, sizing)
        built.update(((group, column), one) for group, one in some.items())
    return [built[key] for key in run]
