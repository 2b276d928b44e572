/* The loops of kernels.native that an extension would have: XXH64 of int64, and inserting into a split block filter.
   Plain C from the xxHash specification and parquet-format's BloomFilter.md; `python benchmarks/kernels.py --c`. */

#include <stddef.h>
#include <stdint.h>

#define ROTATED(x, by) (((x) << (by)) | ((x) >> (64 - (by))))

static const uint64_t PRIME1 = 0x9E3779B185EBCA87u, PRIME2 = 0xC2B2AE3D27D4EB4Fu, PRIME3 = 0x165667B19E3779F9u;
static const uint64_t PRIME4 = 0x85EBCA77C2B2AE63u, PRIME5 = 0x27D4EB2F165667C5u;
static const uint32_t SALT[8] = {0x47b6137bu, 0x44974d91u, 0x8824ad5bu, 0xa2b7289du,
                                 0x705495c7u, 0x2df1424bu, 0x9efc4947u, 0x5c6bfb31u};

void hash(const uint64_t *values, uint64_t *hashes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint64_t lane = ROTATED(values[i] * PRIME2, 31) * PRIME1;
    uint64_t hash = ROTATED((PRIME5 + 8) ^ lane, 27) * PRIME1 + PRIME4;
    hash = (hash ^ (hash >> 33)) * PRIME2;
    hash = (hash ^ (hash >> 29)) * PRIME3;
    hashes[i] = hash ^ (hash >> 32);
  }
}

void insert(uint32_t *words, uint64_t blocks, const uint64_t *hashes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint32_t *block = words + 8 * (((hashes[i] >> 32) * blocks) >> 32);
    for (int word = 0; word < 8; word++) block[word] |= 1u << (((uint32_t)hashes[i] * SALT[word]) >> 27);
  }
}
