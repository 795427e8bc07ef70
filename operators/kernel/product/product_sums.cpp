// The sums of a matrix product's checksum, in double.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/portable.h"
#include "product/product.h"

namespace asd {

namespace {

constexpr int64_t kRows = 4;  // added at a time, between one read and one write of the sums

WIDEST void add_four(const float* one, const float* two, const float* three, const float* four, const double* f,
                     const double* w, int64_t n, double* __restrict sums, double* __restrict squares) {
  const double f0 = f[0], f1 = f[1], f2 = f[2], f3 = f[3], w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
  for (int64_t i = 0; i < n; ++i) {
    const double a = one[i], b = two[i], c = three[i], d = four[i];
    sums[i] += (f0 * a + f1 * b) + (f2 * c + f3 * d);
    squares[i] += (w0 * (a * a) + w1 * (b * b)) + (w2 * (c * c) + w3 * (d * d));
  }
}

WIDEST void add_one(const float* x, double factor, double weight, int64_t n, double* __restrict sums,
                    double* __restrict squares) {
  for (int64_t i = 0; i < n; ++i) {
    const double value = x[i];
    sums[i] += factor * value;
    squares[i] += weight * (value * value);
  }
}

// Adds at most kRows rows of x, each times its factor, and their squares, each times its weight.
void add_rows(const float* x, int64_t stride, int64_t rows, const double* factors, const double* weights, int64_t n,
              double* sums, double* squares) {
  if (rows == kRows) {
    add_four(x, x + stride, x + 2 * stride, x + 3 * stride, factors, weights, n, sums, squares);
    return;
  }
  for (int64_t row = 0; row < rows; ++row) add_one(x + row * stride, factors[row], weights[row], n, sums, squares);
}

// The dot products of x with a vector, and of its squares with another one.
WIDEST void dot_products(const float* x, const double* first, const double* second, int64_t n, double* one, double* two) {
  const int64_t half = n / 2;
  double a = 0.0, b = 0.0, c = 0.0, d = 0.0;
#pragma omp simd reduction(+ : a, b, c, d)
  for (int64_t i = 0; i < half; ++i) {
    const double value = x[i], other = x[half + i];
    a += value * first[i];
    b += value * value * second[i];
    c += other * first[half + i];
    d += other * other * second[half + i];
  }
  for (int64_t i = 2 * half; i < n; ++i) {
    const double value = x[i];
    a += value * first[i];
    b += value * value * second[i];
  }
  *one = a + c;
  *two = b + d;
}

// The same of numbers that are `step` apart.
void dot_products_apart(const float* x, int64_t step, const double* first, const double* second, int64_t n, double* one,
                        double* two) {
  double a = 0.0, b = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    const double value = x[i * step];
    a += value * first[i];
    b += value * value * second[i];
  }
  *one = a;
  *two = b;
}

void add_one_apart(const float* x, int64_t step, double factor, double weight, int64_t n, double* sums, double* squares) {
  for (int64_t i = 0; i < n; ++i) {
    const double value = x[i * step];
    sums[i] += factor * value;
    squares[i] += weight * (value * value);
  }
}

// Of an A whose rows come in runs: adds the products of one run with a block of B.
void add_run(const Matrix& a, int64_t i, int64_t k, const double* bv, const double* bb, double* sums, double* squares) {
  const float* x = a.data + a.rows[i];
  int64_t l = 0;
  if (a.step == 1) {
    for (; l + kRows <= k; l += kRows) {
      const int64_t* at = a.columns + l;
      add_four(x + at[0], x + at[1], x + at[2], x + at[3], bv + l, bb + l, a.run, sums, squares);
    }
  }
  for (; l < k; ++l) add_one_apart(x + a.columns[l], a.step, bv[l], bb[l], a.run, sums, squares);
}

// The power of two below a number.
inline float power_of(const float* x) {
  uint32_t bits;
  std::memcpy(&bits, x, sizeof bits);
  bits &= 0x7f800000u;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return power;
}

void expect_unfolded(const Product& p, int64_t blocks, const double* bv, const double* bb, double* sums, double* squares) {
  for (int64_t block = 0; block < blocks; ++block, bv += p.k, bb += p.k, sums += p.m, squares += p.m) {
    if (p.a.rows_run) {
      for (int64_t i = 0; i < p.m; i += p.a.run) add_run(p.a, i, p.k, bv, bb, sums + i, squares + i);
      continue;
    }
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t l = 0; l < p.k; l += p.a.run) {
        const float* x = p.a.data + p.a.rows[i] + p.a.columns[l];
        double one, two;
        if (p.a.step == 1) {
          dot_products(x, bv + l, bb + l, p.a.run, &one, &two);
        } else {
          dot_products_apart(x, p.a.step, bv + l, bb + l, p.a.run, &one, &two);
        }
        sums[i] += one;
        squares[i] += two;
      }
    }
  }
}

}  // namespace

WIDEST Sums sums_of(const float* x, const float* v, int64_t n, float smallest) {
  double signed_sum = 0.0, squares = 0.0, powers = 0.0;
#pragma omp simd reduction(+ : signed_sum, squares, powers)
  for (int64_t i = 0; i < n; ++i) {
    const double value = x[i];
    const float power = power_of(x + i);
    const double wide = power > smallest ? power : smallest;
    signed_sum += value * v[i];
    squares += value * value;
    powers += wide * wide;
  }
  return {signed_sum, squares, powers};
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
  const double ones[kRows] = {1.0, 1.0, 1.0, 1.0};
  const int64_t run = p.b.rows == nullptr ? p.k : p.b.run;
  for (int64_t j = 0, rows; j < p.n; j += rows) {  // stored n x k
    const int64_t block = j / block_size;
    rows = std::min({kRows, (block + 1) * block_size - j, p.n - j});
    double signs[kRows];
    std::copy(v + j, v + j + rows, signs);
    for (int64_t l = 0; l < p.k; l += run) {
      const int64_t at = j * p.b.column + (p.b.rows == nullptr ? l : p.b.rows[l]);
      add_rows(p.b.data + at, p.b.column, rows, signs, ones, run, bv->data() + block * p.k + l,
               bb->data() + block * p.k + l);
    }
  }
}

void expect(const Product& p, int64_t blocks, const std::vector<double>& bv, const std::vector<double>& bb,
            std::vector<double>* sums, std::vector<double>* squares) {
  sums->assign(static_cast<size_t>(blocks * p.m), 0.0);
  squares->assign(static_cast<size_t>(blocks * p.m), 0.0);
  if (p.a.rows != nullptr) {
    expect_unfolded(p, blocks, bv.data(), bb.data(), sums->data(), squares->data());
    return;
  }
  if (p.a.column == 1) {  // stored m x k
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t block = 0; block < blocks; ++block) {
        dot_products(p.a.data + i * p.a.row, bv.data() + block * p.k, bb.data() + block * p.k, p.k,
                     &(*sums)[block * p.m + i], &(*squares)[block * p.m + i]);
      }
    }
    return;
  }
  for (int64_t l = 0; l < p.k; l += kRows) {  // stored k x m
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t at = block * p.k + l;
      add_rows(p.a.data + l * p.a.column, p.a.column, std::min(kRows, p.k - l), bv.data() + at, bb.data() + at, p.m,
               sums->data() + block * p.m, squares->data() + block * p.m);
    }
  }
}

}  // namespace asd
