// Everything a Parquet file says about itself: footer, page headers, page indexes, Bloom filter headers.
// Source: apache/parquet-format, src/main/thrift/parquet.thrift; names, ids, types and requiredness from a table
// of its facts, the comments our own. In a file all of it is Thrift's compact protocol.
// `thrift/regenerate` makes src/parquet_bloom/_thrift/parquet from this.
//
// Words used below: an *absolute* offset counts bytes from the start of the file; sizes are bytes; LE and BE are
// byte orders. Values in statistics and indexes are the PLAIN encoding of one physical value, without a length.

namespace py parquet_bloom._thrift.parquet


// ---- Types and schema ------------------------------------------------------------------------------------------

/** How a value lies in the pages. What it means is told by LogicalType and ConvertedType. */
enum Type {
  BOOLEAN = 0               // one bit
  INT32 = 1                 // 4 bytes LE; smaller integers are widened first
  INT64 = 2                 // 8 bytes LE
  INT96 = 3                 // 12 bytes: nanoseconds of the day (8 LE), Julian day (4 LE); old timestamps
  FLOAT = 4                 // 4 bytes LE
  DOUBLE = 5                // 8 bytes LE
  BYTE_ARRAY = 6            // any length, given before each value
  FIXED_LEN_BYTE_ARRAY = 7  // SchemaElement.type_length bytes, no length before the value
}

/** The older way to say what a value means. Many files carry it and a LogicalType; LogicalType wins. */
enum ConvertedType {
  UTF8 = 0
  MAP = 1
  MAP_KEY_VALUE = 2         // the repeated group in a map; some old writers put it where MAP belongs
  LIST = 3
  ENUM = 4
  DECIMAL = 5               // scale and precision stand in SchemaElement
  DATE = 6                  // days since 1970-01-01
  TIME_MILLIS = 7           // INT32, since midnight
  TIME_MICROS = 8           // INT64, since midnight
  TIMESTAMP_MILLIS = 9      // since 1970-01-01 UTC; cannot say "local", LogicalType can
  TIMESTAMP_MICROS = 10
  UINT_8 = 11               // unsigned values in a signed physical type: old min and max ordered them wrongly
  UINT_16 = 12
  UINT_32 = 13
  UINT_64 = 14
  INT_8 = 15
  INT_16 = 16
  INT_32 = 17
  INT_64 = 18
  JSON = 19
  BSON = 20
  INTERVAL = 21             // 12 bytes: months, days, milliseconds, each 4 LE; has no order and no LogicalType
}

/** How often a field occurs in its parent. */
enum FieldRepetitionType {
  REQUIRED = 0              // once
  OPTIONAL = 1              // once or never (null)
  REPEATED = 2              // any number of times
}

struct StringType {}        // UTF-8
struct UUIDType {}          // 16 bytes BE
struct MapType {}
struct ListType {}
struct EnumType {}          // UTF-8
struct DateType {}          // days since 1970-01-01
struct Float16Type {}       // 2 bytes LE; has two zeros and many NaNs as its larger sisters do
struct NullType {}          // every value is null

/** The unscaled integer, times 10 to the power of -scale. BE two's complement where the physical type is bytes. */
struct DecimalType {
  1: required i32 scale
  2: required i32 precision   // decimal digits
}

struct MilliSeconds {}
struct MicroSeconds {}
struct NanoSeconds {}

union TimeUnit {
  1: MilliSeconds MILLIS
  2: MicroSeconds MICROS
  3: NanoSeconds NANOS
}

/** An INT64 count of units since 1970-01-01 00:00. */
struct TimestampType {
  1: required bool isAdjustedToUTC   // false: a wall clock's reading, in no zone
  2: required TimeUnit unit
}

/** A count of units since midnight: INT32 for milliseconds, INT64 for the finer ones. */
struct TimeType {
  1: required bool isAdjustedToUTC
  2: required TimeUnit unit
}

struct IntType {
  1: required i8 bitWidth     // 8, 16, 32 (physical INT32) or 64 (INT64)
  2: required bool isSigned   // false: order and literals are unsigned, the stored bits are not marked
}

struct JsonType {}            // UTF-8
struct BsonType {}

/** A group whose fields together hold one value of any type. */
struct VariantType {
  1: optional i8 specification_version
}

/** The line that joins two points of a GEOGRAPHY. */
enum EdgeInterpolationAlgorithm {
  SPHERICAL = 0
  VINCENTY = 1
  THOMAS = 2
  ANDOYER = 3
  KARNEY = 4
}

/** WKB on a plane. */
struct GeometryType {
  1: optional string crs      // absent: OGC:CRS84, longitude and latitude
}

