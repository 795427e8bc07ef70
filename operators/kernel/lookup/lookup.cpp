// Checks a lookup of rows, y[t] = table[ids[t]], and the gradient of the table: a row is copied as it is, and the gradient of
// one is the sum of those of its copies, which is made again in double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/portable.h"
#include "common/schedule.h"
#include "common/tensor.h"
#include "common/wrong_call.h"
#include "norm/norm.h"
#include "product/product.h"

extern "C" int64_t asd_record_score(int64_t slot, double score);

namespace {

using asd::NormScore;
using asd::Operand;

int64_t elements_of(const Operand& operand) {
  return asd::elements_of(static_cast<int>(operand.dimensions), operand.shape);
}

// False where one of them is no row of the table, of which nobody says what its lookup gives.
bool read_ids(const Operand& ids, int64_t rows, std::vector<int64_t>* out) {
  const int64_t count = elements_of(ids);
  out->resize(static_cast<size_t>(count));
  if (std::strcmp(ids.dtype, "int32") == 0) {
    std::copy_n(static_cast<const int32_t*>(ids.data), count, out->begin());
  } else if (std::strcmp(ids.dtype, "int64") == 0) {
    std::copy_n(static_cast<const int64_t*>(ids.data), count, out->begin());
  } else {
    return false;
  }
  return std::all_of(out->begin(), out->end(), [&](int64_t id) { return id >= 0 && id < rows; });
}

int64_t width_of(const Operand& table) {
  return table.dimensions < 1 || table.shape[0] == 0 ? 0 : elements_of(table) / table.shape[0];
}

// The score is 0, or 1 and the number of rows that are not what the table has there.
bool check_rows(const Operand& table, const Operand& ids, const Operand& y, NormScore* score) {
  asd::Format format;
  std::vector<int64_t> rows;
  const int64_t width = width_of(table);
  if (std::strcmp(table.dtype, y.dtype) != 0 || !asd::format_of(y.dtype, &format) || width == 0) return false;
  if (!read_ids(ids, table.shape[0], &rows) || elements_of(y) != elements_of(ids) * width) return false;
  const size_t bytes = static_cast<size_t>(width) * (std::strcmp(y.dtype, "float32") == 0 ? 4 : 2);
  const char *from = static_cast<const char*>(table.data), *found = static_cast<const char*>(y.data);
  int64_t wrong = 0;
  for (const int64_t row : rows) {
    wrong += std::memcmp(found, from + static_cast<size_t>(row) * bytes, bytes) != 0 ? 1 : 0;
    found += bytes;
  }
  score->worst = wrong > 0 ? 1.0 + static_cast<double>(wrong) : 0.0;
  score->compared = true;
  return true;
}

// Sums of the rows of one id, and what a sum in the result's own type may be off: what each addition rounds of the sum so
// far, in the order of the rows; in whatever other order four times the deviation of a random walk.
WIDEST void add_row(const float* row, int64_t width, double unit, double walk, double* __restrict sums,
                    double* __restrict tolerance) {
  for (int64_t i = 0; i < width; ++i) {
    sums[i] += row[i];
    tolerance[i] += unit * std::fabs(sums[i]) + walk * std::fabs(row[i]);
  }
}

bool check_sums(const Operand& ids, const Operand& dy, const Operand& table, const char* rounded_to, NormScore* score) {
  asd::Format format;
  std::vector<int64_t> of_token;
  std::vector<float> dy_buffer, table_buffer;
  const int64_t width = width_of(table), rows = width == 0 ? 0 : table.shape[0];
  if (width == 0 || !asd::format_of(rounded_to, &format) || !read_ids(ids, rows, &of_token)) return false;
  if (elements_of(dy) != elements_of(ids) * width) return false;
  const float* given = asd::as_float(dy.data, elements_of(dy), dy.dtype, &dy_buffer);
  const float* found = asd::as_float(table.data, elements_of(table), table.dtype, &table_buffer);
  if (given == nullptr || found == nullptr) return false;
  std::vector<int64_t> first(static_cast<size_t>(rows) + 1, 0), tokens(of_token.size());
  for (const int64_t row : of_token) ++first[row + 1];
  for (int64_t row = 0; row < rows; ++row) first[row + 1] += first[row];
  std::vector<int64_t> next(first.begin(), first.end() - 1);
  for (size_t token = 0; token < of_token.size(); ++token) tokens[next[of_token[token]]++] = static_cast<int64_t>(token);
  std::vector<double> sums(static_cast<size_t>(width)), tolerance(static_cast<size_t>(width));
  asd::Worst worst(format);
  const double unit = format.unit / 2.0;
  int64_t compared = 0, odd = 0;
  for (int64_t row = 0; row < rows; ++row, found += width) {
    const int64_t count = first[row + 1] - first[row];
    if (count == 0) {
      for (int64_t i = 0; i < width; ++i) odd += found[i] == 0.0f ? 0 : 1;
      continue;
    }
    std::fill(sums.begin(), sums.end(), 0.0);
    std::fill(tolerance.begin(), tolerance.end(), 0.0);
    const double walk = count > 1 ? unit * (4.0 + 4.0 * std::sqrt(static_cast<double>(count))) : 0.0;
    for (int64_t i = first[row]; i < first[row + 1]; ++i) {
      add_row(given + tokens[i] * width, width, count > 1 ? unit : 0.0, walk, sums.data(), tolerance.data());
    }
    asd::in_lanes(width, [&](int64_t i, int lane) { worst.compare(found[i], sums[i], tolerance[i], lane); });
    compared += width;
  }
  worst.tell(compared, score);
  score->compared = true;
  if (odd > 0) score->worst = std::max(score->worst, 1.0 + static_cast<double>(odd));
  return true;
}

bool check(int64_t part, const Operand* a, const char* rounded_to, NormScore* score) {
  return part == 0 ? check_rows(a[0], a[1], a[2], score) : check_sums(a[0], a[1], a[2], rounded_to, score);
}

}  // namespace

