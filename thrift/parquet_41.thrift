// Bloom filters as the 2018 draft had them (`parquet-41`, and its bare sister `parquet-41-early`).
// Source: PARQUET-41, apache/parquet-format commit 54839ad; only what a filter needs of it, the comments our own.
// No release wrote these forms, and some engines fail on a column that has one.
// `thrift/regenerate` makes src/parquet_bloom/_thrift/parquet_41 from this.

namespace py parquet_bloom._thrift.parquet_41

enum PageType {
  DATA_PAGE = 0
  INDEX_PAGE = 1
  DICTIONARY_PAGE = 2
  DATA_PAGE_V2 = 3
  BLOOM_FILTER_PAGE = 4
}

struct SplitBlockAlgorithm {}

/** Blocks of 32 bytes. The draft names no index rule; programs of 2018 took (h >> 32) & (blocks - 1). */
union BloomFilterAlgorithm {
  1: SplitBlockAlgorithm BLOCK
}

/** The first 64 bits of murmur3_x64_128. The draft names no seed; programs of 2018 took 1361930890. */
struct Murmur3 {}

/** Trap: today's XXHASH has the same id and the same bytes, `1c 00 00`. */
union BloomFilterHash {
  1: Murmur3 MURMUR3
}

/** The form the draft ended with: inside a PageHeader, which the bitset follows. */
struct BloomFilterPageHeader {
  1: required i32 numBytes                    // the bitset alone; 32 times a power of two
  2: required BloomFilterAlgorithm algorithm
  3: required BloomFilterHash hash
}

/**
 * The page header of a filter, at ColumnMetaData 14 (bloom_filter_offset, absolute) and at the start of the chunk.
 * Ids 5 to 8 are other kinds of pages and are skipped when read.
 * 1024 bytes: 15 08 15 80 10 15 80 10 6c 15 80 10 1c 1c 00 00 1c 1c 00 00 00 00
 */
struct PageHeader {
  1: required PageType type                   // BLOOM_FILTER_PAGE
  2: required i32 uncompressed_page_size      // numBytes: this header is left out
  3: required i32 compressed_page_size        // numBytes too
  4: optional i32 crc
  9: optional BloomFilterPageHeader bloom_filter_page_header
}

/**
 * The form before that, bare: at bloom_filter_offset without a PageHeader, the bitset directly behind it.
 * It does not say its hash: for some weeks of 2019 these very bytes meant XXH64.
 * 1024 bytes: 15 80 10 1c 1c 00 00 1c 1c 00 00 00
 */
struct BloomFilterHeader {
  1: required i32 numBytes                    // a power of two, over 32
  2: required BloomFilterAlgorithm algorithm
  3: required BloomFilterHash hash
}
