// A bad device: stands between MindSpore and every kernel of its CPU back end, whoever calls it, in both modes.
//
// All kernels there share one virtual function, NativeCpuKernelMod::Launch with four arguments. A library that is loaded
// before MindSpore and has that symbol takes its place, calls the kernel, and changes the result where a fault is due.
// Calls are counted by name and size within a step, so that trainings with and without detection agree on which is which.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kernel/cpu/cpu_kernel.h"

using mindspore::kernel::KernelTensor;
using mindspore::kernel::NativeCpuKernelMod;
using Tensors = std::vector<KernelTensor *>;

extern "C" {
// The same fields stand in device.py.
struct Fault {
  char names[2048];  // of kernels, with a space before and after each
  int64_t first, last;  // steps in which it strikes
  int64_t bytes, call;  // of the one call that it strikes, or -1: which of those with that name and size in the step
  double chance;        // for each call
  uint64_t seed;
  int32_t extent, value, period, exponent;
  double place, bit;  // in [0, 1): where in the result, which bit
  uint32_t mask;      // of several neighbouring bits, from `bit` on
  float stuck;
};
struct Strike {
  int64_t step, bytes, call;
  uint64_t before;  // a hash of the result before it was changed
  int64_t changed;  // elements whose bits changed
  char name[64];
};
}

