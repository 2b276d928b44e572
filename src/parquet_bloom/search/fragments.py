"""Row groups of a file as a fragment of a pyarrow Dataset, with the values and types of its folder's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from parquet_bloom.chunks.hive import Pairs, partition_value
from parquet_bloom.errors import RequestError
from parquet_bloom.formats.metadata.schema import INT32, Leaf
from parquet_bloom.limits import Limits, limits
from parquet_bloom.storage.remote import Location

FORMAT = ds.ParquetFileFormat()
_LOCAL = LocalFileSystem()


def file_format(**read: Any) -> ds.ParquetFileFormat:
    """FORMAT with the limits of this process, where these allow larger footers than pyarrow's.

    read  options of ds.ParquetReadOptions
    """
    allowed, usual = limits(), Limits()
    if read:
        return ds.ParquetFileFormat(default_fragment_scan_options=file_format().default_fragment_scan_options, **read)
    if allowed.max_list_elements <= usual.max_list_elements and allowed.max_string_bytes <= usual.max_string_bytes:
        return FORMAT
    options = ds.ParquetFragmentScanOptions(
        thrift_string_size_limit=max(allowed.max_string_bytes, usual.max_string_bytes),
        thrift_container_size_limit=max(allowed.max_list_elements, usual.max_list_elements),
    )
    return ds.ParquetFileFormat(default_fragment_scan_options=options)


def fragment(
    path: Any, at: Location, partition: pc.Expression | None, groups: Sequence[int],
    form: ds.ParquetFileFormat | None = None,
) -> Any:  # fmt: skip
    """The row groups in their order; pyarrow takes set(groups), and of {2, 9} it made 9, 2.

    path  of the file, or a file of pyarrow's that is open
    at    where it lies: files of one call may be on several file systems, as a table's rows in memory are
    form  how the file is read; None: as file_format has it
    """
    filesystem = (at.filesystem or _LOCAL) if isinstance(path, str) else None
    return (form or file_format()).make_fragment(path, filesystem, partition, row_groups=_ranked(groups))


def with_groups(fragment: Any, groups: Sequence[int]) -> Any:
    """Some of a fragment's row groups, in their order."""
    return fragment.subset(row_group_ids=_ranked(groups))


def _ranked(groups: Sequence[int]) -> list[_Ranked]:
    ranked = []
    for rank, group in enumerate(groups):
        ranked.append(_Ranked(group))
        ranked[-1].rank = rank
    return ranked


class _Ranked(int):
    """A row group that has its rank for its hash, so that a set of them is in order."""

    rank: int

    def __hash__(self) -> int:
        return self.rank


def partition_expression(keys: Sequence[Leaf], pairs: Pairs) -> pc.Expression | None:
    """The expression that the folder's name makes true for every row of a file."""
    expression = None
    for key in keys:
        value = partition_value(key, pairs)
        name = pc.field(key.path[0])
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
        scalar = pa.scalar(text, partition_type(key).value_type)
        one = name.is_null() if value is None else name == scalar
        expression = one if expression is None else expression & one
    return expression


def partition_type(key: Leaf) -> pa.DictionaryType:
    """The type that pyarrow gives to a column of folders' names: a dictionary."""
    return pa.dictionary(pa.int32(), pa.int32() if key.physical == INT32 else pa.string())


def with_partitions(schema: pa.Schema, keys: Sequence[Leaf], path: object) -> pa.Schema:
    """A file's schema, then the columns of its folder's name. Raises RequestError for a name that both have."""
    for key in keys:
        if key.path[0] in schema.names:
            raise RequestError(f"column {key.path[0]} is both in {path} and in its folder's name")
        schema = schema.append(pa.field(key.path[0], partition_type(key)))
    return schema
