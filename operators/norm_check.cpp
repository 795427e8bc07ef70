// Checks a norm, y = (x - mean) / sqrt(var + epsilon) * gamma + beta, and its backward pass, by computing both again from the
// same operands in double. What may be left over is the rounding of the norm's own float32 sums and of its results.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "norm.h"
#include "portable.h"
#include "tensor.h"

namespace asd {

namespace {

constexpr double kUnit = 0x1p-24;       // of float32, in which norms compute
constexpr double kSmallest = 0x1p-126;  // below it a kernel may flush to zero
constexpr double kMostCancelled = 0.1;  // of the variance
constexpr double kLargestSum = 1.7e38, kLargestVariance = 1e24;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// What a float32 sum of n numbers may be off, relative to their magnitudes. Equal ones are all rounded the same way, in a
// kernel that sums in one lane.
double rounding_of(int64_t n) { return kUnit * (16.0 + 0.5 * static_cast<double>(n)); }

void compare(double found, double expected, double tolerance, const Format& format, NormScore* score) {
  if (!(std::fabs(expected) < format.largest / 2 && tolerance < format.largest)) {
    score->judged = false;  // an operand that is not finite, or an overflow that is no fault
    return;
  }
  score->compared = true;
  // Of the result, which may be flushed to zero.
  const double rounding = format.unit * (std::fabs(expected) + 2.0 * format.smallest) + 16.0 * kSmallest;
  const double ratio = std::fabs(found - expected) / (tolerance + rounding);
  score->worst = std::isnan(ratio) ? kInfinite : std::max(score->worst, ratio);
}

// Where the elements are that are normalized together: `blocks` times `groups` blocks of `width` elements in a row. An element
// j of a block of group g has the gamma g * per_group + j / inner.
struct Layout {
  int64_t blocks, groups, width, per_group, inner;

  int64_t gamma_of(int64_t group, int64_t j) const { return group * per_group + j / inner; }
};

bool layout_of(const NormKind& kind, int64_t elements, int64_t gammas, Layout* layout) {
  if (gammas <= 0 || elements <= 0 || elements % gammas != 0) return false;
  if (kind.groups == 0) {
    *layout = {elements / gammas, 1, gammas, gammas, 1};
    return true;
  }
  if (kind.batches <= 0 || gammas % kind.groups != 0 || elements % (kind.batches * gammas) != 0) return false;
  const int64_t inner = elements / (kind.batches * gammas), per_group = gammas / kind.groups;
  *layout = {kind.batches, kind.groups, per_group * inner, per_group, inner};
  return true;
}

struct Norm {
  const float *x, *gamma;
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

WIDEST void sums_of(const float* x, int64_t n, double* sum, double* magnitudes, double* squares) {
  constexpr int kLanes = 16;
  double s[kLanes] = {0.0}, m[kLanes] = {0.0}, q[kLanes] = {0.0};
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = std::min<int64_t>(kLanes, n - i);
    for (int64_t lane = 0; lane < count; ++lane) {
      const double value = x[i + lane];
      s[lane] += value;
      m[lane] += std::fabs(value);
      q[lane] += value * value;
    }
  }
  *sum = *magnitudes = *squares = 0.0;
  for (int lane = 0; lane < kLanes; ++lane) {
    *sum += s[lane];
    *magnitudes += m[lane];
    *squares += q[lane];
  }
}

Moments moments_of(const Norm& norm, const float* x) {
  const double n = static_cast<double>(norm.layout.width);
  double sum, magnitudes, squares;
  sums_of(x, norm.layout.width, &sum, &magnitudes, &squares);
  const double mean = norm.centred ? sum / n : 0.0;
  const double variance = std::max(0.0, squares / n - mean * mean) + norm.epsilon;
  const double rstd = 1.0 / std::sqrt(variance), rounding = rounding_of(norm.layout.width);
  // A kernel may take the variance as the difference of two numbers, of which the larger is the mean square.
  const double cancelled = norm.centred ? 1.0 + squares / n / variance : 1.0;
  // Beyond these float32 has no squares of x, or no cube of rstd, which some kernels take.
  const bool in_range = squares < kLargestSum && variance < kLargestVariance;
  const bool known = in_range && rounding * cancelled < kMostCancelled;
  const double shift = norm.centred ? (rounding * magnitudes / n + norm.coarse * std::fabs(mean) + norm.step) * rstd : 0.0;
  return {mean, rstd, shift, rounding * (1.0 + cancelled) + 4.0 * norm.coarse, known};
}

void check_y(const Norm& norm, const float* beta, const float* y, const Format& format, NormScore* score) {
  const Layout& at = norm.layout;
  for (int64_t block = 0; block < at.blocks * at.groups; ++block) {
    const float* x = norm.x + block * at.width;
    const Moments moments = moments_of(norm, x);
    if (!moments.known) continue;
    for (int64_t j = 0; j < at.width; ++j) {
      const int64_t k = at.gamma_of(block % at.groups, j);
      const double normal = (x[j] - moments.mean) * moments.rstd, shift = beta == nullptr ? 0.0 : beta[k];
      const double tolerance = std::fabs(norm.gamma[k]) * (moments.shift + moments.stretch * std::fabs(normal)) +
                               4.0 * (kUnit + norm.coarse) * std::fabs(shift);
      compare(y[block * at.width + j], normal * norm.gamma[k] + shift, tolerance, format, score);
    }
  }
}

// Sums over all blocks that the gradients of gamma and beta are.
struct OfWeights {
  std::vector<double> gamma, beta, gamma_rounding, beta_rounding, gamma_tolerance;