/** WKB on a globe. */
struct GeographyType {
  1: optional string crs      // absent: OGC:CRS84
  2: optional EdgeInterpolationAlgorithm algorithm   // absent: SPHERICAL
}

/** Values may refer to byte ranges, of this very file too: never move the bytes of a file with such a column. */
struct FileType {}

/**
 * What a value means. Id 9 is unused: INTERVAL has a ConvertedType only.
 * A member newer than this list decodes to a union with nothing set, and is lost when encoded again.
 */
union LogicalType {
  1: StringType STRING
  2: MapType MAP
  3: ListType LIST
  4: EnumType ENUM
  5: DecimalType DECIMAL
  6: DateType DATE
  7: TimeType TIME
  8: TimestampType TIMESTAMP
  10: IntType INTEGER
  11: NullType UNKNOWN        // the type of a column that is all null, not an unknown type
  12: JsonType JSON
  13: BsonType BSON
  14: UUIDType UUID
  15: Float16Type FLOAT16
  16: VariantType VARIANT
  17: GeometryType GEOMETRY
  18: GeographyType GEOGRAPHY
  19: FileType FILE
}

/** One node of the schema tree. FileMetaData lists them depth first, the root in front. */
struct SchemaElement {
  1: optional Type type                             // leaves only
  2: optional i32 type_length                       // bytes of a FIXED_LEN_BYTE_ARRAY
  3: optional FieldRepetitionType repetition_type   // the root needs none
  4: required string name                           // may hold dots: paths are lists, not joined text
  5: optional i32 num_children                      // groups only; they follow directly
  6: optional ConvertedType converted_type
  7: optional i32 scale                             // of a converted DECIMAL
  8: optional i32 precision
  9: optional i32 field_id                          // the writer's own number for the field, as Iceberg uses it
  10: optional LogicalType logicalType
}


// ---- Statistics ------------------------------------------------------------------------------------------------

/** Counts that tell how much memory the decoded values will take. */
struct SizeStatistics {
  1: optional i64 unencoded_byte_array_data_bytes   // BYTE_ARRAY only; without the lengths before the values
  2: optional list<i64> repetition_level_histogram  // [l] = how many values have level l
  3: optional list<i64> definition_level_histogram
}

/** Bounds of coordinates. xmin > xmax is no mistake: such a box crosses the antimeridian. */
struct BoundingBox {
  1: required double xmin
  2: required double xmax
  3: required double ymin
  4: required double ymax
  5: optional double zmin
  6: optional double zmax
  7: optional double mmin
  8: optional double mmax
}

struct GeospatialStatistics {
  1: optional BoundingBox bbox
  2: optional list<i32> geospatial_types   // WKB type codes; absent or empty: not known
}

/**
 * What is known of the values of a chunk or page. Everything may be missing, and missing means unknown.
 * A NaN may have poisoned min and max, and a zero bound may stand for the zero of either sign.
 */
struct Statistics {
  1: optional binary max           // old: compared as signed bytes; believe it for signed numbers only
  2: optional binary min
  3: optional i64 null_count       // absent is not zero
  4: optional i64 distinct_count   // hardly ever written
  5: optional binary max_value     // in the column's order, FileMetaData.column_orders
  6: optional binary min_value
  7: optional bool is_max_value_exact   // false: shortened, so a bound only. In the 2015 draft 7 was a Bloom filter,
                                        // see parquet_statistics.thrift; files with that do not open in some engines
  8: optional bool is_min_value_exact
  9: optional i64 nan_count        // 0: bounds of a float column can be trusted
}


// ---- Pages -----------------------------------------------------------------------------------------------------

/** Id 1 was given up before anybody used it. A number newer than this list arrives as a plain integer. */
enum Encoding {
  PLAIN = 0
  PLAIN_DICTIONARY = 2        // old name: PLAIN in a dictionary page, RLE_DICTIONARY in a data page
  RLE = 3
  BIT_PACKED = 4              // old, for levels
  DELTA_BINARY_PACKED = 5
  DELTA_LENGTH_BYTE_ARRAY = 6
  DELTA_BYTE_ARRAY = 7
  RLE_DICTIONARY = 8
  BYTE_STREAM_SPLIT = 9
  ALP = 10
}

enum CompressionCodec {
  UNCOMPRESSED = 0
  SNAPPY = 1
  GZIP = 2
  LZO = 3
  BROTLI = 4
  LZ4 = 5                     // framed as Hadoop did, or not: the files do not say which
  ZSTD = 6
  LZ4_RAW = 7                 // one bare LZ4 block
}

/** 4 was BLOOM_FILTER_PAGE in the 2018 draft, see parquet_41.thrift. */
enum PageType {
  DATA_PAGE = 0
  INDEX_PAGE = 1
  DICTIONARY_PAGE = 2
  DATA_PAGE_V2 = 3
}

