// Checks a norm, y = (x - mean) / sqrt(var + epsilon) * gamma + beta, and its backward pass, by computing both again from the
// same operands in double. What may be left over is the rounding of the norm's own float32 sums and of its results.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "checksum.h"
#include "portable.h"

extern "C" int64_t asd_record_score(int64_t slot, double score);
extern "C" int64_t asd_widen(const void* data, int64_t n, const char* dtype, float* out);

namespace {

constexpr double kUnit = 0x1p-24;       // of float32, in which norms compute
constexpr double kSmallest = 0x1p-126;  // below it a kernel may flush to zero

struct Operand {
  const void* data;
  int64_t elements;
  const char* dtype;
};

// A type of results: what rounding to it adds relative to an element and beside it, and its largest number.
struct Format {
  double relative, smallest, largest;
};

bool format_of(const char* dtype, Format* format) {
  if (std::strcmp(dtype, "float32") == 0) {
    *format = {2 * kUnit, 16 * kSmallest, 3.4e38};
  } else if (std::strcmp(dtype, "float16") == 0) {
    *format = {0x1p-10, 0x1p-23, 65504.0};
  } else if (std::strcmp(dtype, "bfloat16") == 0) {
    *format = {0x1p-8, 16 * kSmallest, 3.38e38};
  } else {
    return false;
  }
  return true;
}

// What a float32 sum of n numbers may be off, relative to their magnitudes: roundings of a running sum add up as a random
// walk does, and not all kernels sum in several lanes.
double rounding_of(int64_t n) { return kUnit * (16.0 + 4.0 * std::sqrt(static_cast<double>(n))); }

// As float32; a copy only where it is something else. Null for a type that can't be read.
const float* as_float(const Operand& operand, std::vector<float>* buffer) {
  if (std::strcmp(operand.dtype, "float32") == 0) return static_cast<const float*>(operand.data);
  buffer->resize(static_cast<size_t>(operand.elements));
  return asd_widen(operand.data, operand.elements, operand.dtype, buffer->data()) == 0 ? buffer->data() : nullptr;
}

// The worst residual as a multiple of what rounding explains.
struct Score {
  double worst = 0.0;
  bool judged = true;

  void add(double found, double expected, double tolerance, const Format& format) {
    if (!(std::fabs(expected) < format.largest / 2 && tolerance < format.largest)) {
      judged = false;  // an operand that is not finite, or an overflow that is no fault
      return;
    }
    const double score = std::fabs(found - expected) / (tolerance + format.relative * std::fabs(expected) + format.smallest);
    worst = std::isnan(score) ? std::numeric_limits<double>::infinity() : std::max(worst, score);
  }
};

// Where the elements are that are normalized together: `blocks` times `groups` blocks of `width` elements in a row. An element
// j of a block of group g has the gamma g * per_group + j / inner.
struct Layout {
  int64_t blocks, groups, width, per_group, inner;

  int64_t gamma_of(int64_t group, int64_t j) const { return group * per_group + j / inner; }
};

// `groups` 0: over the last axes, as many elements as gamma has; else groups of channels of images (N, C, ...).
bool layout_of(int64_t elements, int64_t gammas, int64_t batches, int64_t groups, Layout* layout) {
  if (gammas <= 0 || elements <= 0 || elements % gammas != 0) return false;
  if (groups == 0) {
    *layout = {elements / gammas, 1, gammas, gammas, 1};
    return true;
  }
  if (gammas % groups != 0 || elements % (batches * gammas) != 0) return false;
  const int64_t inner = elements / (batches * gammas), per_group = gammas / groups;
  *layout = {batches, groups, per_group * inner, per_group, inner};
  return true;
}

struct Norm {
  const float *x, *gamma;
  Layout layout;
  double epsilon;
  bool centred;         // else the mean is not taken away: RMSNorm
  double coarse, step;  // of the rounding where x is narrower than float32, in which some kernels then compute; else 0
};

// Of one block: its mean, 1 / sqrt(var + epsilon), and what the rounding of these two comes to.
struct Moments {
  double mean, rstd;
  double shift, stretch;  // an element (x - mean) * rstd is off by shift + stretch * its magnitude at most
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
  const double shift = norm.centred ? (rounding * magnitudes / n + norm.coarse * std::fabs(mean) + norm.step) * rstd : 0.0;
  return {mean, rstd, shift, rounding * (1.0 + cancelled) + 4.0 * norm.coarse};
}

Score check_forward(const Norm& norm, const float* beta, const float* y, const Format& format) {
  Score score;
  const Layout& at = norm.layout;
  for (int64_t block = 0; block < at.blocks * at.groups; ++block) {
    const float* x = norm.x + block * at.width;
    const Moments moments = moments_of(norm, x);
    for (int64_t j = 0; j < at.width; ++j) {
      const int64_t k = at.gamma_of(block % at.groups, j);
      const double normal = (x[j] - moments.mean) * moments.rstd, shift = beta == nullptr ? 0.0 : beta[k];
      const double tolerance = std::fabs(norm.gamma[k]) * (moments.shift + moments.stretch * std::fabs(normal)) +
                               4.0 * (kUnit + norm.coarse) * std::fabs(shift);
      score.add(y[block * at.width + j], normal * norm.gamma[k] + shift, tolerance, format);
    }
  }
  return score;
}

// Sums over all blocks that the gradients of gamma and beta are.
struct OfWeights {
  std::vector<double> gamma, beta, gamma_magnitudes, beta_magnitudes, gamma_tolerance;

