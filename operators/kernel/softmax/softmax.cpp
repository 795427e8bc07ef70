// Checks a softmax over the last axis, y = exp(x - max) / sum, and its backward pass, dx = y * (dy - sum(y * dy)), each element
// from the same operands in double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/portable.h"
#include "common/schedule.h"
#include "common/tensor.h"
#include "common/wrong_call.h"
#include "norm/norm.h"
#include "product/product.h"

extern "C" int64_t asd_record_score(int64_t slot, double score);

namespace {

using asd::kInfinite;
using asd::kLanes;
using asd::kRounding;
using asd::NormScore;
using asd::Operand;

// What kernels for float32 approximate exp with, relative to it: beside its argument, and for each unit of that.
constexpr double kExponential = 0x1p-17, kOfArgument = 0x1p-20;
constexpr double kNothing = 1e-37;        // they end at exp(-87)

// exp of a number from -708 to 0, so that a compiler can take several at a time; relative error 1e-13.
inline double exp_of(double x) {
  constexpr double kShift = 0x1.8p52;
  const double whole = x * 1.4426950408889634 + kShift;
  const double k = whole - kShift;
  const double r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
  double sum = r * (1.0 / 3628800.0) + 1.0 / 362880.0;
  sum = sum * r + 1.0 / 40320.0;
  sum = sum * r + 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = ((sum * r + 0.5) * r + 1.0) * r + 1.0;
  uint64_t bits;
  std::memcpy(&bits, &whole, sizeof bits);
  bits = (bits + 1023) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  return sum * power;
}

WIDEST void check_forward(const float* x, const float* y, int64_t rows, int64_t n, const asd::Format& format, double coarse,
                          NormScore* score) {
  asd::Worst worst(format);
  std::vector<double> terms(static_cast<size_t>(n));
  const double rounding = asd::rounding_of(n) + kExponential + 2.0 * coarse;
  const double of_distance = kOfArgument + coarse;
  int64_t compared = 0;
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    double most = -kInfinite;
    bool odd = false;
    for (int64_t j = 0; j < n; ++j) {
      most = x[j] > most ? x[j] : most;
      odd |= x[j] != x[j];
    }
    if (odd || !std::isfinite(most)) {  // nothing is known of such a row
      compared += n;
      continue;
    }
    double sums[kLanes] = {0.0}, shifts[kLanes] = {0.0};
    asd::in_lanes(n, [&](int64_t j, int lane) {
      const double below = x[j] - most;
      const double term = exp_of(below > -708.0 ? below : -708.0);
      terms[j] = term;
      sums[lane] += term;
      // A term that is nothing says nothing, however far it is below; its distance may be infinite.
      shifts[lane] += term * (below > -708.0 ? of_distance * -below + coarse * std::fabs(static_cast<double>(x[j])) : 0.0);
    });
    const double sum = asd::total(sums), shift = asd::total(shifts) / sum;
    asd::in_lanes(n, [&](int64_t j, int lane) {
      const double below = x[j] - most, distance = below > -708.0 ? -below : 0.0;
      const double size = below > -708.0 ? std::fabs(static_cast<double>(x[j])) : 0.0;
      const double expected = terms[j] / sum;
      worst.compare(y[j], expected, expected * (rounding + shift + of_distance * distance + coarse * size) + kNothing, lane);
    });
    compared += n;
  }
  worst.tell(compared, score);
}

WIDEST void check_backward(const float* y, const float* dy, const float* dx, int64_t rows, int64_t n,
                           const asd::Format& format, double coarse, NormScore* score) {
  asd::Worst worst(format);
  const double rounding = asd::rounding_of(n) + 2.0 * coarse;
  for (int64_t row = 0; row < rows; ++row, y += n, dy += n, dx += n) {
    double sums[kLanes] = {0.0}, sizes[kLanes] = {0.0};
    asd::in_lanes(n, [&](int64_t j, int lane) {
      const double term = static_cast<double>(y[j]) * dy[j];
      sums[lane] += term;
      sizes[lane] += std::fabs(term);
    });
    const double sum = asd::total(sums), size = asd::total(sizes);
    asd::in_lanes(n, [&](int64_t j, int lane) {
      const double share = y[j], own = dy[j];
      const double off = (4.0 * kRounding + 2.0 * coarse) * (std::fabs(own) + std::fabs(sum)) + rounding * size;
      worst.compare(dx[j], share * (own - sum), std::fabs(share) * off, lane);
    });
  }
  worst.tell(rows * n, score);
}

bool check(int64_t part, const Operand* a, const char* rounded_to, NormScore* score) {
  asd::Format format;
  std::vector<float> buffers[3];
  const float* data[3];
  if (a[0].dimensions < 1 || !asd::format_of(rounded_to, &format)) return false;
  int64_t elements = 1;
  for (int64_t i = 0; i < a[0].dimensions; ++i) elements *= a[0].shape[i];
  for (int i = 0; i < 3; ++i) {
    if (a[i].dimensions != a[0].dimensions || !std::equal(a[i].shape, a[i].shape + a[i].dimensions, a[0].shape)) return false;
    data[i] = i == 1 && part == 0 ? nullptr : asd::as_float(a[i].data, elements, a[i].dtype, &buffers[i]);
    if (data[i] == nullptr && (i != 1 || part != 0)) return false;
  }
  if (elements == 0) return true;
  const int64_t n = a[0].shape[a[0].dimensions - 1];
  const double coarse = std::strcmp(rounded_to, "float32") == 0 ? 0.0 : format.unit;
  if (part == 0) {
    check_forward(data[0], data[2], elements / n, n, format, coarse, score);
  } else {
    check_backward(data[0], data[1], data[2], elements / n, n, format, coarse, score);
  }
  return true;
}

}  // namespace

extern "C" {

// ctypes face: float32 or float16 tensors of `rows` times `n` elements; `part` is 0 for x, anything and y, and 1 for y, dy and
// dx, whose numbers were rounded to a type, their own if empty. `out` gets the score, below 0 where nothing can be said. Returns 0, or 1
// for types it can't check.
int64_t asd_softmax_arrays(int64_t part, const void* const* data, int64_t rows, int64_t n, const char* dtype,
                           const char* rounded_to, double* out) {
  const int64_t shape[2] = {rows, n};
  Operand a[3];
  for (int i = 0; i < 3; ++i) a[i] = {data[i], 2, shape, dtype};
  NormScore score;
  if (!check(part, a, *rounded_to == '\0' ? dtype : rounded_to, &score)) return 1;
  *out = score.says_something() ? score.worst : -1.0;
  return 0;
}

// ops.Custom "aot" face: the same three tensors and int32[2], a slot and the part; output float32[1] that only serves as a
// dependency. It never fails: a check must not end a training.
int asd_softmax(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 5) return 0;
  *static_cast<float*>(params[4]) = 0.0f;
  const int32_t* place = static_cast<const int32_t*>(params[3]);
  if (!asd::is_due(place[0])) return 0;
  const asd::CheckTime time;
  Operand a[3];
  for (int i = 0; i < 3; ++i) a[i] = {params[i], ndims[i], shapes[i], dtypes[i]};
  try {
    NormScore score;
    const bool judged = check(place[1], a, dtypes[2], &score) && score.says_something();
    asd::count_checked(false, !judged);
    if (judged) asd_record_score(place[0], score.worst);
    if (judged) asd::keep_wrong(score.worst, place[0], 4, params, ndims, shapes, dtypes);
  } catch (...) {  // no memory for the buffers
    asd::count_checked(false, true);
  }
  return 0;
}

}  // extern "C"
