"""Filters of `statistics` as Guava's programs read them: the bytes of BloomFilter.writeTo.

The other way, putting what such a program wrote into a file, is add_filters(spec="statistics", guava=...).
"""

from __future__ import annotations

from typing import Any

from parquet_bloom.errors import FileError, FilterFormatError, RequestError
from parquet_bloom.formats.draft_2015 import stored_in
from parquet_bloom.formats.guava import encode_guava
from parquet_bloom.formats.metadata.schema import find_leaf
from parquet_bloom.storage.source import PathLike, Source


def export_guava(source: PathLike, column: str, row_group: int = 0, *, filesystem: Any = None) -> bytes:
    """One filter as Guava's BloomFilter.readFrom takes it, with the funnel of the column's PLAIN bytes.

    longFunnel for INT64, integerFunnel for INT32, stringFunnel(UTF_8) or byteArrayFunnel for BYTE_ARRAY.

    Raises RequestError where there is no filter of `statistics`, or one of another hash family;
    UnknownColumnError; FileError for a file that cannot be read or a filter that contradicts itself.
    """
    with Source(source, filesystem) as opened:
        footer = opened.footer()
        leaf = find_leaf(footer.leaves, column)
        where = f"row group {row_group}, column {leaf.name}"
        stored = stored_in(footer).get((row_group, leaf.index))
        if stored is None:
            raise RequestError(f"{opened.path}: {where} has no filter of statistics")
        try:
            return encode_guava(stored.decode(leaf))
        except FilterFormatError as error:
            raise FileError(opened.path, f"{where}: {error}") from error