/** How min_values and max_values of a ColumnIndex run from page to page, null pages left out. */
enum BoundaryOrder {
  UNORDERED = 0
  ASCENDING = 1
  DESCENDING = 2
}

/** Repetition levels, definition levels and values are compressed together. */
struct DataPageHeader {
  1: required i32 num_values                  // nulls included; elements, not rows
  2: required Encoding encoding
  3: required Encoding definition_level_encoding
  4: required Encoding repetition_level_encoding
  5: optional Statistics statistics
}

struct IndexPageHeader {}

struct DictionaryPageHeader {
  1: required i32 num_values
  2: required Encoding encoding
  3: optional bool is_sorted
}

/** Levels come first and stay uncompressed; only the values are compressed. */
struct DataPageHeaderV2 {
  1: required i32 num_values                  // nulls included
  2: required i32 num_nulls
  3: required i32 num_rows                    // a page starts at the start of a row
  4: required Encoding encoding
  5: required i32 definition_levels_byte_length
  6: required i32 repetition_levels_byte_length
  7: optional bool is_compressed              // absent: true
  8: optional Statistics statistics
}


// ---- Bloom filters ---------------------------------------------------------------------------------------------

struct SplitBlockAlgorithm {}

/** Name and id as in the 2018 draft, but block (h >> 32) * blocks >> 32, where programs of 2018 took a mask. */
union BloomFilterAlgorithm {
  1: SplitBlockAlgorithm BLOCK
}

struct XxHash {}

/** XXH64, seed 0. Trap: id 1 was MURMUR3 in the 2018 draft, with the same bytes `1c 00 00`. */
union BloomFilterHash {
  1: XxHash XXHASH
}

struct Uncompressed {}

union BloomFilterCompression {
  1: Uncompressed UNCOMPRESSED
}

/**
 * Stands at ColumnMetaData.bloom_filter_offset, the bitset directly behind it.
 * Trap: an empty union, or a member this list does not know, decodes without an error and names nothing.
 */
struct BloomFilterHeader {
  1: required i32 numBytes                    // the bitset alone; blocks of 32 bytes, eight LE uint32 words each
  2: required BloomFilterAlgorithm algorithm
  3: required BloomFilterHash hash
  4: required BloomFilterCompression compression   // missing: an early form, which does not say its hash
}

/** Stands before each page; both sizes leave this header out. */
struct PageHeader {
  1: required PageType type
  2: required i32 uncompressed_page_size
  3: required i32 compressed_page_size        // so many bytes follow, then comes the next page header
  4: optional i32 crc                         // CRC-32 of those bytes, kept in a signed field
  5: optional DataPageHeader data_page_header
  6: optional IndexPageHeader index_page_header
  7: optional DictionaryPageHeader dictionary_page_header
  8: optional DataPageHeaderV2 data_page_header_v2
}


// ---- Column chunks and row groups ------------------------------------------------------------------------------

/** Free text of writers. Programs that rewrite a file tend to carry it along, true or not. */
struct KeyValue {
  1: required string key
  2: optional string value
}

struct SortingColumn {
  1: required i32 column_idx                  // position of the leaf, and of its chunk in RowGroup.columns
  2: required bool descending
  3: required bool nulls_first
}

/** How many pages of one kind and encoding a chunk has. */
struct PageEncodingStats {
  1: required PageType page_type
  2: required Encoding encoding
  3: required i32 count
}

struct ColumnMetaData {
  1: required Type type
  2: required list<Encoding> encodings
  3: required list<string> path_in_schema     // names from below the root down to the leaf
  4: required CompressionCodec codec
  5: required i64 num_values                  // nulls included; elements, not rows, where a list is above
  6: required i64 total_uncompressed_size     // page headers included
  7: required i64 total_compressed_size       // page headers included, the Bloom filter not
  8: optional list<KeyValue> key_value_metadata
  9: required i64 data_page_offset            // absolute: header of the first data page
  10: optional i64 index_page_offset          // absolute, hardly ever set
  11: optional i64 dictionary_page_offset     // absolute, and before 9; 0 or garbage where there is no dictionary
  12: optional Statistics statistics
  13: optional list<PageEncodingStats> encoding_stats
  14: optional i64 bloom_filter_offset        // absolute: the header, of any draft; 0 or less: no filter
  15: optional i32 bloom_filter_length        // header and bitset, exactly: off by a byte and engines lose rows;
                                              // absent, old parquet-java does on short reads
  16: optional SizeStatistics size_statistics
  17: optional GeospatialStatistics geospatial_statistics
}

struct EncryptionWithFooterKey {}

struct EncryptionWithColumnKey {
  1: required list<string> path_in_schema
  2: optional binary key_metadata
}

