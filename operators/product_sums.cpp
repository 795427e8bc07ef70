// The sums of a matrix product's checksum, in double.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "portable.h"
#include "product.h"

namespace asd {

namespace {

WIDEST void add_signed_and_squares(const float* x, double sign, int64_t n, double* sum, double* squares) {
  for (int64_t i = 0; i < n; ++i) {
    const double value = x[i];
    sum[i] += sign * value;
    squares[i] += value * value;
  }
}

WIDEST void add_products(const float* x, double factor, double square, int64_t n, double* sum, double* squares) {
  for (int64_t i = 0; i < n; ++i) {
    const double value = x[i];
    sum[i] += factor * value;
    squares[i] += square * (value * value);
  }
}

// The dot products of x with a vector, and of its squares with another one.
WIDEST void dot_products(const float* x, const double* first, const double* second, int64_t n, double* one, double* two) {
  constexpr int kLanes = 16;
  double ones[kLanes] = {0.0}, twos[kLanes] = {0.0};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = x[i + lane];
      ones[lane] += value * first[i + lane];
      twos[lane] += value * value * second[i + lane];
    }
  }
  *one = *two = 0.0;
  for (; i < n; ++i) {
    const double value = x[i];
    *one += value * first[i];
    *two += value * value * second[i];
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    *one += ones[lane];
    *two += twos[lane];
  }
}

}  // namespace

WIDEST Sums sums_of(const float* x, const float* v, int64_t n, float smallest) {
  constexpr int kLanes = 16;
  double signed_sum[kLanes] = {0.0}, squares[kLanes] = {0.0}, powers[kLanes] = {0.0};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = x[i + lane];
      uint32_t bits;
      std::memcpy(&bits, x + i + lane, sizeof bits);
      bits &= 0x7f800000u;
      float power;
      std::memcpy(&power, &bits, sizeof power);
      const double wide = power > smallest ? power : smallest;
      signed_sum[lane] += value * v[i + lane];
      squares[lane] += value * value;
      powers[lane] += wide * wide;
    }
  }
  Sums sums;
  for (; i < n; ++i) {
    const double value = x[i];
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7f800000u;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    const double wide = std::max(power, smallest);
    sums.signed_sum += value * v[i];
    sums.squares += value * value;
    sums.powers += wide * wide;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    sums.signed_sum += signed_sum[lane];
    sums.squares += squares[lane];
    sums.powers += powers[lane];
  }
  return sums;
}

void project(const Product& p, const float* v, int64_t block_size, std::vector<double>* bv, std::vector<double>* bb) {
  const int64_t blocks = (p.n + block_size - 1) / block_size;
  bv->assign(static_cast<size_t>(blocks * p.k), 0.0);
  bb->assign(static_cast<size_t>(blocks * p.k), 0.0);
  if (p.b.column == 1) {  // stored k x n
    for (int64_t l = 0; l < p.k; ++l) {
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = block * block_size;
        const Sums sums = sums_of(p.b.data + l * p.b.row + first, v + first, std::min(block_size, p.n - first), 0.0f);
        (*bv)[block * p.k + l] = sums.signed_sum;
        (*bb)[block * p.k + l] = sums.squares;
      }
    }
    return;
  }
  for (int64_t j = 0; j < p.n; ++j) {  // stored n x k
    const int64_t at = j / block_size * p.k;
    add_signed_and_squares(p.b.data + j * p.b.column, v[j], p.k, bv->data() + at, bb->data() + at);
  }
}

void expect(const Product& p, int64_t blocks, const std::vector<double>& bv, const std::vector<double>& bb,
            std::vector<double>* sums, std::vector<double>* squares) {
  sums->assign(static_cast<size_t>(blocks * p.m), 0.0);
  squares->assign(static_cast<size_t>(blocks * p.m), 0.0);
  if (p.a.column == 1) {  // stored m x k
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t block = 0; block < blocks; ++block) {
        dot_products(p.a.data + i * p.a.row, bv.data() + block * p.k, bb.data() + block * p.k, p.k,
                     &(*sums)[block * p.m + i], &(*squares)[block * p.m + i]);
      }
    }
    return;
  }
  for (int64_t l = 0; l < p.k; ++l) {  // stored k x m
    for (int64_t block = 0; block < blocks; ++block) {
      add_products(p.a.data + l * p.a.column, bv[block * p.k + l], bb[block * p.k + l], p.m,
                   sums->data() + block * p.m, squares->data() + block * p.m);
    }
  }
}

}  // namespace asd
