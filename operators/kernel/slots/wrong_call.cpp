// The first call of an operator since the host last looked whose result was wrong: operands, result and settings, kept for
// the host, so that the operator can be computed again without the training.
#include "common/wrong_call.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "common/tensor.h"

extern "C" int64_t asd_capture_bytes();  // of kernel.cpp
extern "C" int64_t asd_calls_of_slot(int64_t slot);

namespace {

constexpr int kDimensions = 8;
constexpr int kTensors = 8;  // the backward pass of a norm has that many

struct Kept {
  int64_t dimensions;
  int64_t shape[kDimensions];
  int64_t bytes;
  char dtype[16];
  unsigned char* data;
};

// Keep in step with `WrongCallStruct` in library.py.
struct WrongCall {
  int64_t slot;   // -1: there is none
  int64_t call;   // which of the step it was, from 1
  int64_t count;  // of its tensors; 0 if they were too large to keep
  Kept tensors[kTensors];
};

WrongCall call = {-1, 0, 0, {}};
std::mutex guard;

int64_t width_of(const char* dtype) {
  for (const char* four : {"float32", "int32"}) {
    if (std::strcmp(dtype, four) == 0) return 4;
  }
  for (const char* eight : {"float64", "int64"}) {
    if (std::strcmp(dtype, eight) == 0) return 8;
  }
  return 2;
}

void release() {
  for (Kept& each : call.tensors) std::free(each.data);
  call = {-1, 0, 0, {}};
}

}  // namespace

void asd::keep_wrong(double score, int64_t slot, int count, void** params, const int* ndims, int64_t** shapes,
                     const char** dtypes) {
  const int64_t most = asd_capture_bytes();
  if (score <= 1.0 || most == 0 || count > kTensors) return;  // NaN is wrong
  const std::lock_guard<std::mutex> lock(guard);
  if (call.slot >= 0) return;
  call.slot = slot;
  call.call = asd_calls_of_slot(slot);
  int64_t needed = 0;
  for (int i = 0; i < count; ++i) needed += elements_of(ndims[i], shapes[i]) * width_of(dtypes[i]);
  if (needed > most) return;
  for (int i = 0; i < count; ++i) {
    Kept& kept = call.tensors[i];
    kept.bytes = elements_of(ndims[i], shapes[i]) * width_of(dtypes[i]);
    kept.data = ndims[i] > kDimensions ? nullptr : static_cast<unsigned char*>(std::malloc(static_cast<size_t>(kept.bytes) + 1));
    if (kept.data == nullptr) {  // evidence is no reason to end a training
      release();
      return;
    }
    std::memcpy(kept.data, params[i], static_cast<size_t>(kept.bytes));
    kept.dimensions = ndims[i];
    std::memcpy(kept.shape, shapes[i], sizeof(int64_t) * static_cast<size_t>(ndims[i]));
    std::strncpy(kept.dtype, dtypes[i], sizeof kept.dtype - 1);
    call.count = i + 1;
  }
}

extern "C" {

WrongCall* asd_wrong_call() { return &call; }
int64_t asd_wrong_call_size() { return sizeof(WrongCall); }

// Makes room for the next one.
void asd_release_wrong_call() {
  const std::lock_guard<std::mutex> lock(guard);
  release();
}

}  // extern "C"