  explicit OfWeights(int64_t n)
      : gamma(static_cast<size_t>(n)), beta(gamma), gamma_rounding(gamma), beta_rounding(gamma), gamma_tolerance(gamma) {}
};

// Adds a term to a sum of many. What a float32 sum of them may be off is what each step rounds of the sum so far, in one lane;
// in whatever other order the deviation of a random walk, of which `walk` is a multiple.
void add(double term, double walk, double* sum, double* rounding) {
  *sum += term;
  *rounding += kUnit * std::fabs(*sum) + walk * std::fabs(term);
}

// dx = rstd * (d - mean(d) - normal * mean(d * normal)) with d = dy * gamma, and the sums for the weights on the way.
void check_dx(const Norm& norm, const float* dy, const float* dx, const Format& format, OfWeights* weights,
              NormScore* score) {
  const Layout& at = norm.layout;
  const double n = static_cast<double>(at.width), rounding = rounding_of(at.width);
  const double walk = kUnit * (16.0 + 4.0 * std::sqrt(static_cast<double>(at.blocks * at.inner)));
  for (int64_t block = 0; block < at.blocks * at.groups; ++block) {
    const int64_t first = block * at.width, group = block % at.groups;
    const Moments moments = moments_of(norm, norm.x + first);
    double d_mean = 0.0, d_size = 0.0, along = 0.0, along_size = 0.0;
    for (int64_t j = 0; j < at.width; ++j) {
      const int64_t k = at.gamma_of(group, j);
      const double normal = (norm.x[first + j] - moments.mean) * moments.rstd, out = dy[first + j], d = out * norm.gamma[k];
      const double magnitude = std::fabs(normal), term = out * normal;
      d_mean += d;
      d_size += std::fabs(d);
      along += d * normal;
      along_size += std::fabs(d * normal);
      add(term, walk, &weights->gamma[k], &weights->gamma_rounding[k]);
      add(out, walk, &weights->beta[k], &weights->beta_rounding[k]);
      if (out != 0.0) {
        weights->gamma_tolerance[k] +=
            moments.known ? std::fabs(out) * (moments.shift + moments.stretch * magnitude) : kInfinite;
      }
    }
    const bool in_range = d_size < kLargestSum && along_size < kLargestSum;
    if (dx == nullptr || !moments.known || !in_range) continue;
    d_mean = norm.centred ? d_mean / n : 0.0;
    d_size /= n;
    along /= n;
    along_size /= n;
    for (int64_t j = 0; j < at.width; ++j) {
      const double normal = (norm.x[first + j] - moments.mean) * moments.rstd, magnitude = std::fabs(normal);
      const double d = dy[first + j] * norm.gamma[at.gamma_of(group, j)];
      const double off = moments.shift + moments.stretch * magnitude;
      const double sums = std::fabs(d) + (norm.centred ? d_size : 0.0) + magnitude * along_size;
      const double tolerance = moments.rstd * ((rounding + moments.stretch) * sums + std::fabs(along) * off +
                                               magnitude * (moments.shift * d_size + moments.stretch * along_size));
      compare(dx[first + j], moments.rstd * (d - d_mean - normal * along), tolerance, format, score);
    }
  }
}

void check_weights(const Norm& norm, const OfWeights& weights, const float* dgamma, const Format& of_gamma,
                   const float* dbeta, const Format& of_beta, NormScore* score) {
  const Layout& at = norm.layout;
  const int64_t gammas = at.groups * at.per_group;
  for (int64_t k = 0; k < gammas; ++k) {
    compare(dgamma[k], weights.gamma[k], weights.gamma_rounding[k] + weights.gamma_tolerance[k], of_gamma, score);
    if (dbeta != nullptr) compare(dbeta[k], weights.beta[k], weights.beta_rounding[k], of_beta, score);
  }
}

struct Buffers {
  std::vector<float> x, gamma, beta, one, two, three;
};

const float* read(const Array& array, std::vector<float>* buffer) {
  return as_float(array.data, array.elements, array.dtype, buffer);
}

bool read_norm(const NormKind& kind, const Array& x, const Array& gamma, Buffers* buffers, Norm* norm) {
  *norm = {read(x, &buffers->x), read(gamma, &buffers->gamma), {}, kind.epsilon, kind.centred, 0.0, 0.0};
  Format format;
  if (std::strcmp(x.dtype, "float32") != 0 && format_of(x.dtype, &format)) {
    norm->coarse = format.unit;
    norm->step = 2.0 * format.unit * format.smallest;
  }
  return norm->x != nullptr && norm->gamma != nullptr && layout_of(kind, x.elements, gamma.elements, &norm->layout);
}

}  // namespace

bool check_norm(const NormKind& kind, const Array& x, const Array& gamma, const Array& beta, const Array& y,
                NormScore* of_y) {
  static thread_local Buffers buffers;
  Norm norm;
  Format format;
  if (!read_norm(kind, x, gamma, &buffers, &norm) || !format_of(y.dtype, &format)) return false;
  const bool shifted = beta.data != nullptr;
  if (y.elements != x.elements || (shifted && beta.elements != gamma.elements)) return false;
  const float* shift = shifted ? read(beta, &buffers.beta) : nullptr;
  const float* found = read(y, &buffers.one);
  if (found == nullptr || (shifted && shift == nullptr)) return false;
  check_y(norm, shift, found, format, of_y);
  return true;
}

bool check_norm_gradients(const NormKind& kind, const Array& x, const Array& gamma, const Array& dy, const Array& dx,
                          const Array& dgamma, const Array& dbeta, NormScore* of_x, NormScore* of_weights) {
  static thread_local Buffers buffers;
  Norm norm;
  if (!read_norm(kind, x, gamma, &buffers, &norm)) return false;
  const float* out = read(dy, &buffers.beta);
  if (out == nullptr || dy.elements != x.elements) return false;
  const Array* results[3] = {&dx, &dgamma, &dbeta};
  std::vector<float>* copies[3] = {&buffers.one, &buffers.two, &buffers.three};
  const float* found[3] = {nullptr, nullptr, nullptr};
  Format formats[3] = {};
  for (int i = 0; i < 3; ++i) {
    if (results[i]->data == nullptr) continue;
    found[i] = read(*results[i], copies[i]);
    if (found[i] == nullptr || !format_of(results[i]->dtype, &formats[i])) return false;
    if (results[i]->elements != (i == 0 ? x.elements : gamma.elements)) return false;
  }
  OfWeights weights(gamma.elements);
  check_dx(norm, out, found[0], formats[0], &weights, of_x);
  if (found[1] != nullptr) check_weights(norm, weights, found[1], formats[1], found[2], formats[2], of_weights);
  return true;
}

}  // namespace asd
