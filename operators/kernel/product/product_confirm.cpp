// Elements of a matrix product computed again, to tell a wrong one from one that was rounded.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "product/product.h"

namespace asd {

namespace {

double unit_at(double value, const Format& format) {
  const double magnitude = std::max(std::fabs(value), format.smallest);
  return std::ldexp(format.unit, std::ilogb(magnitude));
}

// What the rounding of one sum in float32 may come to where its errors do not cancel each other: small terms beside a large
// partial sum are lost one after the other, in whatever order they come, and equal terms are rounded alike, which the same
// sum in float32 shows.
double steady_error(const Product& p, int64_t i, int64_t j, double exact, double magnitude) {
  const double place = kFloatUnit * magnitude;
  double lost = 0.0;
  float fused = 0.0f, separate = 0.0f;
  for (int64_t l = 0; l < p.k; ++l) {
    const float a = p.a.at(i, l), b = p.b.at(l, j);
    const double term = std::fabs(static_cast<double>(a) * b);
    if (term < 16.0 * place) lost += std::min(term, place);
    fused = std::fma(a, b, fused);
    const float rounded = a * b;
    separate += rounded;
  }
  return lost + 2.0 * std::max(std::fabs(fused - exact), std::fabs(separate - exact));
}

}  // namespace

// Computes the elements of one row between two columns again. An element is wrong if no rounding explains it: one unit in
// the last place, and what a sum in float32 can collect. Each addition rounds its partial sum, and the squares of those are
// known for the order of the terms; kernels that add in 16 or more lanes are covered by the sum of magnitudes. Equal
// operands in float16 are rounded alike, so their roundings count in full. What lies beyond is compared with `steady_error`
// too.
Judgement confirm(const Product& p, int64_t i, int64_t first, int64_t count, Finding* finding) {
  const size_t size = static_cast<size_t>(count);
  std::vector<double> exact(size, 0.0), magnitude(size, 0.0), partial_squares(size, 0.0), operands(size, 0.0);
  for (int64_t l = 0; l < p.k; ++l) {
    const double a = p.a.at(i, l);
    for (int64_t j = 0; j < count; ++j) {
      const double b = p.b.at(l, first + j), term = a * b;
      exact[j] += term;
      magnitude[j] += std::fabs(term);
      partial_squares[j] += exact[j] * exact[j];
      operands[j] += std::fabs(a) + std::fabs(b);
    }
  }
  const double lanes = std::sqrt(static_cast<double>(p.k)) / 8.0;
  double worst = 1.0;
  Judgement judgement = kRight;
  for (int64_t j = 0; j < count; ++j) {
    const double c = p.c[i * p.n + first + j];
    if (!std::isfinite(exact[j])) {  // an operand is not finite
      if (judgement == kRight) judgement = kUnknown;
      continue;
    }
    if (magnitude[j] >= p.format.largest) continue;  // it may overflow, on the way or in the end
    double bound = unit_at(std::isfinite(c) ? std::max(std::fabs(c), std::fabs(exact[j])) : exact[j], p.format) +
                         kFloatUnit * (6.0 * std::sqrt(partial_squares[j]) + lanes * magnitude[j]) +
                         kSmallest * static_cast<double>(p.k + 1);
    if (p.halves > 0) bound += p.halves * kHalfUnit / 2.0 * magnitude[j] + kHalfStep / 2.0 * operands[j];
    const double error = std::isfinite(c) ? std::fabs(c - exact[j]) : std::numeric_limits<double>::infinity();
    if (error / bound <= worst) continue;
    if (std::isfinite(c)) bound += steady_error(p, i, first + j, exact[j], magnitude[j]);
    if (error / bound > worst) {
      worst = error / bound;
      judgement = kWrong;
      finding->row = i;
      finding->column = first + j;
      finding->error = error;
      finding->bound = bound;
    }
  }
  return judgement;
}

}  // namespace asd