  explicit OfWeights(int64_t n)
      : gamma(static_cast<size_t>(n)), beta(gamma), gamma_magnitudes(gamma), beta_magnitudes(gamma), gamma_tolerance(gamma) {}
};

// dx = rstd * (d - mean(d) - normal * mean(d * normal)) with d = dy * gamma, and the sums for the weights on the way.
Score check_dx(const Norm& norm, const float* dy, const float* dx, const Format& format, OfWeights* weights) {
  Score score;
  const Layout& at = norm.layout;
  const double n = static_cast<double>(at.width), rounding = rounding_of(at.width);
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
      weights->gamma[k] += term;
      weights->beta[k] += out;
      weights->gamma_magnitudes[k] += std::fabs(term);
      weights->beta_magnitudes[k] += std::fabs(out);
      weights->gamma_tolerance[k] += std::fabs(out) * (moments.shift + moments.stretch * magnitude);
    }
    if (dx == nullptr) continue;
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
      score.add(dx[first + j], moments.rstd * (d - d_mean - normal * along), tolerance, format);
    }
  }
  return score;
}

Score check_weights(const Norm& norm, const OfWeights& weights, const float* dgamma, const Format& of_gamma,
                    const float* dbeta, const Format& of_beta) {
  Score score;
  const Layout& at = norm.layout;
  const int64_t gammas = at.groups * at.per_group;
  const double rounding = rounding_of(at.blocks * at.inner);
  for (int64_t k = 0; k < gammas; ++k) {
    score.add(dgamma[k], weights.gamma[k], rounding * weights.gamma_magnitudes[k] + weights.gamma_tolerance[k], of_gamma);
    if (dbeta != nullptr) score.add(dbeta[k], weights.beta[k], rounding * weights.beta_magnitudes[k], of_beta);
  }
  return score;
}

struct Buffers {
  std::vector<float> x, gamma, beta, one, two, three;
};

bool read_norm(const Operand& x, const Operand& gamma, int64_t batches, int64_t groups, bool centred, double epsilon,
               Buffers* buffers, Norm* norm) {
  Format format;
  const bool is_wide = std::strcmp(x.dtype, "float32") == 0;
  *norm = {as_float(x, &buffers->x), as_float(gamma, &buffers->gamma), {}, epsilon, centred, 0.0, 0.0};
  if (!is_wide && format_of(x.dtype, &format)) {
    norm->coarse = format.relative;
    norm->step = format.smallest;
  }
  return norm->x != nullptr && norm->gamma != nullptr &&
         layout_of(x.elements, gamma.elements, batches, groups, &norm->layout);
}

bool forward(const Operand& x, const Operand& gamma, const Operand& beta, const Operand& y, int64_t batches, int64_t groups,
             bool centred, double epsilon, Score* score) {
  static thread_local Buffers buffers;
  Norm norm;
  Format format;
  if (!read_norm(x, gamma, batches, groups, centred, epsilon, &buffers, &norm) || !format_of(y.dtype, &format)) return false;
  const float* shift = beta.data == nullptr ? nullptr : as_float(beta, &buffers.beta);
  const float* found = as_float(y, &buffers.one);
  const bool fits = y.elements == x.elements && (beta.data == nullptr || beta.elements == gamma.elements);
  if (!fits || found == nullptr || (beta.data != nullptr && shift == nullptr)) return false;
  *score = check_forward(norm, shift, found, format);
  return true;
}

bool backward(const Operand& x, const Operand& gamma, const Operand& dy, const Operand& dx, const Operand& dgamma,
              const Operand& dbeta, int64_t batches, int64_t groups, bool centred, double epsilon, Score* of_x,
              Score* of_weights) {
  static thread_local Buffers buffers;
  Norm norm;
  Format formats[3] = {};
  if (!read_norm(x, gamma, batches, groups, centred, epsilon, &buffers, &norm)) return false;
  const float* out = as_float(dy, &buffers.beta);
  if (out == nullptr || dy.elements != x.elements) return false;
  const Operand* results[3] = {&dx, &dgamma, &dbeta};
  std::vector<float>* copies[3] = {&buffers.one, &buffers.two, &buffers.three};
  const float* found[3] = {nullptr, nullptr, nullptr};
  for (int i = 0; i < 3; ++i) {
    if (results[i]->data == nullptr) continue;
    found[i] = as_float(*results[i], copies[i]);
    if (found[i] == nullptr || !format_of(results[i]->dtype, &formats[i])) return false;
    if (results[i]->elements != (i == 0 ? x.elements : gamma.elements)) return false;
  }
  OfWeights weights(gamma.elements);
  *of_x = check_dx(norm, out, found[0], formats[0], &weights);
  if (found[1] != nullptr) *of_weights = check_weights(norm, weights, found[1], formats[1], found[2], formats[2]);
  return true;
}

