// What a dump tells of a tensor, from one read of it: largest, smallest, sum, sum of squares, and its check sum.
//
// Part of the same library as `kernel.cpp`, with the same plain C interface.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "common/portable.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define CARRYLESS __attribute__((target("pclmul,sse4.1")))
#define WIDE_CARRYLESS __attribute__((target("vpclmulqdq,avx512f")))
#endif

extern "C" int64_t asd_widen(const void* data, int64_t n, const char* dtype, float* out);

namespace {

constexpr int64_t kBlock = 8192;  // elements: 128 float32 additions a lane before the sums go on in double

struct Moments {
  double largest = -std::numeric_limits<double>::infinity();
  double smallest = std::numeric_limits<double>::infinity();
  double total = 0.0;
  double squares = 0.0;
};

// Few additions to a lane, and from there on in double: the sums are as accurate as those of NumPy in float32.
WIDEST void add_block(const float* x, int64_t n, Moments* m) {
  constexpr int kLanes = 64;
  constexpr int kLine = 16;  // elements
  float largest[kLanes], smallest[kLanes], total[kLanes] = {0.0f}, squares[kLanes] = {0.0f};
  for (int lane = 0; lane < kLanes; ++lane) {
    largest[lane] = -std::numeric_limits<float>::infinity();
    smallest[lane] = std::numeric_limits<float>::infinity();
  }
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const uintptr_t ahead = reinterpret_cast<uintptr_t>(x + i) + kAhead;  // behind the end too: it is a hint only
    for (int line = 0; line < kLanes / kLine; ++line) FETCH(ahead + line * kLine * sizeof(float));
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

// False where the moments must be computed with more care: an element is inf or nan, or so large or small that its square
// has no place in a float32.
bool safe(const Moments& m) {
  const double magnitude = std::max(std::fabs(m.largest), std::fabs(m.smallest));
  const bool squarable = magnitude == 0.0 || (magnitude > 1e-15 && magnitude < 1e15);
  return std::isfinite(m.squares) && std::isfinite(m.total) && squarable;
}

void tell(const Moments& m, double* out) {
  out[0] = m.largest;
  out[1] = m.smallest;
  out[2] = m.total;
  out[3] = m.squares;
}

#ifdef CARRYLESS
// Lanes of 16 bytes, each moved past the bytes that follow by one multiplication of polynomials, then folded into one and
// reduced; Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009). The
// constants are its powers of x modulo the reflected polynomial 0xedb88320, for the distances in their names.
struct Powers {
  int64_t high;
  int64_t low;
};
constexpr Powers kBy256 = {0x1322d1430, 0x11542778a};
constexpr Powers kBy64 = {0x1c6e41596, 0x154442bd4};
constexpr Powers kBy16 = {0x0ccaa009e, 0x1751997d0};

// Of 256 bytes or more: the state of `fold_all` behind `*done` of them.
WIDE_CARRYLESS void fold_wide(const unsigned char* data, int64_t bytes, uint32_t crc, __m128i* state, int64_t* done) {
  const __m512i by_256 = _mm512_set4_epi64(kBy256.high, kBy256.low, kBy256.high, kBy256.low);
  const __m512i by_64 = _mm512_set4_epi64(kBy64.high, kBy64.low, kBy64.high, kBy64.low);
  constexpr int kLanes = 4;
  constexpr int kAllThree = 0x96;  // exclusive or
  __m512i sums[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) sums[lane] = _mm512_loadu_si512(data + 64 * lane);
  sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc))));
  int64_t i = 256;
  for (; i + 256 <= bytes; i += 256) {
    for (int lane = 0; lane < kLanes; ++lane) {
      FETCH(reinterpret_cast<uintptr_t>(data + i + 64 * lane) + kAhead);
      sums[lane] = _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sums[lane], by_256, 0x00),
                                             _mm512_clmulepi64_epi128(sums[lane], by_256, 0x11),
                                             _mm512_loadu_si512(data + i + 64 * lane), kAllThree);
    }
  }
  __m512i sum = sums[0];
  for (int lane = 1; lane < kLanes; ++lane) {
    sum = _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, by_64, 0x00),
                                    _mm512_clmulepi64_epi128(sum, by_64, 0x11), sums[lane], kAllThree);
  }
  _mm512_storeu_si512(state, sum);
  *done = i;
}

