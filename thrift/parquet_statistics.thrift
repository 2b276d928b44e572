// Bloom filters as the 2015 draft had them: a member of Statistics (`statistics`).
// Source: PARQUET-41 and PARQUET-319, apache/parquet-format PR #28 and apache/parquet-java PR #215; comments our own.
// Field 7 of Statistics is is_max_value_exact today: written there, such a filter closes the file to some engines.
// `thrift/regenerate` makes src/parquet_bloom/_thrift/parquet_statistics from this.

namespace py parquet_bloom._thrift.parquet_statistics

/** How two hashes become numHashFunctions positions. What is hashed, and with what, the draft leaves to programs. */
enum BloomFilterStrategy {
  MURMUR128_32 = 0   // two 32-bit halves of one 64-bit hash
  MURMUR128_64 = 1   // two 64-bit halves of a 128-bit hash
}

/**
 * A plain Bloom filter: bit p is bit (p & 63), lowest first, of word p >> 6.
 * Each field is needed to read it, so each is required here; the bytes are the same either way.
 */
struct BloomFilter {
  1: required list<i64> bitSet              // words, signed
  2: required i32 numBits                   // a multiple of 64
  3: required i32 numHashFunctions
  4: required BloomFilterStrategy strategy
}

/** The later form of BloomFilter; only bitSet differs. */
struct BloomFilterBinary {
  1: required binary bitSet                 // PR #215: Java's serialized long[], that is 23 bytes that never change,
                                            // the number of words (int32 BE), the words (int64 BE)
  2: required i32 numBits
  3: required i32 numHashFunctions
  4: required BloomFilterStrategy strategy
}

/** Statistics with the first form of the filter. */
struct Statistics {
  1: optional binary max                    // values PLAIN, without a length
  2: optional binary min
  3: optional i64 null_count
  4: optional i64 distinct_count
  5: optional binary max_value
  6: optional binary min_value
  7: optional BloomFilter bloom_filter
}

/** Statistics with the later form. */
struct StatisticsBinary {
  1: optional binary max
  2: optional binary min
  3: optional i64 null_count
  4: optional i64 distinct_count
  5: optional binary max_value
  6: optional binary min_value
  7: optional BloomFilterBinary bloom_filter
}
