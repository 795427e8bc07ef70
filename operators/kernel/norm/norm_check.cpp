// Checks a norm, y = (x - mean) / sqrt(var + epsilon) * gamma + beta, and its backward pass by computing both again from the
// same operands in double. What may be left over is the rounding of the norm's own float32 sums and of its results.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "norm/norm.h"
#include "common/portable.h"
#include "common/tensor.h"

namespace asd {

namespace {

constexpr double kMostCancelled = 0.1;  // of the variance
constexpr double kLargestVariance = 1e24;

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

struct Plain {
  double sum, magnitudes, squares;
};

WIDEST Plain sums_of(const float* x, int64_t n) {
  double s[kLanes] = {0.0}, m[kLanes] = {0.0}, q[kLanes] = {0.0};
  in_lanes(n, [&](int64_t i, int lane) {
    const double value = x[i];
    s[lane] += value;
    m[lane] += std::fabs(value);
    q[lane] += value * value;
  });
  return {total(s), total(m), total(q)};
}

}  // namespace

Moments moments_of(const Norm& norm, const float* x) {
  const double n = static_cast<double>(norm.layout.width);
  const auto [sum, magnitudes, squares] = sums_of(x, norm.layout.width);
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

namespace {

WIDEST void check_y(const Norm& norm, const float* beta, const float* y, const Format& format, NormScore* score) {
  const Layout& at = norm.layout;
  const double of_shift = 4.0 * (kRounding + norm.coarse);
  Worst worst(format);
  int64_t compared = 0;
  for (int64_t block = 0; block < at.blocks * at.groups; ++block) {
    const float* x = norm.x + block * at.width;
    const Moments moments = moments_of(norm, x);
    if (!moments.known) continue;
    const float* found = y + block * at.width;
    const float* gamma = norm.gamma + block % at.groups * at.width;
    const float* shifts = beta == nullptr ? nullptr : beta + block % at.groups * at.width;
    const auto compare = [&](int64_t j, int lane, double shift) {
      const double normal = (x[j] - moments.mean) * moments.rstd, scale = gamma[j];
      const double off = std::fabs(scale) * (moments.shift + moments.stretch * std::fabs(normal));
      worst.compare(found[j], normal * scale + shift, off + of_shift * std::fabs(shift), lane);
    };
    if (shifts == nullptr) {
      in_lanes(at.width, [&](int64_t j, int lane) { compare(j, lane, 0.0); });
    } else {
      in_lanes(at.width, [&](int64_t j, int lane) { compare(j, lane, shifts[j]); });
    }
    compared += at.width;
  }
  worst.tell(compared, score);
}

struct Buffers {
  std::vector<float> x, gamma, wide_gamma, beta, wide_beta, dy, dx, dgamma, dbeta, y;
};

const float* read(const Array& array, std::vector<float>* buffer) {
  return as_float(array.data, array.elements, array.dtype, buffer);
}

// Gamma or beta for each element of a sample.
const float* read_weight(const Array& weight, const Layout& at, std::vector<float>* buffer, std::vector<float>* wide) {
  const float* of_channel = read(weight, buffer);
  if (of_channel == nullptr || at.inner == 1) return of_channel;
  wide->resize(static_cast<size_t>(at.groups * at.width));
  for (size_t j = 0; j < wide->size(); ++j) (*wide)[j] = of_channel[static_cast<int64_t>(j) / at.inner];
  return wide->data();
}

bool read_norm(const NormKind& kind, const Array& x, const Array& gamma, Buffers* buffers, Norm* norm) {
  Layout at;
  if (!layout_of(kind, x.elements, gamma.elements, &at)) return false;
  *norm = {read(x, &buffers->x), read_weight(gamma, at, &buffers->gamma, &buffers->wide_gamma), at, kind.epsilon,
           kind.centred, 0.0, 0.0};
  Format format;
  if (std::strcmp(x.dtype, "float32") != 0 && format_of(x.dtype, &format)) {
    norm->coarse = format.unit;
    norm->step = 2.0 * format.unit * format.smallest;
  }
  return norm->x != nullptr && norm->gamma != nullptr;
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
  const float* shift = shifted ? read_weight(beta, norm.layout, &buffers.beta, &buffers.wide_beta) : nullptr;
  const float* found = read(y, &buffers.y);
  if (found == nullptr || (shifted && shift == nullptr)) return false;
  check_y(norm, shift, found, format, of_y);
  return true;
}

bool check_norm_gradients(const NormKind& kind, const Array& x, const Array& gamma, const Array& dy, const Array& dx,
                          const Array& dgamma, const Array& dbeta, NormScore* of_x, NormScore* of_weights) {
  static thread_local Buffers buffers;
  Norm norm;
  if (!read_norm(kind, x, gamma, &buffers, &norm)) return false;
  const float* out = read(dy, &buffers.dy);
  if (out == nullptr || dy.elements != x.elements) return false;
  const Array* results[3] = {&dx, &dgamma, &dbeta};
  std::vector<float>* copies[3] = {&buffers.dx, &buffers.dgamma, &buffers.dbeta};
  const float* found[3] = {nullptr, nullptr, nullptr};
  Format formats[3] = {};
  for (int i = 0; i < 3; ++i) {
    if (results[i]->data == nullptr) continue;
    found[i] = read(*results[i], copies[i]);
    if (found[i] == nullptr || !format_of(results[i]->dtype, &formats[i])) return false;
    if (results[i]->elements != (i == 0 ? x.elements : gamma.elements)) return false;
  }
  if (found[0] != nullptr) check_dx(norm, out, found[0], formats[0], of_x);
  if (found[1] != nullptr) check_weights(norm, out, found[1], formats[1], found[2], formats[2], of_weights);
  return true;
}

}  // namespace asd