namespace {
enum Extent { kElement, kFour, kRow, kPeriodic, kQuarter, kRange };
enum Value { kZero, kFlip, kStuck, kInfinite, kNotANumber };

Fault fault{};
bool armed = false, listing = false;
int64_t step = 0, strikes = 0;
Strike first{};
std::map<std::pair<std::string, size_t>, int64_t> calls;
std::ostringstream listed;
std::string shown;
std::mutex lock;

uint64_t mixed(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t hash_of(const void *data, size_t size, uint64_t hash) {
  const auto *bytes = static_cast<const unsigned char *>(data);
  for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
  return mixed(hash);
}

// How many of its inputs an optimizer's kernel computes anew, in place; 0 for all other kernels.
size_t in_place(const std::string &name) {
  static const std::map<std::string, size_t> known = {{"Adam", 3},         {"AdamWeightDecay", 3}, {"ApplyMomentum", 2},
                                                      {"ApplyAdagrad", 2}, {"ApplyRMSProp", 3},    {"SGD", 1}};
  const auto found = known.find(name);
  return found == known.end() ? 0 : found->second;
}

bool is_float(const KernelTensor *tensor) {
  const auto type = tensor->dtype_id();
  return (type == mindspore::kNumberTypeFloat32 || type == mindspore::kNumberTypeFloat16) && tensor->device_ptr() != nullptr && tensor->size() >= 2;
}

size_t row_of(const KernelTensor *tensor, size_t count) {
  const auto &shape = tensor->GetShapeVector();
  const size_t row = shape.empty() || shape.back() <= 0 ? count : static_cast<size_t>(shape.back());
  return shape.size() < 2 ? 1 : std::min(row, count);
}

template <typename Bits>
int64_t corrupt(Bits *data, size_t count, size_t row, int mantissa, Bits stuck) {
  constexpr int width = sizeof(Bits) * 8;
  const Bits sign = Bits(Bits(1) << (width - 1)), exponents = Bits((sign - 1) & ~((Bits(1) << mantissa) - 1));
  const int low = static_cast<int>(fault.bit * width), bias = (1 << (width - 2 - mantissa)) - 1;
  const Bits flipped = Bits(Bits(fault.mask) << low) ? Bits(Bits(fault.mask) << low) : sign;
  const size_t at = std::min(count - 1, static_cast<size_t>(fault.place * count));
  const size_t period = std::max(1, fault.period), quarter = std::max<size_t>(1, count / 4);
  int64_t changed = 0;
  for (size_t i = 0; i < count; i++) {
    bool hit = false;
    switch (fault.extent) {
      case kElement: hit = i == at; break;
      case kFour: hit = i / 4 == at / 4; break;
      case kRow: hit = i / row == at / row; break;
      case kPeriodic: hit = i % row % period == at % row % period && i / row % period == at / row % period; break;
      case kQuarter: hit = i / quarter == at / quarter; break;
      case kRange: hit = int((data[i] & exponents) >> mantissa) - bias == fault.exponent; break;
    }
    if (!hit) continue;
    Bits is = data[i];
    switch (fault.value) {
      case kZero: is = 0; break;
      case kFlip: is = Bits(is ^ flipped); break;
      case kStuck: is = stuck; break;
      case kInfinite: is = exponents; break;
      case kNotANumber: is = Bits(exponents | (exponents >> 1)); break;
    }
    changed += is != data[i];
    data[i] = is;
  }
  return changed;
}

void strike(const std::string &name, KernelTensor *tensor, size_t bytes, int64_t call) {
  void *data = tensor->device_ptr();
  const size_t size = tensor->size();
  const uint64_t before = hash_of(data, size, size);
  int64_t changed = 0;
  if (tensor->dtype_id() == mindspore::kNumberTypeFloat32) {
    uint32_t stuck;
    std::memcpy(&stuck, &fault.stuck, sizeof(stuck));
    changed = corrupt(static_cast<uint32_t *>(data), size / 4, row_of(tensor, size / 4), 23, stuck);
  } else {
    const float16 half(fault.stuck);
    uint16_t stuck;
    std::memcpy(&stuck, &half, sizeof(stuck));
    changed = corrupt(static_cast<uint16_t *>(data), size / 2, row_of(tensor, size / 2), 10, stuck);
  }
  if (changed == 0) return;
  if (strikes++ == 0) {
    first = {step, static_cast<int64_t>(bytes), call, before, changed, {}};
    std::strncpy(first.name, name.c_str(), sizeof(first.name) - 1);
  }
}

void launched(const std::string &name, const Tensors &inputs, const Tensors &outputs) {
  const size_t own = in_place(name);
  const Tensors results(own ? inputs.begin() : outputs.begin(), own ? inputs.begin() + own : outputs.end());
  Tensors floats;
  std::copy_if(results.begin(), results.end(), std::back_inserter(floats), is_float);
  if (floats.empty()) return;
  const size_t bytes = floats[0]->size();
  const std::lock_guard<std::mutex> guard(lock);
  const int64_t call = calls[{name, bytes}]++;
  if (listing) listed << name << ' ' << bytes << ' ' << call << '\n';
  if (!armed || step < fault.first || step > fault.last) return;
  if (std::string(fault.names).find(' ' + name + ' ') == std::string::npos) return;
  const uint64_t drawn = mixed(hash_of(name.data(), name.size(), fault.seed ^ mixed(step * 1000003 + call)) ^ bytes);
  if (fault.bytes >= 0) {
    if (static_cast<int64_t>(bytes) != fault.bytes || call != fault.call) return;
  } else if (static_cast<double>(drawn >> 11) * 0x1p-53 >= fault.chance) {
    return;
  }
  strike(name, floats[fault.seed % floats.size()], bytes, call);
}
}  // namespace

extern "C" {
__attribute__((visibility("default"))) bool launch(NativeCpuKernelMod *kernel, const Tensors &inputs,
                                                   const Tensors &workspace, const Tensors &outputs, void *stream)
  __asm__("_ZN9mindspore6kernel18NativeCpuKernelMod6LaunchERKSt6vectorIPNS0_12KernelTensorESaIS4_EES8_S8_Pv");
bool launch(NativeCpuKernelMod *kernel, const Tensors &inputs, const Tensors &workspace, const Tensors &outputs, void *) {
  const bool fine = kernel->Launch(inputs, workspace, outputs);
  if (fine && (armed || listing)) launched(kernel->kernel_name(), inputs, outputs);
  return fine;
}

void device_break(const Fault *found) {
  const std::lock_guard<std::mutex> guard(lock);
  armed = found != nullptr;
  if (armed) fault = *found;
  strikes = 0;
  first = {};
}

void device_step(int64_t number, bool list) {
  const std::lock_guard<std::mutex> guard(lock);
  step = number;
  calls.clear();
  listing = list;
  if (list) listed.str("");
}

const char *device_calls() { return (shown = listed.str()).c_str(); }
int64_t device_strikes(Strike *one) { return *one = first, strikes; }
}
