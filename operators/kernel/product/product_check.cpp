// Checks a matrix product C = A*B against its operands: C*v = A*(B*v) for a fixed vector v of signs, in blocks of 256
// columns. All sums are taken in double, so what is left over is the rounding of C itself, and the tolerance follows from
// its variance. A row that exceeds it is computed again, element by element, before anything is said.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/hash.h"
#include "product/product.h"

namespace asd {

namespace {

constexpr int64_t kBlock = 256;     // columns under one sum
constexpr int kMostConfirmed = 64;  // rows of one product that are computed again

struct Suspect {
  double score;
  int64_t row, block;
};

struct Scratch {
  std::vector<double> bv, bb, sums, squares;
  std::vector<float> v;
  std::vector<Suspect> suspects;
};

Scratch& scratch() {
  static thread_local Scratch kept;
  return kept;
}

}  // namespace

// 1.13 times the two-sided quantile of the normal distribution for one false residual in a million products.
double kappa_of(int64_t residuals) {
  const double tail = 1e-6 / (2.0 * static_cast<double>(residuals));
  double low = 0.0, high = 40.0;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(middle / std::sqrt(2.0)) > tail ? low : high) = middle;
  }
  return 1.13 * high;
}

namespace {

void settle(const Product& p, std::vector<Suspect>* suspects, int64_t block_size, Finding* finding) {
  const size_t count = std::min(suspects->size(), static_cast<size_t>(kMostConfirmed));
  std::partial_sort(suspects->begin(), suspects->begin() + static_cast<std::ptrdiff_t>(count), suspects->end(),
                    [](const Suspect& one, const Suspect& other) { return one.score > other.score; });
  for (size_t s = 0; s < count; ++s) {
    const Suspect& suspect = (*suspects)[s];
    const int64_t first = suspect.block * block_size;
    const Judgement judgement = confirm(p, suspect.row, first, std::min(block_size, p.n - first), finding);
    if (judgement == kWrong) {
      finding->score = suspect.score;
      return;
    }
    if (judgement == kUnknown) finding->judged = false;
  }
}

}  // namespace

void check_by_variance(const Product& p, Finding* finding) {
  Scratch* buffers = &scratch();
  while (static_cast<int64_t>(buffers->v.size()) < p.n) {
    buffers->v.push_back(sign_of(static_cast<int64_t>(buffers->v.size())));
  }
  const int64_t blocks = (p.n + kBlock - 1) / kBlock;
  project(p, buffers->v.data(), kBlock, &buffers->bv, &buffers->bb);
  expect(p, blocks, buffers->bv, buffers->bb, &buffers->sums, &buffers->squares);
  buffers->suspects.clear();
  const double terms = static_cast<double>(p.k);
  double worst = 0.0;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = block * kBlock, count = std::min(kBlock, p.n - first);
      const Sums sums = sums_of(p.c + i * p.n + first, buffers->v.data() + first, count,
                                static_cast<float>(p.format.smallest));
      // The rounding of C, and of operands in float16; and a sum in float32 of k terms, without a mean and with one. An addition rounds its partial sum
      // P with a variance of about 0.18 * 2^-48 * P^2; 1/9 is a little more than what the sum over all of them comes to.
      const double variance = p.format.unit * p.format.unit / 12.0 * sums.powers +
                              kHalfUnit * kHalfUnit / 12.0 * p.halves * buffers->squares[block * p.m + i] +
                              kFloatUnit * kFloatUnit * terms / 9.0 *
                                  (buffers->squares[block * p.m + i] + sums.squares);
      const double tolerance = p.kappa * std::sqrt(variance) + 16.0 * kSmallest * (terms + 1.0);
      const double residual = std::fabs(sums.signed_sum - buffers->sums[block * p.m + i]);
      ++finding->residuals;
      if (residual <= tolerance && std::isfinite(residual)) {
        worst = std::max(worst, residual / tolerance);
      } else {
        ++finding->flagged;
        const double score = residual / tolerance;
        buffers->suspects.push_back({std::isnan(score) ? std::numeric_limits<double>::infinity() : score, i, block});
      }
    }
  }
  finding->score = std::max(finding->score, worst);
  if (!buffers->suspects.empty()) settle(p, &buffers->suspects, kBlock, finding);
}

