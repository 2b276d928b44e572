"""What pyarrow's Parquet writer takes, as types: the keywords that FilterWriter and write_table pass on.

A test holds the names against the signatures of the pyarrow that is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq


class WriterOptions(TypedDict, total=False):
    """Keywords of pyarrow.parquet.ParquetWriter, with its defaults; its documentation says what each means.

    filesystem        files with filters are written locally only: anything but None is a RequestError
    column_encoding, compression, compression_level   for all columns, or by column
    use_dictionary, use_byte_stream_split, write_statistics   whether, or the columns for which
    metadata_collector   has an `append`, which gets the file's metadata as pyarrow wrote it, without filters
    """

    allow_truncated_timestamps: bool
    bloom_filter_options: Mapping[str, Any] | None
    coerce_timestamps: str | None
    column_encoding: str | Mapping[str, str] | None
    compression: str | Mapping[str, str] | None
    compression_level: int | Mapping[str, int] | None
    data_page_size: int | None
    data_page_version: str
    dictionary_pagesize_limit: int | None
    encryption_properties: Any
    filesystem: None
    flavor: str | None
    max_rows_per_page: int | None
    memory_pool: pa.MemoryPool | None
    metadata_collector: Any
    sorting_columns: Sequence[pq.SortingColumn] | None
    store_decimal_as_integer: bool
    store_schema: bool
    use_byte_stream_split: bool | Sequence[str]
    use_compliant_nested_type: bool
    use_content_defined_chunking: bool | Mapping[str, int]
    use_deprecated_int96_timestamps: bool | None
    use_dictionary: bool | Sequence[str]
    version: str
    write_batch_size: int | None
    write_page_checksum: bool
    write_page_index: bool
    write_statistics: bool | Sequence[str]
    write_time_adjusted_to_utc: bool
