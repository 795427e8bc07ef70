// Hashes of tensors: of gradients while a step is made again, of weights and optimizer state between two steps.
#include "common/hash.h"

#include <cstring>

#include "common/portable.h"

namespace asd {

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Each lane is a chain of invertible steps, so no single changed bit gets lost.
uint64_t hash_bits(const void* data, int64_t bytes) {
  constexpr int kLanes = 8;
  const unsigned char* x = static_cast<const unsigned char*>(data);
  uint64_t lanes[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t i = 0;
  for (; i + 8 * kLanes <= bytes; i += 8 * kLanes) {
    FETCH(reinterpret_cast<uintptr_t>(x + i) + kAhead);
    for (int lane = 0; lane < kLanes; ++lane) {
      uint64_t word;
      std::memcpy(&word, x + i + 8 * lane, sizeof word);
      lanes[lane] = (lanes[lane] ^ word) * 0x9e3779b97f4a7c15u;
      lanes[lane] ^= lanes[lane] >> 32;
    }
  }
  uint64_t hash = mix(static_cast<uint64_t>(bytes));
  for (; i < bytes; ++i) hash = (hash ^ x[i]) * 0x100000001b3u;
  for (int lane = 0; lane < kLanes; ++lane) hash = mix(hash ^ lanes[lane]);
  return hash;
}

}  // namespace asd

extern "C" {

uint64_t asd_hash(const void* data, int64_t bytes) { return asd::hash_bits(data, bytes); }

}  // extern "C"
