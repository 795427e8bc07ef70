// The faces of the check of a convolution, which is due when checksums of matrix products are; one that is not costs a call.
#include "convolution/convolution.h"

#include <cstdint>

#include "common/schedule.h"
#include "common/wrong_call.h"

namespace {

using asd::ConvolutionKind;
using asd::Finding;
using asd::Operand;

// What an operator is given of a convolution behind its slots: strides, dilations, zeros before, 1 if they follow from the
// shapes, groups.
template <typename Number>
ConvolutionKind kind_of(const Number* place) {
  return {{place[0], place[1]}, {place[2], place[3]}, {place[4], place[5]}, place[6] != 0, place[7], nullptr};
}

}  // namespace

extern "C" {

// ctypes face. `data` are x, w, y, dy, dx and dw with shapes of four numbers and types, null for what there is none of.
// `kind` is what `kind_of` reads. `out` gets the scores of y, dx and dw, below 0 where nothing can be said, and thrice
// how many sums were compared. Returns 0, or 1 for shapes and types it can't check.
int64_t asd_convolution_arrays(const void* const* data, const int64_t* shapes, const char* const* dtypes,
                               const int64_t* kind, const char* rounded_to, double* out) {
  ConvolutionKind conv = kind_of(kind);
  if (*rounded_to != '\0') conv.rounded_to = rounded_to;
  Operand a[6];
  for (int i = 0; i < 6; ++i) a[i] = {data[i], 4, shapes + 4 * i, dtypes[i]};
  Finding found[3];
  if (a[2].data != nullptr && !asd::check_convolution(conv, a[0], a[1], a[2], &found[0])) return 1;
  if (a[3].data != nullptr &&
      !asd::check_convolution_gradients(conv, a[0], a[1], a[3], a[4], a[5], &found[1], &found[2])) {
    return 1;
  }
  for (int i = 0; i < 3; ++i) {
    out[i] = found[i].judged || found[i].score > 1.0 ? found[i].score : -1.0;
    out[3 + i] = static_cast<double>(found[i].residuals);
  }
  return 0;
}

// ops.Custom "aot" face: two operands, a result, and int32[10]: a slot, the part of the convolution that it is for, and what
// `kind_of` says. The parts are 0 for y from x and w, 1 for dx from w and dy, 2 for dw from x and dy. The output is float32[1]
// that only serves as a dependency. It never fails: a check must not end a training.
int asd_convolution(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 5) return 0;
  *static_cast<float*>(params[4]) = 0.0f;
  const int32_t* place = static_cast<const int32_t*>(params[3]);
  if (!asd::is_due(place[0])) return 0;
  const asd::CheckTime time;
  Operand a[3];
  for (int i = 0; i < 3; ++i) a[i] = {params[i], ndims[i], shapes[i], dtypes[i]};
  const ConvolutionKind kind = kind_of(place + 2);
  const Operand none = {nullptr, 0, nullptr, ""};
  try {
    Finding finding;
    bool known;
    if (place[1] == 0) {
      known = asd::check_convolution(kind, a[0], a[1], a[2], &finding);
    } else if (place[1] == 1) {  // of x the shape alone is needed, which is that of dx
      known = asd::check_convolution_gradients(kind, a[2], a[0], a[1], a[2], none, &finding, nullptr);
    } else {
      known = asd::check_convolution_gradients(kind, a[0], a[2], a[1], none, a[2], nullptr, &finding);
    }
    asd::record(place[0], known, finding);
    if (known) asd::keep_wrong(finding.score, place[0], 4, params, ndims, shapes, dtypes);
  } catch (...) {  // no memory for the buffers
    asd::count_checked(false, true);
  }
  return 0;
}

}  // extern "C"
