// The faces of the check of a norm, which is due when checksums of matrix products are; one that is not costs a call.
#include <cstdint>

#include "common/schedule.h"
#include "norm/norm.h"
#include "common/tensor.h"
#include "common/wrong_call.h"

extern "C" int64_t asd_record_score(int64_t slot, double score);

namespace {

using asd::Array;
using asd::NormKind;
using asd::NormScore;

// What an operator is given of a norm behind its slots: groups, 1 if centred, 1 if there is a beta.
NormKind kind_of(int dimensions, const int64_t* shape, const int32_t* place, const void* epsilon) {
  return {dimensions > 0 ? shape[0] : 1, place[0], place[1] != 0, *static_cast<const float*>(epsilon)};
}

// The score, or 0 where nothing can be said.
double record(int64_t slot, bool known, const NormScore& score) {
  const bool judged = known && score.says_something();
  asd::count_checked(false, !judged);
  if (judged) asd_record_score(slot, score.worst);
  return judged ? score.worst : 0.0;
}

}  // namespace

extern "C" {

// ctypes face. `data` are x, gamma, beta, y, dy, dx, dgamma and dbeta with their numbers of elements and types, null for what
// there is none of: what is not there is not checked. `out` gets the scores of y, of dx and of the weights' gradients, below
// 0 where nothing can be said. Returns 0, or 1 for shapes and types it can't check.
int64_t asd_norm_arrays(const void* const* data, const int64_t* elements, const char* const* dtypes, int64_t batches,
                        int64_t groups, int64_t centred, double epsilon, double* out) {
  Array a[8];
  for (int i = 0; i < 8; ++i) a[i] = {data[i], elements[i], dtypes[i]};
  const NormKind kind = {batches, groups, centred != 0, epsilon};
  NormScore scores[3];
  if (a[3].data != nullptr && !asd::check_norm(kind, a[0], a[1], a[2], a[3], &scores[0])) return 1;
  if (a[4].data != nullptr &&
      !asd::check_norm_gradients(kind, a[0], a[1], a[4], a[5], a[6], a[7], &scores[1], &scores[2])) {
    return 1;
  }
  for (int i = 0; i < 3; ++i) out[i] = scores[i].says_something() ? scores[i].worst : -1.0;
  return 0;
}

// ops.Custom "aot" face: inputs x, gamma, beta, y, int32[4] (slot, and what `kind_of` says) and float32[1], epsilon; output
// float32[1] that only serves as a dependency. Neither this nor the next one ever fails: a check must not end a training.
int asd_norm_forward(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 7) return 0;
  *static_cast<float*>(params[6]) = 0.0f;
  const int32_t* place = static_cast<const int32_t*>(params[4]);
  if (!asd::is_due(place[0])) return 0;
  const asd::CheckTime time;
  Array a[4];
  for (int i = 0; i < 4; ++i) a[i] = {params[i], asd::elements_of(ndims[i], shapes[i]), dtypes[i]};
  if (place[3] == 0) a[2].data = nullptr;
  try {
    NormScore y;
    const bool known = asd::check_norm(kind_of(ndims[0], shapes[0], place + 1, params[5]), a[0], a[1], a[2], a[3], &y);
    asd::keep_wrong(record(place[0], known, y), place[0], 6, params, ndims, shapes, dtypes);
  } catch (...) {  // no memory for the buffers
    asd::count_checked(false, true);
  }
  return 0;
}

// ops.Custom "aot" face: inputs x, gamma, dy, dx, dgamma, dbeta, int32[5] (slots of dx and of the weights' gradients, and
// what `kind_of` says) and epsilon.
int asd_norm_backward(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 9) return 0;
  *static_cast<float*>(params[8]) = 0.0f;
  const int32_t* place = static_cast<const int32_t*>(params[6]);
  const bool dx_due = asd::is_due(place[0]), dw_due = asd::is_due(place[1]);
  if (!dx_due && !dw_due) return 0;
  const asd::CheckTime time;
  Array a[6];
  for (int i = 0; i < 6; ++i) a[i] = {params[i], asd::elements_of(ndims[i], shapes[i]), dtypes[i]};
  if (!dx_due) a[3].data = nullptr;
  if (!dw_due) a[4].data = nullptr;
  if (!dw_due || place[4] == 0) a[5].data = nullptr;
  try {
    NormScore dx, dw;
    const NormKind kind = kind_of(ndims[0], shapes[0], place + 2, params[7]);
    const bool known = asd::check_norm_gradients(kind, a[0], a[1], a[2], a[3], a[4], a[5], &dx, &dw);
    if (dx_due) asd::keep_wrong(record(place[0], known, dx), place[0], 8, params, ndims, shapes, dtypes);
    if (dw_due) asd::keep_wrong(record(place[1], known, dw), place[1], 8, params, ndims, shapes, dtypes);
  } catch (...) {  // no memory for the buffers
    asd::count_checked(false, true);
  }
  return 0;
}

}  // extern "C"