namespace {

// The published rule: the vector of ones, and a tolerance that grows with n. With torch's, a row above it is computed
// again, and NaN passes.
void check_as_published(const Product& p, bool torch, Finding* finding) {
  Scratch* buffers = &scratch();
  const std::vector<float> ones(static_cast<size_t>(p.n), 1.0f);
  project(p, ones.data(), p.n, &buffers->bv, &buffers->bb);
  expect(p, 1, buffers->bv, buffers->bb, &buffers->sums, &buffers->squares);
  std::vector<double> errors(static_cast<size_t>(p.m)), largest(errors), mean(errors);
  double ratio = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < p.m; ++i) {
    double sum = 0.0;
    for (int64_t j = 0; j < p.n; ++j) {
      const double c = p.c[i * p.n + j];
      sum += c;
      largest[i] = std::max(largest[i], std::fabs(c));
      mean[i] += std::fabs(c) / static_cast<double>(p.n);
    }
    errors[i] = std::fabs(sum - buffers->sums[i]);
    const double own = largest[i] / mean[i];
    if (own < ratio) ratio = own;
  }
  const bool by_largest = torch ? ratio > 5 : ratio >= 5;
  const double n = static_cast<double>(p.n), factor = torch ? 5.0 : 1.0, slack = torch ? 5e-20 : 1e-20;
  buffers->suspects.clear();
  finding->residuals += p.m;
  for (int64_t i = 0; i < p.m; ++i) {
    const double tolerance = factor * (by_largest ? largest[i] * 0x1p-8 * std::sqrt(n) : mean[i] * 0x1p-8 * n);
    const double excess = errors[i] - tolerance;
    const double score = errors[i] / (tolerance + slack);
    if (torch ? excess > slack : !(excess < slack)) {
      ++finding->flagged;
      const double above = std::max(std::nextafter(1.0, 2.0), score);
      buffers->suspects.push_back({std::isnan(score) ? std::numeric_limits<double>::infinity() : above, i, 0});
    } else if (!std::isnan(score)) {
      finding->score = std::max(finding->score, std::min(score, 1.0));
    }
  }
  if (buffers->suspects.empty()) return;
  if (torch) {
    settle(p, &buffers->suspects, p.n, finding);
    return;
  }
  const auto worst = std::max_element(
      buffers->suspects.begin(), buffers->suspects.end(),
      [](const Suspect& one, const Suspect& other) { return one.score < other.score; });
  finding->score = std::max(finding->score, worst->score);
  finding->row = worst->row;
}

const float* read(const Operand& operand, std::vector<float>* buffer) {
  return as_float(operand.data, operand.batches() * operand.size(2) * operand.size(1), operand.dtype, buffer);
}

}  // namespace

// The same for every product: a random vector of signs is as good as any other against faults that do not know it.
float sign_of(int64_t column) { return (mix(0x9e3779b97f4a7c15u * static_cast<uint64_t>(column + 1)) & 1) ? -1.0f : 1.0f; }

bool check(const Operand& a, bool transpose_a, const Operand& b, bool transpose_b, const Operand& c, const char* dtype,
           int64_t tolerance, Finding* finding) {
  static thread_local struct {
    std::vector<float> a, b, c;
  } buffers;
  Product p = {};
  if (a.dimensions < 2 || b.dimensions < 2 || c.dimensions < 2 || !format_of(dtype, &p.format)) return false;
  p.m = c.size(2);
  p.n = c.size(1);
  p.k = transpose_a ? a.size(2) : a.size(1);
  const int64_t batches = c.batches();
  const bool fits = (transpose_a ? a.size(1) : a.size(2)) == p.m && (transpose_b ? b.size(1) : b.size(2)) == p.k &&
                    (transpose_b ? b.size(2) : b.size(1)) == p.n && (a.batches() == batches || a.batches() == 1) &&
                    (b.batches() == batches || b.batches() == 1);
  if (!fits) return false;
  if (batches * p.m * p.n * p.k == 0) return true;
  const float* a_data = read(a, &buffers.a);
  const float* b_data = read(b, &buffers.b);
  const float* c_data = read(c, &buffers.c);
  if (a_data == nullptr || b_data == nullptr || c_data == nullptr) return false;
  for (const char* type : {a.dtype, b.dtype}) p.halves += std::strcmp(type, "float16") == 0 ? 1 : 0;
  p.kappa = kappa_of(batches * p.m * ((p.n + kBlock - 1) / kBlock));
  for (int64_t batch = 0; batch < batches; ++batch) {
    const float* a_now = a_data + (a.batches() == 1 ? 0 : batch * p.m * p.k);
    const float* b_now = b_data + (b.batches() == 1 ? 0 : batch * p.k * p.n);
    p.a = transpose_a ? Matrix{a_now, 1, p.m} : Matrix{a_now, p.k, 1};
    p.b = transpose_b ? Matrix{b_now, 1, p.k} : Matrix{b_now, p.n, 1};
    p.c = c_data + batch * p.m * p.n;
    const int64_t row = finding->row;
    if (tolerance == kVariance) {
      check_by_variance(p, finding);
    } else {
      check_as_published(p, tolerance == kTorch, finding);
    }
    if (finding->row != row) finding->row += batch * p.m;
    if (finding->score > 1.0) break;
  }
  return true;
}

}  // namespace asd
