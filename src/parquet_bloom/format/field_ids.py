"""Field ids of the footer's structs, by their names in parquet.thrift: for code that reads or edits Thrift bytes.

    FileMetaData 4 row_groups -> RowGroup 1 columns -> ColumnChunk 3 meta_data -> ColumnMetaData 12 statistics

Only the fields that such code names are here. A test compares them with the generated bindings.
"""


class FileMetaDataId:
    """Fields of FileMetaData."""

    schema, row_groups, key_value_metadata, created_by, column_orders = 2, 4, 5, 6, 7


class RowGroupId:
    """Fields of RowGroup."""

    columns, num_rows, file_offset = 1, 3, 5


class ColumnChunkId:
    """Fields of ColumnChunk."""

    file_path, file_offset, meta_data = 1, 2, 3
    offset_index_offset, offset_index_length, column_index_offset = 4, 5, 6
    crypto_metadata, encrypted_column_metadata = 8, 9


class ColumnMetaDataId:
    """Fields of ColumnMetaData."""

    type, encodings, codec, num_values = 1, 2, 4, 5
    total_uncompressed_size, total_compressed_size, key_value_metadata = 6, 7, 8
    data_page_offset, index_page_offset, dictionary_page_offset = 9, 10, 11
    statistics, bloom_filter_offset, bloom_filter_length = 12, 14, 15


class StatisticsId:
    """Fields of Statistics. In the draft of 2015, field 7 was a Bloom filter, and a struct."""

    max, min, null_count, max_value, min_value = 1, 2, 3, 5, 6
    is_max_value_exact, nan_count = 7, 9


class KeyValueId:
    """Fields of KeyValue."""

    key, value = 1, 2


class OffsetIndexId:
    """Fields of OffsetIndex."""

    page_locations = 1


class PageLocationId:
    """Fields of PageLocation."""

    offset = 1
