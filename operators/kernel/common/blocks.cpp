// Reads blocks of tensors where they lie: a hash of their bits and their extremes, from one trip to memory.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/hash.h"
#include "common/portable.h"
#include "common/statistics.h"

// For a wheel: since glibc 2.34 these two have another version, which older systems lack; the old one is there for ever.
#if defined(ASD_OLD_GLIBC) && defined(__x86_64__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_join, pthread_join@GLIBC_2.2.5");
#elif defined(ASD_OLD_GLIBC) && defined(__aarch64__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.17");
__asm__(".symver pthread_join, pthread_join@GLIBC_2.17");
#endif

extern "C" int64_t asd_widen(const void* data, int64_t n, const char* dtype, float* out);

namespace asd {
namespace {

// As `BLOCK_DTYPE` of blocks.py.
struct Block {
  const void* data;
  int64_t bytes;
  int64_t type;  // place in kTypes
  int64_t smallest;  // whether the smallest value is asked for
};

static_assert(sizeof(Block) == 32, "BLOCK_DTYPE of blocks.py has 32 bytes");

struct Type {
  const char* name;
  int64_t width;
};

constexpr Type kTypes[] = {{"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}};

// The bits of a float order like an integer once those of negative ones are turned round; doing so twice undoes it.
template <class Bits>
inline Bits turned(Bits bits) {
  return bits ^ ((bits >> (8 * sizeof(Bits) - 1)) & std::numeric_limits<Bits>::max());
}

template <class Bits>
inline __attribute__((always_inline)) Bits smallest_bits(const void* data, int64_t n) {
  const Bits* x = static_cast<const Bits*>(data);
  Bits smallest = std::numeric_limits<Bits>::max();
  for (int64_t i = 0; i < n; ++i) smallest = std::min(smallest, turned(x[i]));
  return turned(smallest);
}

WIDEST int16_t smallest_of_16(const void* data, int64_t n) { return smallest_bits<int16_t>(data, n); }
WIDEST int32_t smallest_of_32(const void* data, int64_t n) { return smallest_bits<int32_t>(data, n); }
WIDEST int64_t smallest_of_64(const void* data, int64_t n) { return smallest_bits<int64_t>(data, n); }

double smallest_of(const Block& block) {
  const Type& type = kTypes[block.type];
  const int64_t n = block.bytes / type.width;
  if (type.width == 8) {
    const int64_t bits = smallest_of_64(block.data, n);
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  float value;
  if (type.width == 4) {
    const int32_t bits = smallest_of_32(block.data, n);
    std::memcpy(&value, &bits, sizeof value);
  } else {
    const int16_t bits = smallest_of_16(block.data, n);
    asd_widen(&bits, 1, type.name, &value);
  }
  return static_cast<double>(value);
}

void read_block(const Block& block, uint64_t* hash, double* extremes) {
  *hash = hash_bits(block.data, block.bytes);
  if (extremes == nullptr) return;
  const Type& type = kTypes[block.type];
  Statistics found;  // the block is in the cache by now
  statistics(block.data, block.bytes / type.width, type.name, &found);
  extremes[0] = found.non_finite != 0 ? std::nan("") : found.max_abs;
  extremes[1] = block.smallest != 0 ? smallest_of(block) : 0.0;
}

// What all threads do together: each takes the next block until there is none.
struct Work {
  const Block* blocks;
  int64_t n;
  uint64_t* hashes;
  double* extremes;
  std::atomic<int64_t> next{0};
};

void* read_blocks(void* shared) {
  Work* work = static_cast<Work*>(shared);
  for (int64_t i = work->next++; i < work->n; i = work->next++) {
    read_block(work->blocks[i], work->hashes + i, work->extremes == nullptr ? nullptr : work->extremes + 2 * i);
  }
  return nullptr;
}

}  // namespace
}  // namespace asd

extern "C" {

// Of n blocks: the hash of each, and its largest magnitude and smallest value where `extremes` is given.
void asd_read_blocks(const void* blocks, int64_t n, int64_t threads, uint64_t* hashes, double* extremes) {
  asd::Work work{static_cast<const asd::Block*>(blocks), n, hashes, extremes};
  std::vector<pthread_t> helpers;  // not std::thread, which wants a newer libstdc++ than old systems have
  for (pthread_t helper; static_cast<int64_t>(helpers.size()) + 1 < threads; helpers.push_back(helper)) {
    if (pthread_create(&helper, nullptr, asd::read_blocks, &work) != 0) break;  // those that there are do it
  }
  asd::read_blocks(&work);
  for (const pthread_t helper : helpers) pthread_join(helper, nullptr);
}

}  // extern "C"
