"""A data set that an engine scans with a filter of its own: the filter chooses row groups before they are read.

    duckdb.sql("SELECT * FROM events WHERE id = 5")   DuckDB calls events.scanner(filter=field("id") == 5)

Whoever hands pyarrow a filter gets rows for which it is true, as pyarrow compares. So a row group can be left out where
that is impossible: by bounds and filters, as `prune` does it for the same Expression.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from parquet_bloom.chunks.footer_cache import FooterCache
from parquet_bloom.errors import RequestError
from parquet_bloom.predicates.arrow import from_expression
from parquet_bloom.predicates.tree import Unknown
from parquet_bloom.search.options import Nan, Options
from parquet_bloom.search.search import DatasetSchema, FileResult, Search, open_groups
from parquet_bloom.storage.paths import DataFile

logger = logging.getLogger("parquet_bloom")


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Files, the row groups of each that a data set has, and how filters are asked of them."""

    files: tuple[DataFile, ...]
    groups: tuple[tuple[int, ...], ...]
    options: Options

    def chosen(self, filter: pc.Expression) -> list[tuple[int, list[int]]] | None:
        """(number of the file, its row groups that can match) of each file that has any; None: it tells nothing.

        Raises what reading a file raises.
        """
        tree = from_expression(filter)
        if isinstance(tree, Unknown):
            return None
        chosen = []
        try:
            for at, one in enumerate(Search(list(self.files), tree, None, self.options)):
                if isinstance(one, tuple):
                    raise one[1]
                may = set(open_groups(one))
                if groups := [group for group in self.groups[at] if group in may]:
                    chosen.append((at, groups))
        except RequestError as error:  # such as a literal that our rules do not compare with the column
            logger.info("%s: not used to skip: %s", tree, error)
            return None
        left = sum(len(groups) for _, groups in chosen)
        logger.info("%s: %d of %d row groups can match", tree, left, sum(map(len, self.groups)))
        return chosen

    def __reduce__(self) -> tuple[Any, ...]:
        how = self.options
        return narrowing, (self.files, self.groups, how.dataset_schema, how.nan, how.use_filters, how.range_values)


def narrowing_of(parts: Sequence[tuple[FileResult, Sequence[int]]], schema: DatasetSchema, how: Options) -> Narrowing:
    """For a data set of these row groups, with the columns of this schema."""
    files, groups = [part.file for part, _ in parts], [chosen for _, chosen in parts]
    return narrowing(files, groups, schema, how.nan, how.use_filters, how.range_values)


def narrowing(
    files: Sequence[DataFile], groups: Sequence[Sequence[int]], schema: DatasetSchema | None, nan: Nan,
    use_filters: bool, range_values: int,
) -> Narrowing:  # fmt: skip
    """Build it. Footers are kept from one scan to the next; one that was pickled reads them anew.

    schema  of the data set: of its first file, which may have no row group that is left
    """
    options = Options(
        nan=nan, use_filters=use_filters, range_values=range_values, cache=FooterCache(), raw_files=True,
        skip_files=True, dataset_schema=schema,
    )  # fmt: skip
    bare = (DataFile(f.path, f.filesystem, f.shown, [], f.relative, f.partitions) for f in files)
    return Narrowing(tuple(bare), tuple(map(tuple, groups)), options)
