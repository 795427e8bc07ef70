// A matrix product under check: what the files that check it share.
#pragma once

#include <cstdint>
#include <vector>

#include "common/tensor.h"

namespace asd {

constexpr double kFloatUnit = 0x1p-24;
// MindSpore has no float16 kernels for many operators on a CPU: it computes them in float32 and rounds their results, but
// where one such operator hands its result to another the compiled graph leaves the rounding out. What is checked here is
// rounded, so an operand may be off by half of this, or by half of the step between denormal numbers.
constexpr double kHalfUnit = 0x1p-10, kHalfStep = 0x1p-24;
constexpr double kSmallest = 0x1p-126;  // below it a kernel may flush to zero

// Keep in step with `TOLERANCES` in product.py.
enum Tolerance : int64_t { kVariance = 0, kMindSpore = 1, kTorch = 2 };

struct Finding {
  double score = 0.0;     // worst residual as a multiple of its tolerance; above 1 only if the product is wrong
  int64_t row = -1;       // of the product, and of the batch before it, flattened
  int64_t column = -1;    // of its worst element
  double error = 0.0;     // of that element
  double bound = 0.0;     // the largest error that rounding can explain there
  int64_t residuals = 0;  // that were compared
  int64_t flagged = 0;    // of them above the tolerance
  bool judged = true;
};

// A stored matrix: element (i, l) of the operand is data[i * row + l * column]. Where there are tables the places of a row and
// of a column are added instead, and `run` rows or columns that follow each other are `step` apart: a tensor unfolded in place.
struct Matrix {
  const float* data;
  int64_t row;
  int64_t column;
  const int64_t *rows = nullptr, *columns = nullptr;
  int64_t run = 0, step = 1;
  bool rows_run = true;  // else the columns do

  float at(int64_t i, int64_t l) const {
    return data[(rows == nullptr ? i * row : rows[i]) + (columns == nullptr ? l * column : columns[l])];
  }
};

struct Product {
  Matrix a, b;
  const float* c;
  int64_t m, k, n;
  Format format;
  double kappa;
  int halves;  // operands in float16
};

// Sums over one block of a row: with signs, of squares, and of squared powers of two below each element.
struct Sums {
  double signed_sum = 0.0, squares = 0.0, powers = 0.0;
};

enum Judgement { kRight, kWrong, kUnknown };

struct Operand {
  const void* data;
  int64_t dimensions;
  const int64_t* shape;
  const char* dtype;

  int64_t size(int64_t back) const { return shape[dimensions - back]; }
  int64_t batches() const {
    int64_t count = 1;
    for (int64_t i = 0; i + 2 < dimensions; ++i) count *= shape[i];
    return count;
  }
};

// The sign of a column in the sums.
float sign_of(int64_t column);

// Of the first n elements of x, with the signs v; powers of two count as `smallest` at least.
Sums sums_of(const float* x, const float* v, int64_t n, float smallest);

// B*v and the squares of B summed, per block: out[block * k + l].
void project(const Product& p, const float* v, int64_t block_size, std::vector<double>* bv, std::vector<double>* bb);

// A*(B*v) and the sums of A_il^2 * |B_l|^2, per block: out[block * m + i].
void expect(const Product& p, int64_t blocks, const std::vector<double>& bv, const std::vector<double>& bb,
            std::vector<double>* sums, std::vector<double>* squares);

// Computes `count` elements of row i from column `first` on again.
Judgement confirm(const Product& p, int64_t i, int64_t first, int64_t count, Finding* finding);

// The tolerance in standard deviations for so many sums of one result.
double kappa_of(int64_t residuals);

// Checks C = A*B by random signs; `finding` gets the worst row of it, or keeps what it has.
void check_by_variance(const Product& p, Finding* finding);

// Counts what was found at a checkpoint, and writes its score; not `known` are shapes and types that can't be checked.
void record(int64_t slot, bool known, const Finding& finding);

// Checks C = A*B, whose elements were rounded to `dtype`; false for shapes and types it can't check.
bool check(const Operand& a, bool transpose_a, const Operand& b, bool transpose_b, const Operand& c, const char* dtype,
           int64_t tolerance, Finding* finding);

}  // namespace asd
