// Hands tensors of a compiled graph to the host while it runs, and reads a tensor once for what a dump tells of it.
//
// Part of the same library as `kernel.cpp`, with the same plain C interface. Nothing of it is called unless a debugger
// put its taps into a network.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define CARRYLESS __attribute__((target("pclmul,sse4.1")))
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif
#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2)
#else
#define FETCH(address) ((void)(address))
#endif

namespace {

using Deliver = void (*)(const int32_t* label, const void* data, int64_t dimensions, const int64_t* sizes,
                         const char* dtype);
std::atomic<Deliver> deliver{nullptr};

constexpr uintptr_t kAhead = 16384;  // bytes: as in kernel.cpp
constexpr int64_t kBlock = 8192;  // elements: 128 float32 additions a lane before the sums go on in double

struct Moments {
  double largest;
  double smallest;
  double total;
  double squares;
};

// Few additions to a lane, and from there on in double: the sums are as accurate as those of NumPy in float32.
WIDEST void add_block(const float* x, int64_t n, Moments* m) {
  constexpr int kLanes = 64;
  float largest[kLanes], smallest[kLanes], total[kLanes] = {0.0f}, squares[kLanes] = {0.0f};
  for (int lane = 0; lane < kLanes; ++lane) {
    largest[lane] = -std::numeric_limits<float>::infinity();
    smallest[lane] = std::numeric_limits<float>::infinity();
  }
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float value = x[i + lane];
      largest[lane] = value > largest[lane] ? value : largest[lane];
      smallest[lane] = value < smallest[lane] ? value : smallest[lane];
      total[lane] += value;
      squares[lane] += value * value;
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    m->largest = std::max(m->largest, static_cast<double>(largest[lane]));
    m->smallest = std::min(m->smallest, static_cast<double>(smallest[lane]));
    m->total += static_cast<double>(total[lane]);
    m->squares += static_cast<double>(squares[lane]);
  }
  for (; i < n; ++i) {
    const double value = static_cast<double>(x[i]);
    m->largest = value > m->largest ? value : m->largest;
    m->smallest = value < m->smallest ? value : m->smallest;
    m->total += value;
    m->squares += value * value;
  }
}

#ifdef CARRYLESS
// Four lanes of 16 bytes, each moved past the next 64 bytes by one multiplication of polynomials, then folded into one and
// reduced; Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), whose
// constants for the reflected polynomial 0xedb88320 these are.
CARRYLESS __m128i fold(__m128i sum, __m128i next, __m128i powers) {
  return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(sum, powers, 0x00),
                                           _mm_clmulepi64_si128(sum, powers, 0x11)));
}

CARRYLESS uint32_t crc_of(const unsigned char* data, int64_t bytes, uint32_t crc) {  // bytes: 64 or more, in 16s
  const auto load = [](const unsigned char* at) CARRYLESS {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  };
  const __m128i by_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  __m128i sums[4];
  for (int lane = 0; lane < 4; ++lane) sums[lane] = load(data + 16 * lane);
  sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128(static_cast<int>(~crc)));
  int64_t i = 64;
  for (; i + 64 <= bytes; i += 64) {
    FETCH(reinterpret_cast<uintptr_t>(data + i) + kAhead);
    for (int lane = 0; lane < 4; ++lane) sums[lane] = fold(sums[lane], load(data + i + 16 * lane), by_64);
  }
  __m128i sum = sums[0];
  for (int lane = 1; lane < 4; ++lane) sum = fold(sum, sums[lane], by_16);
  for (; i + 16 <= bytes; i += 16) sum = fold(sum, load(data + i), by_16);
  const __m128i low = _mm_setr_epi32(-1, 0, -1, 0);
  sum = _mm_xor_si128(_mm_clmulepi64_si128(sum, by_16, 0x10), _mm_srli_si128(sum, 8));  // 128 bits to 96
  const __m128i rest = _mm_clmulepi64_si128(_mm_and_si128(sum, low), _mm_set_epi64x(0, 0x163cd6124), 0x00);
  sum = _mm_xor_si128(rest, _mm_srli_si128(sum, 4));  // to 64
  const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low), barrett, 0x00);
  return ~static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(sum, quotient), 1));
}
#endif

}  // namespace

extern "C" {

// `callback` gets every tensor that a tap sees from now on, in the thread that computes; null for none.
void asd_deliver_to(Deliver callback) { deliver.store(callback); }

// ops.Custom "aot" face: inputs (any tensor, label int32[4]), output float32[1] that only serves as a dependency.
int asd_deliver(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 3) return 1;
  const Deliver callback = deliver.load();
  if (callback != nullptr) {
    callback(static_cast<const int32_t*>(params[1]), params[0], ndims[0], shapes[0], dtypes[0]);
  }
  *static_cast<float*>(params[2]) = 0.0f;
  return 0;
}

// Of n > 0 elements of float32: largest, smallest, sum, sum of squares. Returns 1 where they must be computed with more
// care: an element is inf or nan, or so large or small that its square has no place in a float32.
int64_t asd_moments(const float* data, int64_t n, double* out) {
  Moments m = {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), 0.0, 0.0};
  for (int64_t i = 0; i < n; i += kBlock) add_block(data + i, std::min(kBlock, n - i), &m);
  const double magnitude = std::max(std::fabs(m.largest), std::fabs(m.smallest));
  const bool safe = magnitude == 0.0 || (magnitude > 1e-15 && magnitude < 1e15);
  if (!std::isfinite(m.squares) || !std::isfinite(m.total) || !safe) return 1;
  out[0] = m.largest;
  out[1] = m.smallest;
  out[2] = m.total;
  out[3] = m.squares;
  return 0;
}

// CRC-32, that of zlib, of the first `bytes / 16 * 16` bytes; `crc` goes on from there. Returns how many bytes were read:
// none where there are fewer than 64 or the processor can't multiply polynomials.
int64_t asd_crc32(const unsigned char* data, int64_t bytes, uint32_t* crc) {
#ifdef CARRYLESS
  if (bytes >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
    *crc = crc_of(data, bytes / 16 * 16, *crc);
    return bytes / 16 * 16;
  }
#endif
  return 0;
}

}  // extern "C"
