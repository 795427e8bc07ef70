// Checks a mean over ranks against what the ranks gave: the sum of its elements is the mean of the ranks' own sums. Each
// rank sums what it gives, in blocks; these few numbers go through an all-reduce of their own; and each rank compares the
// sums of what it got with them. Sums are taken in double, so what may be left over is the rounding of each element, which
// has a bound that no order of the additions exceeds.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "checksum.h"
#include "portable.h"

extern "C" int64_t asd_record_score(int64_t slot, double score);
extern "C" int64_t asd_widen(const void* data, int64_t n, const char* dtype, float* out);

namespace {

constexpr int64_t kBlock = 65536;       // elements under one sum; `BLOCK` of mean_check.py
constexpr int kNumbers = 3;             // for each block: sum, sum of magnitudes, 1 if it is due
constexpr double kFloatUnit = 0x1p-24;  // of the rounding of a number in [1, 2)
constexpr double kSmallest = 0x1p-126;  // below it a unit may flush to zero

struct Sums {
  double sum = 0.0, magnitudes = 0.0;
};

WIDEST Sums sums_of(const float* x, int64_t n) {
  constexpr int kLanes = 16;
  double sum[kLanes] = {0.0}, magnitudes[kLanes] = {0.0};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = x[i + lane];
      sum[lane] += value;
      magnitudes[lane] += std::fabs(value);
    }
  }
  Sums sums;
  for (; i < n; ++i) {
    sums.sum += x[i];
    sums.magnitudes += std::fabs(static_cast<double>(x[i]));
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    sums.sum += sum[lane];
    sums.magnitudes += magnitudes[lane];
  }
  return sums;
}

// What rounding to the type of the result adds, relative to an element and beside it; false for a type it can't read.
bool rounding_of(const char* dtype, double* relative, double* smallest) {
  if (std::strcmp(dtype, "float32") == 0) {
    *relative = 0.0;  // the sum over ranks is in float32 already
    *smallest = kSmallest;
  } else if (std::strcmp(dtype, "float16") == 0) {
    *relative = 0x1p-11;
    *smallest = 0x1p-14;
  } else if (std::strcmp(dtype, "bfloat16") == 0) {
    *relative = 0x1p-8;
    *smallest = kSmallest;
  } else {
    return false;
  }
  return true;
}

Sums sums_of_block(const void* data, int64_t first, int64_t n, const char* dtype, std::vector<float>* buffer) {
  if (std::strcmp(dtype, "float32") == 0) return sums_of(static_cast<const float*>(data) + first, n);
  buffer->resize(static_cast<size_t>(kBlock));
  asd_widen(static_cast<const uint16_t*>(data) + first, n, dtype, buffer->data());
  return sums_of(buffer->data(), n);
}

int64_t blocks_of(int64_t n) { return (n + kBlock - 1) / kBlock; }

// Three numbers for each block of a tensor; zeros where its type can't be read.
void tell(const void* data, int64_t n, const char* dtype, float* out) {
  static thread_local std::vector<float> buffer;
  double relative, smallest;
  if (!rounding_of(dtype, &relative, &smallest)) return;
  for (int64_t first = 0; first < n; first += kBlock, out += kNumbers) {
    const Sums sums = sums_of_block(data, first, std::min(kBlock, n - first), dtype, &buffer);
    out[0] = static_cast<float>(sums.sum);
    out[1] = static_cast<float>(sums.magnitudes);
    out[2] = 1.0f;
  }
}

// The worst residual of a mean as a multiple of what rounding can come to; below 0 where nothing can be said. `told` are
// the three numbers of each block, summed over `ranks`, of which the mean is `factor` times the sum.
double score_of(const void* data, int64_t n, const char* dtype, const float* told, double factor, int64_t ranks) {
  static thread_local std::vector<float> buffer;
  double relative, smallest, worst = 0.0;
  if (!rounding_of(dtype, &relative, &smallest)) return -1.0;
  // An element is the sum of `ranks` numbers, times the factor, each step rounded; the sum of a block too, when it is told.
  const double roundings = 2.0 * static_cast<double>(ranks) + 4.0;
  for (int64_t first = 0; first < n; first += kBlock, told += kNumbers) {
    const int64_t count = std::min(kBlock, n - first);
    if (told[2] != static_cast<float>(ranks)) return -1.0;  // not every rank told
    const Sums sums = sums_of_block(data, first, count, dtype, &buffer);
    const double residual = std::fabs(sums.sum - factor * told[0]), magnitudes = factor * told[1];
    if (!std::isfinite(residual) || !std::isfinite(magnitudes)) return -1.0;  // another tier sees what is not finite
    const double tolerance = 1.001 * magnitudes * (roundings * kFloatUnit + relative) +
                             static_cast<double>(count) * static_cast<double>(ranks + 2) * smallest;
    worst = std::max(worst, residual / tolerance);
  }
  return worst;
}

int64_t elements_of(int dimensions, const int64_t* shape) {
  int64_t n = 1;
  for (int i = 0; i < dimensions; ++i) n *= shape[i];
  return n;
}

}  // namespace

extern "C" {

int64_t asd_mean_blocks(int64_t n) { return blocks_of(n); }

// ctypes face of what one rank tells; `out` has three floats for each block. Returns 1 for a type it can't read.
int64_t asd_mean_tell(const void* data, int64_t n, const char* dtype, float* out) {
  double relative, smallest;
  if (!rounding_of(dtype, &relative, &smallest)) return 1;
  tell(data, n, dtype, out);
  return 0;
}

// ctypes face of the comparison.
double asd_mean_score(const void* data, int64_t n, const char* dtype, const float* told, double factor, int64_t ranks) {
  return score_of(data, n, dtype, told, factor, ranks);
}

// ops.Custom "aot" face: inputs are gradients and int32 slot numbers, one for each, below 0 for one that is not checked;
// output float32, three numbers for each block of each checked gradient in turn, zeros where it is not due.
int asd_mean_told(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam < 3) return 1;
  const int32_t* slots = static_cast<const int32_t*>(params[nparam - 2]);
  float* out = static_cast<float*>(params[nparam - 1]);
  for (int i = 0; i < nparam - 2; ++i) {
    if (slots[i] < 0) continue;
    const int64_t n = elements_of(ndims[i], shapes[i]), numbers = kNumbers * blocks_of(n);
    std::fill(out, out + numbers, 0.0f);
    if (asd::is_due(slots[i])) tell(params[i], n, dtypes[i], out);
    out += numbers;
  }
  return 0;
}

// ops.Custom "aot" face: inputs are the means, what all ranks told, the slots as above, and float32[2], the factor of the
// mean and the number of ranks; output float32[1] that only serves as a dependency.
int asd_mean_check(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam < 5) return 1;
  const float* told = static_cast<const float*>(params[nparam - 4]);
  const int32_t* slots = static_cast<const int32_t*>(params[nparam - 3]);
  const float* mean = static_cast<const float*>(params[nparam - 2]);
  *static_cast<float*>(params[nparam - 1]) = 0.0f;
  for (int i = 0; i < nparam - 4; ++i) {
    if (slots[i] < 0) continue;
    const int64_t n = elements_of(ndims[i], shapes[i]);
    if (n > 0 && asd::is_due(slots[i])) {
      const double score = score_of(params[i], n, dtypes[i], told, mean[0], static_cast<int64_t>(mean[1]));
      asd::count_checked(false, score < 0);
      if (score >= 0) asd_record_score(slots[i], score);
    }
    told += kNumbers * blocks_of(n);
  }
  return 0;
}

}  // extern "C"
