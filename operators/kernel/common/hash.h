// Hashes of 64 bits.
#pragma once

#include <cstdint>

namespace asd {

// Another number for each number, near ones far apart.
uint64_t mix(uint64_t x);

// Of the bits of a tensor and of their places.
uint64_t hash_bits(const void* data, int64_t bytes);

}  // namespace asd
