// Runs of elements of the gradients that an optimizer is called with, kept at the gate for the host, which computes the
// update of these elements again.
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

extern "C" int64_t asd_widen(const void* data, int64_t n, const char* dtype, float* out);

namespace {

// As `RUN_DTYPE` of samples.py.
struct Run {
  int64_t gradient;  // which of the tensors at the gate
  int64_t offset;    // elements before it
  int64_t count;
};

struct Samples {
  std::vector<Run> runs;
  std::vector<double> values;
  int64_t taken = 0;  // updates; -1 where a run could not be read
};

std::map<int64_t, Samples> samples;  // by guard
std::mutex samples_guard;

bool widen(const void* data, const Run& run, const char* dtype, double* out) {
  if (std::strcmp(dtype, "float64") == 0) {
    std::memcpy(out, static_cast<const double*>(data) + run.offset, sizeof(double) * static_cast<size_t>(run.count));
    return true;
  }
  std::vector<float> wide(static_cast<size_t>(run.count));
  if (std::strcmp(dtype, "float32") == 0) {
    std::memcpy(wide.data(), static_cast<const float*>(data) + run.offset, sizeof(float) * wide.size());
  } else if (std::strcmp(dtype, "float16") == 0 || std::strcmp(dtype, "bfloat16") == 0) {
    asd_widen(static_cast<const uint16_t*>(data) + run.offset, run.count, dtype, wide.data());
  } else {
    return false;
  }
  for (size_t i = 0; i < wide.size(); ++i) out[i] = static_cast<double>(wide[i]);
  return true;
}

}  // namespace

extern "C" {

// What the gate of `guard` keeps of the gradients of the next update.
void asd_ask_for_samples(int64_t guard, const void* runs, int64_t n) {
  const std::lock_guard<std::mutex> lock(samples_guard);
  Samples& own = samples[guard];
  own.runs.assign(static_cast<const Run*>(runs), static_cast<const Run*>(runs) + n);
  int64_t total = 0;
  for (const Run& run : own.runs) total += run.count;
  own.values.assign(static_cast<size_t>(total), 0.0);
  own.taken = 0;
}

// At the gate: `n` tensors, the gradients first. PyNative asks twice for one update: with the same gradients.
void asd_take_samples(int64_t guard, int64_t n, void** tensors, const int* ndims, int64_t** shapes, const char** dtypes) {
  const std::lock_guard<std::mutex> lock(samples_guard);
  const auto at = samples.find(guard);
  if (at == samples.end() || at->second.taken < 0) return;
  Samples& own = at->second;
  std::vector<double> values(own.values.size());
  double* out = values.data();
  bool all_fit = true;
  for (const Run& run : own.runs) {
    int64_t elements = run.gradient < n ? 1 : 0;
    for (int i = 0; run.gradient < n && i < ndims[run.gradient]; ++i) elements *= shapes[run.gradient][i];
    const bool fits = run.offset + run.count <= elements;
    all_fit = all_fit && fits && widen(tensors[run.gradient], run, dtypes[run.gradient], out);
    out += run.count;
  }
  const bool again = own.taken > 0 && std::memcmp(values.data(), own.values.data(), sizeof(double) * values.size()) == 0;
  if (own.taken == 0) own.values = values;
  if (!again) ++own.taken;
  if (!all_fit) own.taken = -1;
}

// How many updates came since; `values` gets what was kept of the first.
int64_t asd_get_samples(int64_t guard, double* values) {
  const std::lock_guard<std::mutex> lock(samples_guard);
  const auto at = samples.find(guard);
  if (at == samples.end()) return 0;
  std::memcpy(values, at->second.values.data(), sizeof(double) * at->second.values.size());
  return at->second.taken;
}

void asd_drop_samples(int64_t guard) {
  const std::lock_guard<std::mutex> lock(samples_guard);
  samples.erase(guard);
}

}  // extern "C"
