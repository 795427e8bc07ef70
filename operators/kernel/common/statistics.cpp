// One pass over a tensor: largest magnitude, sum of squares and of magnitudes, count of non-finite elements.
#include "common/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/portable.h"

namespace asd {
namespace {

constexpr int64_t kBlock = 2048;  // elements: 128 float32 additions a lane before the sum goes on in double

// Four places of a tensor are read side by side: more of its memory is on the way at a time than one place gives.
constexpr int kPlaces = 4;
constexpr int kLanes = 16;
using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));
using Places = const float* [kPlaces];

// The bits of a non-negative float order like an integer, and everything from 0x7f800000 on is inf or nan. So one integer
// maximum finds both the largest magnitude and whether anything in the block is not finite. Squares and magnitudes are
// summed in float32 on the way, few to a lane; `add_block` decides whether that was accurate.
struct Block {
  int32_t max_bits;
  double sum_squares;
  double sum_abs;
};

// `n` elements from each place, a multiple of kLanes.
WIDEST Block read_block(const Places& x, int64_t n) {
  Ints largest[kPlaces] = {};
  Floats squares[kPlaces] = {}, sums[kPlaces] = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    for (int place = 0; place < kPlaces; ++place) {
      FETCH(reinterpret_cast<uintptr_t>(x[place] + i) + kAhead / kPlaces);  // behind the end too: it is a hint only
      Ints bits;
      std::memcpy(&bits, x[place] + i, sizeof bits);
      bits &= 0x7fffffff;
      largest[place] = bits > largest[place] ? bits : largest[place];
      Floats magnitudes;
      std::memcpy(&magnitudes, &bits, sizeof magnitudes);
      squares[place] += magnitudes * magnitudes;
      sums[place] += magnitudes;
    }
  }
  Block block = {0, 0.0, 0.0};
  for (int place = 0; place < kPlaces; ++place) {
    for (int lane = 0; lane < kLanes; ++lane) {
      block.max_bits = std::max(block.max_bits, static_cast<int32_t>(largest[place][lane]));
      block.sum_squares += static_cast<double>(squares[place][lane]);
      block.sum_abs += static_cast<double>(sums[place][lane]);
    }
  }
  return block;
}

void add_in_double(const float* x, int64_t n, Statistics* s) {
  for (int64_t i = 0; i < n; ++i) {
    const double magnitude = std::fabs(static_cast<double>(x[i]));
    s->sum_squares += magnitude * magnitude;
    s->sum_abs += magnitude;
    if (std::isfinite(x[i])) {
      s->max_abs = std::max(s->max_abs, magnitude);
    } else {
      ++s->non_finite;
    }
  }
}

void add_block(const Places& x, int64_t n, Statistics* s) {
  const Block block = read_block(x, n);
  if (block.max_bits == 0) return;
  float largest;
  std::memcpy(&largest, &block.max_bits, sizeof largest);
  // A float32 square overflows from 1.9e19 on and loses digits below 1e-19: outside a safe range once more, in double.
  if (largest > 1e-15f && largest < 1e15f) {
    s->max_abs = std::max(s->max_abs, static_cast<double>(largest));
    s->sum_squares += block.sum_squares;
    s->sum_abs += block.sum_abs;
  } else {
    for (const float* place : x) add_in_double(place, n, s);
  }
}

void add_floats(const float* x, int64_t n, Statistics* s) {
  const int64_t part = n / kPlaces / kLanes * kLanes;
  for (int64_t i = 0; i < part; i += kBlock) {
    add_block({x + i, x + part + i, x + 2 * part + i, x + 3 * part + i}, std::min(kBlock, part - i), s);
  }
  add_in_double(x + kPlaces * part, n - kPlaces * part, s);
}

// No float on the way is a denormal one: MindSpore's threads take those for zero.
float widen_half(uint16_t half) {
  const int32_t magnitude = half & 0x7fff;
  const float denormal = static_cast<float>(magnitude) * 0x1p-24f;
  int32_t bits;
  std::memcpy(&bits, &denormal, sizeof bits);
  // Else the exponent has another bias; that of inf and nan stays the largest. Masks, for a branch would keep the loop from
  // being vectorized.
  const int32_t normal = (magnitude << 13) + 0x38000000 + (-(magnitude >= 0x7c00) & 0x38000000);
  const int32_t is_normal = -(magnitude >= 0x0400);
  bits = (bits & ~is_normal) | (normal & is_normal);
  bits |= static_cast<int32_t>(static_cast<uint32_t>(half & 0x8000) << 16);
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

WIDEST void widen_halves(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = widen_half(x[i]);
}

WIDEST void widen_bfloats(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(x[i]) << 16;
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

Statistics statistics_of_double(const double* x, int64_t n) {
  Statistics s;
  for (int64_t i = 0; i < n; ++i) {
    s.sum_squares += x[i] * x[i];
    s.sum_abs += std::fabs(x[i]);
    if (std::isfinite(x[i])) {
      s.max_abs = std::max(s.max_abs, std::fabs(x[i]));
    } else {
      ++s.non_finite;
    }
  }
  return s;
}

enum class Type { kNone, kHalf, kBfloat, kFloat, kDouble };

Type type_of(const char* dtype) {
  if (std::strcmp(dtype, "float32") == 0) return Type::kFloat;
  if (std::strcmp(dtype, "float16") == 0) return Type::kHalf;
  if (std::strcmp(dtype, "bfloat16") == 0) return Type::kBfloat;
  return std::strcmp(dtype, "float64") == 0 ? Type::kDouble : Type::kNone;
}

Statistics statistics_of(const void* data, Type type, int64_t n) {
  if (type == Type::kDouble) return statistics_of_double(static_cast<const double*>(data), n);
  Statistics s;
  if (type == Type::kFloat) {
    add_floats(static_cast<const float*>(data), n, &s);
    return s;
  }
  float wide[kPlaces * kBlock];
  for (int64_t i = 0; i < n; i += kPlaces * kBlock) {
    const int64_t count = std::min(kPlaces * kBlock, n - i);
    const uint16_t* x = static_cast<const uint16_t*>(data) + i;
    if (type == Type::kHalf) {
      widen_halves(x, count, wide);
    } else {
      widen_bfloats(x, count, wide);
    }
    add_floats(wide, count, &s);
  }
  return s;
}

}  // namespace

bool statistics(const void* data, int64_t n, const char* dtype, Statistics* s) {
  const Type type = type_of(dtype);
  if (type == Type::kNone) return false;
  *s = statistics_of(data, type, n);
  return true;
}

}  // namespace asd

extern "C" {

int64_t asd_statistics(const void* data, int64_t n, const char* dtype, double* out) {
  asd::Statistics s;
  if (!asd::statistics(data, n, dtype, &s)) return 1;
  out[0] = s.max_abs;
  out[1] = s.sum_squares;
  out[2] = static_cast<double>(s.non_finite);
  out[3] = s.sum_abs;
  return 0;
}

// As float32 elements; returns 1 for another type than float16 and bfloat16.
int64_t asd_widen(const void* data, int64_t n, const char* dtype, float* out) {
  if (std::strcmp(dtype, "float16") == 0) {
    asd::widen_halves(static_cast<const uint16_t*>(data), n, out);
  } else if (std::strcmp(dtype, "bfloat16") == 0) {
    asd::widen_bfloats(static_cast<const uint16_t*>(data), n, out);
  } else {
    return 1;
  }
  return 0;
}

}  // extern "C"
