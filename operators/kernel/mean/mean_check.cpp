// Checks a mean over ranks against what the ranks gave: the sum of its elements is the mean of the ranks' own sums. Each
// rank sums what it gives, in blocks; these few numbers go through an all-reduce of their own; and each rank compares the
// sums of what it got with them. Sums are taken in double, so what may be left over is the rounding of each element, which
// has a bound that no order of the additions exceeds.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/schedule.h"
#include "common/portable.h"
#include "common/tensor.h"

extern "C" int64_t asd_record_score(int64_t slot, double score);

namespace {

using asd::elements_of;

constexpr int64_t kBlock = 65536;       // elements under one sum; `BLOCK` of mean.py
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

// A type of gradients: what rounding to it adds relative to an element and beside it, and its largest number.
struct Type {
  double relative, smallest, largest;
};

bool type_of(const char* dtype, Type* type) {
  if (std::strcmp(dtype, "float32") == 0) {
    *type = {0.0, 0.0, 3.4e38};  // the sum over ranks is in float32 already
  } else if (std::strcmp(dtype, "float16") == 0) {
    *type = {0x1p-11, 0x1p-24, 65504.0};
  } else if (std::strcmp(dtype, "bfloat16") == 0) {
    *type = {0x1p-8, kSmallest, 3.38e38};
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
  Type type;
  if (!type_of(dtype, &type)) return;
  for (int64_t first = 0; first < n; first += kBlock, out += kNumbers) {
    const Sums sums = sums_of_block(data, first, std::min(kBlock, n - first), dtype, &buffer);
    out[0] = static_cast<float>(sums.sum);
    out[1] = static_cast<float>(sums.magnitudes);
    out[2] = 1.0f;
  }
}

// The worst residual of a mean as a multiple of what rounding can come to, infinite for a mean that is not finite; below 0
// where nothing can be said. `told` are the three numbers of each block, summed over `ranks`, of which the mean is `factor`
// times the sum.
double score_of(const void* data, int64_t n, const char* dtype, const float* told, double factor, int64_t ranks) {
  static thread_local std::vector<float> buffer;
  Type type;
  double worst = -1.0;
  if (!type_of(dtype, &type)) return worst;
  // An element is the sum of `ranks` numbers, times the factor, each step rounded; the sum of a block too, when it is told.
  const double roundings = 2.0 * static_cast<double>(ranks) + 4.0;
  for (int64_t first = 0; first < n; first += kBlock, told += kNumbers) {
    const int64_t count = std::min(kBlock, n - first);
    const double magnitudes = factor * told[1];
    // What a rank gave is not finite, which is no fault of the mean; or the sum over the ranks may be too large.
    if (!(told[1] < 1.7e38f && magnitudes < type.largest / 2)) continue;
    const double residual = std::fabs(sums_of_block(data, first, count, dtype, &buffer).sum - factor * told[0]);
    const double tolerance =
        1.001 * magnitudes * (roundings * kFloatUnit + type.relative) +
        static_cast<double>(count) * (static_cast<double>(ranks + 2) * kSmallest + type.smallest);
    const double score = residual / tolerance;
    worst = std::isnan(score) ? std::numeric_limits<double>::infinity() : std::max(worst, score);
  }
  return worst;
}

// Steps in which gradients were told in this process. All ranks make the same ones, for an all-reduce is between them, so
// the same gradients are due on all of them, whatever the number of the step or of a slot is.
int64_t steps = 0;

int64_t numbers_of(int gradients, const int32_t* slots, const int* ndims, int64_t* const* shapes) {
  int64_t numbers = 0;
  for (int i = 0; i < gradients; ++i) {
    if (slots[i] >= 0) numbers += kNumbers * blocks_of(elements_of(ndims[i], shapes[i]));
  }
  return numbers;
}

void tell_all(int gradients, void** params, const int* ndims, int64_t* const* shapes, const char** dtypes,
              const int32_t* slots, float* out) {
  const int64_t step = steps++;
  for (int i = 0; i < gradients; ++i) {
    if (slots[i] < 0) continue;
    const int64_t n = elements_of(ndims[i], shapes[i]);
    if (asd::is_turn(slots[i], i + step)) tell(params[i], n, dtypes[i], out);
    out += kNumbers * blocks_of(n);
  }
}

void check_all(int gradients, void** params, const int* ndims, int64_t* const* shapes, const char** dtypes,
               const int32_t* slots, const float* told, const float* mean) {
  for (int i = 0; i < gradients; ++i) {
    if (slots[i] < 0) continue;
    const int64_t n = elements_of(ndims[i], shapes[i]);
    if (n > 0 && told[2] == mean[1]) {  // all ranks told of it
      const double score = score_of(params[i], n, dtypes[i], told, mean[0], static_cast<int64_t>(mean[1]));
      asd::count_checked(false, score < 0);
      if (score >= 0) asd_record_score(slots[i], score);
    }
    told += kNumbers * blocks_of(n);
  }
}

}  // namespace

extern "C" {

// ctypes face of what one rank tells; `out` has three floats for each block. Returns 1 for a type it can't read.
int64_t asd_mean_tell(const void* data, int64_t n, const char* dtype, float* out) {
  Type type;
  if (!type_of(dtype, &type)) return 1;
  tell(data, n, dtype, out);
  return 0;
}

// ctypes face of the comparison.
double asd_mean_score(const void* data, int64_t n, const char* dtype, const float* told, double factor, int64_t ranks) {
  return score_of(data, n, dtype, told, factor, ranks);
}

// ops.Custom "aot" face: inputs are gradients and int32 slot numbers, one for each, below 0 for one that is not checked;
// output float32, three numbers for each block of each checked gradient in turn, zeros where it is not due. Neither this
// nor the next one ever fails: a check must not end a training.
int asd_mean_told(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam < 3) return 0;
  const int gradients = nparam - 2;
  const int32_t* slots = static_cast<const int32_t*>(params[gradients]);
  float* out = static_cast<float*>(params[nparam - 1]);
  const int64_t size = elements_of(ndims[nparam - 1], shapes[nparam - 1]);
  std::fill(out, out + size, 0.0f);
  // Else these are not the gradients that it was made for.
  if (numbers_of(gradients, slots, ndims, shapes) != size) return 0;
  const asd::CheckTime time;
  try {
    tell_all(gradients, params, ndims, shapes, dtypes, slots, out);
  } catch (...) {  // no memory for the buffer: the rank has told nothing
    std::fill(out, out + size, 0.0f);
  }
  return 0;
}

// ops.Custom "aot" face: inputs are the means, what all ranks told, the slots as above, and float32[2], the factor of the
// mean and the number of ranks; output float32[1] that only serves as a dependency.
int asd_mean_check(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam < 5) return 0;
  const int gradients = nparam - 4;
  const int32_t* slots = static_cast<const int32_t*>(params[gradients + 1]);
  *static_cast<float*>(params[nparam - 1]) = 0.0f;
  if (numbers_of(gradients, slots, ndims, shapes) != elements_of(ndims[gradients], shapes[gradients])) return 0;
  const asd::CheckTime time;
  try {
    check_all(gradients, params, ndims, shapes, dtypes, slots, static_cast<const float*>(params[gradients]),
              static_cast<const float*>(params[gradients + 2]));
  } catch (...) {  // no memory for the buffer
    asd::count_checked(false, true);
  }
  return 0;
}

}  // extern "C"
