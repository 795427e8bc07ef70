// When matrix products are checked by their checksums, and the faces of that check. The host writes `schedule` between two
// steps; a product that is not due costs a call and nothing else.
#include "common/schedule.h"
#include "common/wrong_call.h"

#include <cstdint>
#include <mutex>

#include "product/product.h"

extern "C" int64_t asd_record_score(int64_t slot, double score);
extern "C" int64_t asd_gate_of_slot(int64_t slot);

namespace {

using asd::Finding;
using asd::Operand;

asd::Schedule schedules[256];  // as many as gates; nothing is due
std::mutex guard;

double check_and_record(int64_t slot, const Operand& a, bool transpose_a, const Operand& b, bool transpose_b,
                      const Operand& c) {
  Finding finding;
  const int64_t tolerance = schedules[asd_gate_of_slot(slot)].tolerance;
  const bool known = asd::check(a, transpose_a, b, transpose_b, c, c.dtype, tolerance, &finding);
  asd::record(slot, known, finding);
  return known ? finding.score : 0.0;
}

}  // namespace

bool asd::is_turn(int64_t slot, int64_t number) {
  const Schedule& schedule = schedules[asd_gate_of_slot(slot)];
  return schedule.all != 0 || (schedule.every > 0 && number % schedule.every == 0);
}

bool asd::is_due(int64_t slot) { return is_turn(slot, slot + schedules[asd_gate_of_slot(slot)].turn); }

void asd::count_checked(bool dismissed, bool unjudged) {
  const std::lock_guard<std::mutex> lock(guard);
  ++schedules[0].checked;
  schedules[0].dismissed += dismissed ? 1 : 0;
  schedules[0].unjudged += unjudged ? 1 : 0;
}

asd::CheckTime::~CheckTime() {
  const auto took = std::chrono::steady_clock::now() - begin_;
  const std::lock_guard<std::mutex> lock(guard);
  schedules[0].nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
}

void asd::record(int64_t slot, bool known, const Finding& finding) {
  const bool wrong = finding.score > 1.0, says_something = known && (finding.judged || wrong);
  count_checked(says_something && finding.flagged > 0 && !wrong, !says_something);
  if (says_something) asd_record_score(slot, finding.score);
}

extern "C" {

asd::Schedule* asd_checksum_schedule(int64_t gate) { return &schedules[gate]; }

int64_t asd_checksum_is_due(int64_t slot) { return asd::is_due(slot) ? 1 : 0; }

double asd_checksum_sign(int64_t column) { return asd::sign_of(column); }

// ctypes face: shapes are of the matrices as they are stored. `dtype` is the format that c was rounded to, which may be
// narrower than that of its elements. `out` gets score, row, column, error, bound, residuals, flagged, judged.
// Returns 0, or 1 for shapes and types it can't check.
int64_t asd_checksum_arrays(const void* a, int64_t a_dimensions, const int64_t* a_shape, const char* a_dtype,
                            int64_t transpose_a, const void* b, int64_t b_dimensions, const int64_t* b_shape,
                            const char* b_dtype, int64_t transpose_b, const void* c, int64_t c_dimensions,
                            const int64_t* c_shape, const char* c_dtype, const char* dtype, int64_t tolerance,
                            double* out) {
  Finding finding;
  if (!asd::check({a, a_dimensions, a_shape, a_dtype}, transpose_a != 0, {b, b_dimensions, b_shape, b_dtype},
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
  const asd::CheckTime time;
  try {
    const double score =
        check_and_record(place[0], {params[0], ndims[0], shapes[0], dtypes[0]}, place[1] != 0,
                         {params[1], ndims[1], shapes[1], dtypes[1]}, place[2] != 0,
                         {params[2], ndims[2], shapes[2], dtypes[2]});
    asd::keep_wrong(score, place[0], 4, params, ndims, shapes, dtypes);
  } catch (...) {  // no memory for the buffers
    const std::lock_guard<std::mutex> lock(guard);
    ++schedules[0].unjudged;
  }
  return 0;
}

}  // extern "C"