union ColumnCryptoMetaData {
  1: EncryptionWithFooterKey ENCRYPTION_WITH_FOOTER_KEY
  2: EncryptionWithColumnKey ENCRYPTION_WITH_COLUMN_KEY
}

/** One leaf column of one row group. */
struct ColumnChunk {
  1: optional string file_path                // the data lie in this other file, and offsets count from its start
  2: required i64 file_offset                 // three meanings in the wild: the first page, 0, the end of the chunk
  3: optional ColumnMetaData meta_data
  4: optional i64 offset_index_offset         // absolute
  5: optional i32 offset_index_length
  6: optional i64 column_index_offset         // absolute
  7: optional i32 column_index_length
  8: optional ColumnCryptoMetaData crypto_metadata   // present: pages, indexes and filter are encrypted
  9: optional binary encrypted_column_metadata       // a ColumnMetaData nobody can edit without the key
}

struct RowGroup {
  1: required list<ColumnChunk> columns       // one for each leaf, in the schema's order
  2: required i64 total_byte_size             // uncompressed
  3: required i64 num_rows
  4: optional list<SortingColumn> sorting_columns
  5: optional i64 file_offset                 // absolute: the first page; 0 and other values occur
  6: optional i64 total_compressed_size
  7: optional i16 ordinal                     // position in the file, for the encryption's sake
}


// ---- Page indexes ----------------------------------------------------------------------------------------------

struct TypeDefinedOrder {}      // the type's own order; for floats it leaves NaN and the two zeros open
struct IEEE754TotalOrder {}     // every bit pattern has its place: -NaN, -inf .. -0, +0 .. +inf, NaN
struct Int96TimestampOrder {}   // by point in time, not by bytes

/** How to read min_value and max_value of one leaf. A member that is not known here: use no bounds. */
union ColumnOrder {
  1: TypeDefinedOrder TYPE_ORDER
  2: IEEE754TotalOrder IEEE_754_TOTAL_ORDER
  3: Int96TimestampOrder INT96_TIMESTAMP_ORDER
}

struct PageLocation {
  1: required i64 offset                      // absolute: the page's header
  2: required i32 compressed_page_size        // the header included, unlike PageHeader's field of this name
  3: required i64 first_row_index             // counted from the start of the row group
}

/** Where the data pages of a chunk lie. Its encoded length may change when offsets grow. */
struct OffsetIndex {
  1: required list<PageLocation> page_locations
  2: optional list<i64> unencoded_byte_array_data_bytes   // one number a page
}

/** What the data pages of a chunk hold; lists 1 to 3, 5 and 8 have one entry a page. */
struct ColumnIndex {
  1: required list<bool> null_pages           // true: nulls only, and then 2 and 3 hold an empty filler
  2: required list<binary> min_values         // bounds, maybe shortened
  3: required list<binary> max_values
  4: required BoundaryOrder boundary_order
  5: optional list<i64> null_counts
  6: optional list<i64> repetition_level_histograms   // pages one after another, (highest level + 1) numbers each
  7: optional list<i64> definition_level_histograms
  8: optional list<i64> nan_counts
}


// ---- Footer ----------------------------------------------------------------------------------------------------

struct AesGcmV1 {
  1: optional binary aad_prefix
  2: optional binary aad_file_unique
  3: optional bool supply_aad_prefix          // true: the prefix is not in the file, the reader must bring it
}

struct AesGcmCtrV1 {
  1: optional binary aad_prefix
  2: optional binary aad_file_unique
  3: optional bool supply_aad_prefix
}

union EncryptionAlgorithm {
  1: AesGcmV1 AES_GCM_V1
  2: AesGcmCtrV1 AES_GCM_CTR_V1
}

/** The footer. A file ends with it, its length (4 bytes LE) and `PAR1`. */
struct FileMetaData {
  1: required i32 version                     // 1 or 2; says little about what the file uses
  2: required list<SchemaElement> schema
  3: required i64 num_rows
  4: required list<RowGroup> row_groups       // may be empty
  5: optional list<KeyValue> key_value_metadata
  6: optional string created_by
  7: optional list<ColumnOrder> column_orders // one for each leaf; absent: trust no max_value, min_value
  8: optional EncryptionAlgorithm encryption_algorithm   // present: some columns are encrypted, and a signature of
                                              // 28 bytes follows the footer, inside its length: any edit breaks it
  9: optional binary footer_signing_key_metadata
}

/** Where the footer itself is encrypted: this, the encrypted FileMetaData, their length (4 bytes LE) and `PARE`. */
struct FileCryptoMetaData {
  1: required EncryptionAlgorithm encryption_algorithm
  2: optional binary key_metadata
}