int64_t elements_of(int dimensions, const int64_t* shape) {
  int64_t n = 1;
  for (int i = 0; i < dimensions; ++i) n *= shape[i];
  return n;
}

void record(int64_t slot, bool known, const Score& score) {
  const bool judged = known && (score.judged || score.worst > 1.0);
  asd::count_checked(false, !judged);
  if (judged) asd_record_score(slot, score.worst);
}

}  // namespace

extern "C" {

// ctypes face. `data` are x, gamma, beta, y, dy, dx, dgamma and dbeta with their numbers of elements and types, null for what
// there is none of: what is not there is not checked. `out` gets the scores of y, dx and of the weights' gradients, below 0
// where nothing can be said. Returns 0, or 1 for shapes and types it can't check.
int64_t asd_norm_arrays(const void* const* data, const int64_t* elements, const char* const* dtypes, int64_t batches,
                        int64_t groups, int64_t centred, double epsilon, double* out) {
  Operand o[8];
  for (int i = 0; i < 8; ++i) o[i] = {data[i], elements[i], dtypes[i]};
  Score y, dx, dw;
  if (o[3].data != nullptr && !forward(o[0], o[1], o[2], o[3], batches, groups, centred != 0, epsilon, &y)) return 1;
  if (o[4].data != nullptr &&
      !backward(o[0], o[1], o[4], o[5], o[6], o[7], batches, groups, centred != 0, epsilon, &dx, &dw)) {
    return 1;
  }
  const Score* scores[3] = {&y, &dx, &dw};
  for (int i = 0; i < 3; ++i) out[i] = scores[i]->judged || scores[i]->worst > 1.0 ? scores[i]->worst : -1.0;
  return 0;
}

// ops.Custom "aot" face: inputs x, gamma, beta, y, int32[4] (slot, groups, 1 if centred, 1 if there is a beta) and
// float32[1], epsilon; output float32[1] that only serves as a dependency. Neither this nor the next one ever fails: a check
// must not end a training.
int asd_norm_forward(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 7) return 0;
  *static_cast<float*>(params[6]) = 0.0f;
  const int32_t* place = static_cast<const int32_t*>(params[4]);
  if (!asd::is_due(place[0])) return 0;
  Operand o[4];
  for (int i = 0; i < 4; ++i) o[i] = {params[i], elements_of(ndims[i], shapes[i]), dtypes[i]};
  if (place[3] == 0) o[2].data = nullptr;
  try {
    Score score;
    const bool known = forward(o[0], o[1], o[2], o[3], ndims[0] > 0 ? shapes[0][0] : 1, place[1], place[2] != 0,
                               *static_cast<const float*>(params[5]), &score);
    record(place[0], known, score);
  } catch (...) {  // no memory for the buffers
    asd::count_checked(false, true);
  }
  return 0;
}

// ops.Custom "aot" face: inputs x, gamma, dy, dx, dgamma, dbeta, int32[5] (slots of dx and of the weights' gradients, groups, 1
// if centred, 1 if there is a beta) and epsilon.
int asd_norm_backward(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 9) return 0;
  *static_cast<float*>(params[8]) = 0.0f;
  const int32_t* place = static_cast<const int32_t*>(params[6]);
  const bool dx_due = asd::is_due(place[0]), dw_due = asd::is_due(place[1]);
  if (!dx_due && !dw_due) return 0;
  Operand o[6];
  for (int i = 0; i < 6; ++i) o[i] = {params[i], elements_of(ndims[i], shapes[i]), dtypes[i]};
  if (!dx_due) o[3].data = nullptr;
  if (!dw_due) o[4].data = nullptr;
  if (!dw_due || place[4] == 0) o[5].data = nullptr;
  try {
    Score dx, dw;
    const bool known = backward(o[0], o[1], o[2], o[3], o[4], o[5], ndims[0] > 0 ? shapes[0][0] : 1, place[2],
                                place[3] != 0, *static_cast<const float*>(params[7]), &dx, &dw);
    if (dx_due) record(place[0], known, dx);
    if (dw_due) record(place[1], known, dw);
  } catch (...) {  // no memory for the buffers
    asd::count_checked(false, true);
  }
  return 0;
}

}  // extern "C"