CARRYLESS __m128i fold(__m128i sum, __m128i next, __m128i powers) {
  return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(sum, powers, 0x00),
                                           _mm_clmulepi64_si128(sum, powers, 0x11)));
}

CARRYLESS uint32_t fold_all(const unsigned char* data, int64_t bytes, uint32_t crc) {  // bytes: 64 or more, in 16s
  const auto load = [](const unsigned char* at) CARRYLESS {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  };
  const __m128i by_64 = _mm_set_epi64x(kBy64.high, kBy64.low);
  const __m128i by_16 = _mm_set_epi64x(kBy16.high, kBy16.low);
  static const bool wide = __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f");
  __m128i sums[4];
  int64_t i = 64;
  if (wide && bytes >= 256) {
    fold_wide(data, bytes, crc, sums, &i);
  } else {
    for (int lane = 0; lane < 4; ++lane) sums[lane] = load(data + 16 * lane);
    sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128(static_cast<int>(~crc)));
  }
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

bool multiplies_polynomials() {
  static const bool answer = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  return answer;
}
#else
uint32_t fold_all(const unsigned char*, int64_t, uint32_t crc) { return crc; }
bool multiplies_polynomials() { return false; }
#endif

// CRC-32, that of zlib, where the processor multiplies polynomials; `crc` goes on from there.
uint32_t crc_of(const void* data, int64_t bytes, uint32_t crc) {
  const unsigned char* x = static_cast<const unsigned char*>(data);
  const int64_t folded = bytes >= 64 ? bytes / 16 * 16 : 0;
  if (folded > 0) crc = fold_all(x, folded, crc);
  crc = ~crc;
  for (int64_t i = folded; i < bytes; ++i) {
    crc ^= x[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

}  // namespace

extern "C" {

// Of n > 0 elements of float32: largest, smallest, sum, sum of squares. Returns 1 where they must be computed with more
// care: an element is inf or nan, or so large or small that its square has no place in a float32.
int64_t asd_moments(const float* data, int64_t n, double* out) {
  Moments m;
  for (int64_t i = 0; i < n; i += kBlock) add_block(data + i, std::min(kBlock, n - i), &m);
  if (!safe(m)) return 1;
  tell(m, out);
  return 0;
}

// CRC-32, that of zlib; `crc` goes on from there. Returns 1 where the processor can't multiply polynomials.
int64_t asd_crc32(const void* data, int64_t bytes, uint32_t* crc) {
  if (!multiplies_polynomials()) return 1;
  *crc = crc_of(data, bytes, *crc);
  return 0;
}

// Both, of float32 or of bfloat16 that is widened to it; `crc` may be null. A block is still near the processor when its
// check sum is taken, so the tensor comes from memory once. Returns 1 where either or the type can't be done here.
int64_t asd_summarise(const void* data, int64_t n, const char* dtype, double* moments, uint32_t* crc) {
  const bool narrow = std::strcmp(dtype, "bfloat16") == 0;
  if (!narrow && std::strcmp(dtype, "float32") != 0) return 1;
  if (crc != nullptr && !multiplies_polynomials()) return 1;
  Moments m;
  uint32_t sum = 0;
  float wide[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    if (narrow) asd_widen(static_cast<const uint16_t*>(data) + i, count, dtype, wide);
    const float* block = narrow ? wide : static_cast<const float*>(data) + i;
    add_block(block, count, &m);
    if (crc != nullptr) sum = crc_of(block, count * static_cast<int64_t>(sizeof(float)), sum);
  }
  if (!safe(m)) return 1;
  tell(m, moments);
  if (crc != nullptr) *crc = sum;
  return 0;
}

}  // extern "C"
