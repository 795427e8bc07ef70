// A norm under check: what the files that check it share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/lanes.h"
#include "common/tensor.h"

namespace asd {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kRounding = 0x1p-24;  // of float32, in which norms compute
constexpr double kFlushed = 0x1p-126;  // below it a kernel may flush to zero
constexpr double kLargestSum = 1.7e38;  // of squares or magnitudes, in float32

// A tensor without its shape; no data where there is none.
struct Array {
  const void* data;
  int64_t elements;
  const char* dtype;
};

// What is normalized together: the last axes, as many elements as gamma has, with `groups` 0; else groups of channels of
// (batches, channels, ...).
struct NormKind {
  int64_t batches, groups;
  bool centred;  // else the mean is not taken away: RMSNorm
  double epsilon;
};

// The worst residual as a multiple of what rounding explains.
struct NormScore {
  double worst = 0.0;
  bool compared = false;  // any element at all
  bool judged = true;     // every element that could be compared

  bool says_something() const { return (compared && judged) || worst > 1.0; }
};

// The worst residual of many elements, in lanes; a compiler has them beside each other as long as there is no branch.
struct Worst {
  const double largest, unit, smallest;
  double worst[kLanes] = {0.0}, odd[kLanes] = {0.0}, known[kLanes] = {0.0};

  explicit Worst(const Format& format) : largest(format.largest), unit(format.unit), smallest(format.smallest) {}

  void compare(double found, double expected, double tolerance, int lane) {
    // Nothing is known from an operand that is not finite, or of an overflow that is no fault.
    const double size = std::fabs(expected);
    const double most = tolerance + (size < largest / 2 ? 0.0 : kInfinite);
    const double one = most < largest ? 1.0 : 0.0, never = most < largest ? 0.0 : kInfinite;
    const double rounding = unit * (size + 2.0 * smallest) + 16.0 * kFlushed;  // of the result
    const double ratio = std::fabs(found - expected) / (most + rounding + never);
    worst[lane] = ratio > worst[lane] ? ratio : worst[lane];
    odd[lane] += one * (found == found ? 0.0 : 1.0);
    known[lane] += one;
  }

  void tell(int64_t compared, NormScore* score) const {
    double left = static_cast<double>(compared);
    for (int lane = 0; lane < kLanes; ++lane) {
      score->worst = std::max(score->worst, odd[lane] > 0.0 ? kInfinite : worst[lane]);
      if (known[lane] > 0.0) score->compared = true;
      left -= known[lane];
    }
    if (left > 0.0) score->judged = false;
  }
};

// Where the elements are that are normalized together: `blocks` times `groups` blocks of `width` elements in a row. An element
// j of a block of group g has the gamma g * per_group + j / inner.
struct Layout {
  int64_t blocks, groups, width, per_group, inner;
};

struct Norm {
  const float *x, *gamma;  // a gamma for each element of a sample
  Layout layout;
  double epsilon;
  bool centred;
  double coarse, step;  // of the rounding where x is narrower than float32, in which some kernels then compute; else 0
};

// Of one block: its mean, 1 / sqrt(var + epsilon), and what the rounding of these two comes to.
struct Moments {
  double mean, rstd;
  double shift, stretch;  // an element (x - mean) * rstd is off by shift + stretch * its magnitude at most
  bool known;             // else nothing is left of the variance in float32, and the block says nothing
};

// What a float32 sum of n numbers may be off, relative to their magnitudes. Equal ones are all rounded the same way, in a
// kernel that sums in one lane.
inline double rounding_of(int64_t n) { return kRounding * (16.0 + 0.5 * static_cast<double>(n)); }

// Of the block that begins at x.
Moments moments_of(const Norm& norm, const float* x);

// The scores of dx, and of dgamma and dbeta, of which the latter may be null.
void check_dx(const Norm& norm, const float* dy, const float* dx, const Format& format, NormScore* score);
void check_weights(const Norm& norm, const float* dy, const float* dgamma, const Format& of_gamma, const float* dbeta,
                   const Format& of_beta, NormScore* score);

// Whether shapes and types are such that it can be checked; then the score of y.
bool check_norm(const NormKind& kind, const Array& x, const Array& gamma, const Array& beta, const Array& y,
                NormScore* of_y);

// The same of the backward pass: the scores of dx, and of dgamma and dbeta, of which each may have no data.
bool check_norm_gradients(const NormKind& kind, const Array& x, const Array& gamma, const Array& dy, const Array& dx,
                          const Array& dgamma, const Array& dbeta, NormScore* of_x, NormScore* of_weights);

}  // namespace asd