extern "C" {

// ctypes face: `part` is 0 for table, ids and y, and 1 for ids, dy and the gradient of the table,
// whose numbers were rounded to a type, its own if empty. `out` gets the score, below 0
// where nothing can be said. Returns 0, or 1 for shapes and types it can't check.
int64_t asd_lookup_arrays(int64_t part, const void* const* data, const int64_t* dimensions, const int64_t* const* shapes,
                          const char* const* dtypes, const char* rounded_to, double* out) {
  Operand a[3];
  for (int i = 0; i < 3; ++i) a[i] = {data[i], dimensions[i], shapes[i], dtypes[i]};
  NormScore score;
  if (!check(part, a, *rounded_to == '\0' ? dtypes[2] : rounded_to, &score)) return 1;
  *out = score.says_something() ? score.worst : -1.0;
  return 0;
}

// ops.Custom "aot" face: the same three tensors and int32[2], a slot and the part; output float32[1] that only serves as a
// dependency. It never fails: a check must not end a training.
int asd_lookup(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 5) return 0;
  *static_cast<float*>(params[4]) = 0.0f;
  const int32_t* place = static_cast<const int32_t*>(params[3]);
  if (!asd::is_due(place[0])) return 0;
  const asd::CheckTime time;
  Operand a[3];
  for (int i = 0; i < 3; ++i) a[i] = {params[i], ndims[i], shapes[i], dtypes[i]};
  try {
    NormScore score;
    const bool judged = check(place[1], a, dtypes[2], &score) && score.says_something();
    asd::count_checked(false, !judged);
    if (judged) asd_record_score(place[0], score.worst);
    if (judged) asd::keep_wrong(score.worst, place[0], 4, params, ndims, shapes, dtypes);
  } catch (...) {  // no memory for the buffers
    asd::count_checked(false, true);
  }
  return 0;
}

}  // extern "C"
