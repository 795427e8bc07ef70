// Hands tensors of a compiled graph to the host while it runs, and reads a tensor once for what a dump tells of it.
//
// Part of the same library as `kernel.cpp`, with the same plain C interface. Nothing of it is called unless a debugger
// put its taps into a network.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif

namespace {

using Deliver = void (*)(const int32_t* label, const void* data, int64_t dimensions, const int64_t* sizes,
                         const char* dtype);
std::atomic<Deliver> deliver{nullptr};

constexpr int64_t kBlock = 8192;  // elements: 128 float32 additions a lane before the sums go on in double

struct Moments {
  double largest;
  double smallest;
  double total;
  double squares;
};

// Few additions to a lane, and from there on in double: the sums are as accurate as those of NumPy in float32.
WIDEST void add_block(const float* x, int64_t n, Moments* m) {
  constexpr int kLanes = 64;
  float largest[kLanes], smallest[kLanes], total[kLanes] = {0.0f}, squares[kLanes] = {0.0f};
  for (int lane = 0; lane < kLanes; ++lane) {
    largest[lane] = -std::numeric_limits<float>::infinity();
    smallest[lane] = std::numeric_limits<float>::infinity();
  }
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float value = x[i + lane];
      largest[lane] = value > largest[lane] ? value : largest[lane];
      smallest[lane] = value < smallest[lane] ? value : smallest[lane];
      total[lane] += value;
      squares[lane] += value * value;
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    m->largest = std::max(m->largest, static_cast<double>(largest[lane]));
    m->smallest = std::min(m->smallest, static_cast<double>(smallest[lane]));
    m->total += static_cast<double>(total[lane]);
    m->squares += static_cast<double>(squares[lane]);
  }
  for (; i < n; ++i) {
    const double value = static_cast<double>(x[i]);
    m->largest = value > m->largest ? value : m->largest;
    m->smallest = value < m->smallest ? value : m->smallest;
    m->total += value;
    m->squares += value * value;
  }
}

}  // namespace

extern "C" {

// `callback` gets every tensor that a tap sees from now on, in the thread that computes; null for none.
void asd_deliver_to(Deliver callback) { deliver.store(callback); }

// ops.Custom "aot" face: inputs (any tensor, label int32[4]), output float32[1] that only serves as a dependency.
int asd_deliver(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 3) return 1;
  const Deliver callback = deliver.load();
  if (callback != nullptr) {
    callback(static_cast<const int32_t*>(params[1]), params[0], ndims[0], shapes[0], dtypes[0]);
  }
  *static_cast<float*>(params[2]) = 0.0f;
  return 0;
}

// Of n > 0 elements of float32: largest, smallest, sum, sum of squares. Returns 1 where they must be computed with more
// care: an element is inf or nan, or so large or small that its square has no place in a float32.
int64_t asd_moments(const float* data, int64_t n, double* out) {
  Moments m = {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), 0.0, 0.0};
  for (int64_t i = 0; i < n; i += kBlock) add_block(data + i, std::min(kBlock, n - i), &m);
  const double magnitude = std::max(std::fabs(m.largest), std::fabs(m.smallest));
  const bool safe = magnitude == 0.0 || (magnitude > 1e-15 && magnitude < 1e15);
  if (!std::isfinite(m.squares) || !std::isfinite(m.total) || !safe) return 1;
  out[0] = m.largest;
  out[1] = m.smallest;
  out[2] = m.total;
  out[3] = m.squares;
  return 0;
}

}  // extern "C"
