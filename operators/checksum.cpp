// Checks a matrix product C = A*B against its operands: C*v = A*(B*v) for a fixed vector v of signs, in blocks of 256
// columns. All sums are taken in double, so what is left over is the rounding of C itself, and the tolerance follows from
// its variance. A row that exceeds it is computed again, element by element, before anything is said.
//
// The host writes `schedule` between two steps; a product that is not due costs a call and nothing else.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

#include "checksum.h"
#include "hash.h"
#include "portable.h"

extern "C" int64_t asd_record_score(int64_t slot, double score);
extern "C" int64_t asd_widen(const void* data, int64_t n, const char* dtype, float* out);

namespace {

constexpr int64_t kBlock = 256;     // columns under one sum
constexpr int kMostConfirmed = 64;  // rows of one product that are computed again
constexpr double kFloatUnit = 0x1p-24;
constexpr double kSmallest = 0x1p-126;  // below it a kernel may flush to zero

// Keep in step with `TOLERANCES` in product_check.py.
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

// A stored matrix: element (i, l) of the operand is data[i * row + l * column].
struct Matrix {
  const float* data;
  int64_t row;
  int64_t column;
};

struct Format {
  double unit;      // of the last place of a number in [1, 2)
  double smallest;  // normal number
  double largest;   // finite number
};

struct Product {
  Matrix a, b;
  const float* c;
  int64_t m, k, n;
  Format format;
  double kappa;
};

struct Suspect {
  double score;
  int64_t row, block;
};

asd::Schedule schedule = {0, 0, 0, kVariance, 0, 0, 0};
std::mutex guard;

bool format_of(const char* dtype, Format* format) {
  if (std::strcmp(dtype, "float32") == 0) {
    *format = {0x1p-23, 0x1p-126, static_cast<double>(std::numeric_limits<float>::max())};
  } else if (std::strcmp(dtype, "float16") == 0) {
    *format = {0x1p-10, 0x1p-14, 65504.0};
  } else if (std::strcmp(dtype, "bfloat16") == 0) {
    *format = {0x1p-7, 0x1p-126, 3.3895313892515355e38};
  } else {
    return false;
  }
  return true;
}

// The same for every product: a random vector of signs is as good as any other against faults that do not know it.
float sign_of(int64_t column) { return (asd::mix(0x9e3779b97f4a7c15u * static_cast<uint64_t>(column + 1)) & 1) ? -1.0f : 1.0f; }

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

// Sums over one block of a row: with signs, of squares, and of squared powers of two below each element.
struct Sums {
  double signed_sum = 0.0, squares = 0.0, powers = 0.0;
};

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

// B*v and the squares of B summed, per block: out[block * k + l].
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

// A*(B*v) and the sums of A_il^2 * |B_l|^2, per block: out[block * m + i].
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

double unit_at(double value, const Format& format) {
  const double magnitude = std::max(std::fabs(value), format.smallest);
  return std::ldexp(format.unit, std::ilogb(magnitude));
}

enum Judgement { kRight, kWrong, kUnknown };

// What the rounding of one sum in float32 may come to where its errors do not cancel each other: small terms beside a large
// partial sum are lost one after the other, in whatever order they come, and equal terms are rounded alike, which the same
// sum in float32 shows.
double steady_error(const Product& p, int64_t i, int64_t j, double exact, double magnitude) {
  const double place = kFloatUnit * magnitude;
  double lost = 0.0;
  float fused = 0.0f, separate = 0.0f;
  for (int64_t l = 0; l < p.k; ++l) {
    const float a = p.a.data[i * p.a.row + l * p.a.column], b = p.b.data[l * p.b.row + j * p.b.column];
    const double term = std::fabs(static_cast<double>(a) * b);
    if (term < 16.0 * place) lost += std::min(term, place);
    fused = std::fma(a, b, fused);
    const float rounded = a * b;
    separate += rounded;
  }
  return lost + 2.0 * std::max(std::fabs(fused - exact), std::fabs(separate - exact));
}

// Computes the elements of one row between two columns again. An element is wrong if no rounding explains it: one unit in
// the last place, and what a sum in float32 can collect. Each addition rounds its partial sum, and the squares of those are
// known for the order of the terms; kernels that add in 16 or more lanes are covered by the sum of magnitudes. What lies
// beyond is compared with `steady_error` too.
Judgement confirm(const Product& p, int64_t i, int64_t first, int64_t count, Finding* finding) {
  const size_t size = static_cast<size_t>(count);
  std::vector<double> exact(size, 0.0), magnitude(size, 0.0), partial_squares(size, 0.0);
  for (int64_t l = 0; l < p.k; ++l) {
    const double a = p.a.data[i * p.a.row + l * p.a.column];
    for (int64_t j = 0; j < count; ++j) {
      const double term = a * p.b.data[l * p.b.row + (first + j) * p.b.column];
      exact[j] += term;
      magnitude[j] += std::fabs(term);
      partial_squares[j] += exact[j] * exact[j];
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

struct Buffers {
  std::vector<float> a, b, c, v;
  std::vector<double> bv, bb, sums, squares;
  std::vector<Suspect> suspects;
};

void check_by_variance(const Product& p, Buffers* buffers, Finding* finding) {
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
      // The rounding of C; and a sum in float32 of k terms, without a mean and with one. An addition rounds its partial sum
      // P with a variance of about 0.18 * 2^-48 * P^2; 1/9 is a little more than what the sum over all of them comes to.
      const double variance = p.format.unit * p.format.unit / 12.0 * sums.powers +
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

// The published rule: the vector of ones, and a tolerance that grows with n. With torch's, a row above it is computed
// again, and NaN passes.
void check_as_published(const Product& p, Buffers* buffers, bool torch, Finding* finding) {
  project(p, buffers->v.data(), p.n, &buffers->bv, &buffers->bb);
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

// As float32; a copy only where it is something else. Null for a type that can't be read.
const float* as_float(const Operand& operand, std::vector<float>* buffer) {
  if (std::strcmp(operand.dtype, "float32") == 0) return static_cast<const float*>(operand.data);
  const int64_t n = operand.batches() * operand.size(2) * operand.size(1);
  buffer->resize(static_cast<size_t>(n));
  return asd_widen(operand.data, n, operand.dtype, buffer->data()) == 0 ? buffer->data() : nullptr;
}

bool check(const Operand& a, bool transpose_a, const Operand& b, bool transpose_b, const Operand& c, const char* dtype,
           int64_t tolerance, Finding* finding) {
  static thread_local Buffers buffers;
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
  const float* a_data = as_float(a, &buffers.a);
  const float* b_data = as_float(b, &buffers.b);
  const float* c_data = as_float(c, &buffers.c);
  if (a_data == nullptr || b_data == nullptr || c_data == nullptr) return false;
  buffers.v.assign(static_cast<size_t>(p.n), 1.0f);
  if (tolerance == kVariance) {
    for (int64_t j = 0; j < p.n; ++j) buffers.v[static_cast<size_t>(j)] = sign_of(j);
  }
  p.kappa = kappa_of(batches * p.m * ((p.n + kBlock - 1) / kBlock));
  for (int64_t batch = 0; batch < batches; ++batch) {
    const float* a_now = a_data + (a.batches() == 1 ? 0 : batch * p.m * p.k);
    const float* b_now = b_data + (b.batches() == 1 ? 0 : batch * p.k * p.n);
    p.a = transpose_a ? Matrix{a_now, 1, p.m} : Matrix{a_now, p.k, 1};
    p.b = transpose_b ? Matrix{b_now, 1, p.k} : Matrix{b_now, p.n, 1};
    p.c = c_data + batch * p.m * p.n;
    const int64_t row = finding->row;
    if (tolerance == kVariance) {
      check_by_variance(p, &buffers, finding);
    } else {
      check_as_published(p, &buffers, tolerance == kTorch, finding);
    }
    if (finding->row != row) finding->row += batch * p.m;
    if (finding->score > 1.0) break;
  }
  return true;
}

void check_and_record(int64_t slot, const Operand& a, bool transpose_a, const Operand& b, bool transpose_b,
                      const Operand& c) {
  Finding finding;
  const bool known = check(a, transpose_a, b, transpose_b, c, c.dtype, schedule.tolerance, &finding);
  const bool wrong = finding.score > 1.0;
  asd::count_checked(known && finding.flagged > 0 && finding.judged && !wrong, !known || !(finding.judged || wrong));
  if (known && (finding.judged || finding.score > 1.0)) asd_record_score(slot, finding.score);
}

}  // namespace

bool asd::is_turn(int64_t number) {
  return schedule.all != 0 || (schedule.every > 0 && number % schedule.every == 0);
}

bool asd::is_due(int64_t slot) { return is_turn(slot + schedule.turn); }

void asd::count_checked(bool dismissed, bool unjudged) {
  const std::lock_guard<std::mutex> lock(guard);
  ++schedule.checked;
  schedule.dismissed += dismissed ? 1 : 0;
  schedule.unjudged += unjudged ? 1 : 0;
}

extern "C" {

asd::Schedule* asd_checksum_schedule() { return &schedule; }

double asd_checksum_sign(int64_t column) { return sign_of(column); }

// ctypes face: shapes are of the matrices as they are stored. `dtype` is the format that c was rounded to, which may be
// narrower than that of its elements. `out` gets score, row, column, error, bound, residuals, flagged, judged.
// Returns 0, or 1 for shapes and types it can't check.
int64_t asd_checksum_arrays(const void* a, int64_t a_dimensions, const int64_t* a_shape, const char* a_dtype,
                            int64_t transpose_a, const void* b, int64_t b_dimensions, const int64_t* b_shape,
                            const char* b_dtype, int64_t transpose_b, const void* c, int64_t c_dimensions,
                            const int64_t* c_shape, const char* c_dtype, const char* dtype, int64_t tolerance,
                            double* out) {
  Finding finding;
  if (!check({a, a_dimensions, a_shape, a_dtype}, transpose_a != 0, {b, b_dimensions, b_shape, b_dtype},
             transpose_b != 0, {c, c_dimensions, c_shape, c_dtype}, dtype, tolerance, &finding)) {
    return 1;
  }
  out[0] = finding.score;
  out[1] = static_cast<double>(finding.row);
  out[2] = static_cast<double>(finding.column);
  out[3] = finding.error;
  out[4] = finding.bound;
  out[5] = static_cast<double>(finding.residuals);
  out[6] = static_cast<double>(finding.flagged);
  out[7] = finding.judged ? 1.0 : 0.0;
  return 0;
}

// ops.Custom "aot" face: inputs a, b, c and int32[3] (slot, transpose_a, transpose_b); output float32[1] that only serves
// as a dependency. It never fails: a check must not end a training.
int asd_checksum(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 5) return 0;
  *static_cast<float*>(params[4]) = 0.0f;
  const int32_t* place = static_cast<const int32_t*>(params[3]);
  if (!asd::is_due(place[0])) return 0;
  try {
    check_and_record(place[0], {params[0], ndims[0], shapes[0], dtypes[0]}, place[1] != 0,
                     {params[1], ndims[1], shapes[1], dtypes[1]}, place[2] != 0,
                     {params[2], ndims[2], shapes[2], dtypes[2]});
  } catch (...) {  // no memory for the buffers
    const std::lock_guard<std::mutex> lock(guard);
    ++schedule.unjudged;
  }
  return 0;
}

}  // extern "C"
