// Checks the backward pass of a norm: the gradients of x, gamma and beta, computed again from x, gamma and dy in double.
#include <cmath>
#include <cstdint>
#include <vector>

#include "norm/norm.h"
#include "common/portable.h"

namespace asd {

// dx = rstd * (d - mean(d) - normal * mean(d * normal)) with d = dy * gamma.
WIDEST void check_dx(const Norm& norm, const float* dy, const float* dx, const Format& format, NormScore* score) {
  const Layout& at = norm.layout;
  const double n = static_cast<double>(at.width), rounding = rounding_of(at.width);
  Worst worst(format);
  int64_t compared = 0;
  for (int64_t block = 0; block < at.blocks * at.groups; ++block) {
    const float *x = norm.x + block * at.width, *out = dy + block * at.width, *found = dx + block * at.width;
    const float* gamma = norm.gamma + block % at.groups * at.width;
    const Moments moments = moments_of(norm, x);
    if (!moments.known) continue;
    double ds[kLanes] = {0.0}, d_sizes[kLanes] = {0.0}, alongs[kLanes] = {0.0}, along_sizes[kLanes] = {0.0};
    in_lanes(at.width, [&](int64_t j, int lane) {
      const double normal = (x[j] - moments.mean) * moments.rstd, d = static_cast<double>(out[j]) * gamma[j];
      ds[lane] += d;
      d_sizes[lane] += std::fabs(d);
      alongs[lane] += d * normal;
      along_sizes[lane] += std::fabs(d * normal);
    });
    if (!(total(d_sizes) < kLargestSum && total(along_sizes) < kLargestSum)) continue;
    const double along = total(alongs) / n, along_size = total(along_sizes) / n;
    const double mean = norm.centred ? total(ds) / n : 0.0, d_size = total(d_sizes) / n;
    const double stretch = rounding + moments.stretch;
    const double of_means = norm.centred ? stretch * d_size : 0.0;
    in_lanes(at.width, [&](int64_t j, int lane) {
      const double normal = (x[j] - moments.mean) * moments.rstd, d = static_cast<double>(out[j]) * gamma[j];
      const double magnitude = std::fabs(normal);
      const double tolerance = stretch * (std::fabs(d) + magnitude * along_size) + of_means +
                               std::fabs(along) * (moments.shift + moments.stretch * magnitude) +
                               magnitude * (moments.shift * d_size + moments.stretch * along_size);
      worst.compare(found[j], moments.rstd * (d - mean - normal * along), moments.rstd * tolerance, lane);
    });
    compared += at.width;
  }
  worst.tell(compared, score);
}

namespace {

// Sums over all blocks that the gradients of gamma and beta are. What a float32 sum of many terms may be off is what each
// step rounds of the sum so far, in one lane; in whatever other order the deviation of a random walk, of which `walk` is a
// multiple.
struct OfWeights {
  std::vector<double> gamma, beta, gamma_rounding, beta_rounding, gamma_tolerance;

  explicit OfWeights(int64_t n)
      : gamma(static_cast<size_t>(n)), beta(gamma), gamma_rounding(gamma), beta_rounding(gamma), gamma_tolerance(gamma) {}
};

// Adds the `count` elements of a block from `first` on, each to its own sums, or all of them to the first ones.
template <bool kEach>
inline void add_terms(const float* x, const float* dy, int64_t count, const Moments& moments, double walk,
                      double* __restrict gamma, double* __restrict beta, double* __restrict gamma_rounding,
                      double* __restrict beta_rounding, double* __restrict gamma_tolerance) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t k = kEach ? i : 0;
    const double normal = (x[i] - moments.mean) * moments.rstd, out = dy[i], term = out * normal;
    const double off = moments.known ? moments.shift + moments.stretch * std::fabs(normal) : kInfinite;
    gamma[k] += term;
    gamma_rounding[k] += kRounding * std::fabs(gamma[k]) + walk * std::fabs(term);
    beta[k] += out;
    beta_rounding[k] += kRounding * std::fabs(beta[k]) + walk * std::fabs(out);
    gamma_tolerance[k] += out != 0.0 ? std::fabs(out) * off : 0.0;
  }
}

WIDEST void sum_weights(const Norm& norm, const float* dy, OfWeights* sums) {
  const Layout& at = norm.layout;
  const double walk = kRounding * (16.0 + 4.0 * std::sqrt(static_cast<double>(at.blocks * at.inner)));
  double *gamma = sums->gamma.data(), *beta = sums->beta.data(), *gamma_rounding = sums->gamma_rounding.data(),
         *beta_rounding = sums->beta_rounding.data(), *gamma_tolerance = sums->gamma_tolerance.data();
  for (int64_t block = 0; block < at.blocks * at.groups; ++block) {
    const float *x = norm.x + block * at.width, *out = dy + block * at.width;
    const Moments moments = moments_of(norm, x);
    const int64_t first = block % at.groups * at.per_group;
    if (at.inner == 1) {
      add_terms<true>(x, out, at.width, moments, walk, gamma + first, beta + first, gamma_rounding + first,
                      beta_rounding + first, gamma_tolerance + first);
      continue;
    }
    for (int64_t i = 0, k = first; i < at.width; i += at.inner, ++k) {
      add_terms<false>(x + i, out + i, at.inner, moments, walk, gamma + k, beta + k, gamma_rounding + k,
                       beta_rounding + k, gamma_tolerance + k);
    }
  }
}

}  // namespace

void check_weights(const Norm& norm, const float* dy, const float* dgamma, const Format& of_gamma, const float* dbeta,
                   const Format& of_beta, NormScore* score) {
  const int64_t gammas = norm.layout.groups * norm.layout.per_group;
  OfWeights weights(gammas);
  sum_weights(norm, dy, &weights);
  Worst gamma(of_gamma), beta(of_beta);
  in_lanes(gammas, [&](int64_t k, int lane) {
    gamma.compare(dgamma[k], weights.gamma[k], weights.gamma_rounding[k] + weights.gamma_tolerance[k], lane);
    if (dbeta != nullptr) beta.compare(dbeta[k], weights.beta[k], weights.beta_rounding[k], lane);
  });
  gamma.tell(gammas, score);
  if (dbeta != nullptr) beta.tell(gammas, score);
}

}  // namespace asd
