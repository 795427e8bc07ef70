// A bad device: stands between MindSpore and every kernel of its CPU back end, whoever calls it, in both modes.
//
// All kernels there share one virtual function, NativeCpuKernelMod::Launch with four arguments. A library that is loaded
// before MindSpore and has that symbol takes its place, calls the kernel, and changes the result where a fault is due.
// Calls are counted by name and size within a step, so that trainings with and without detection agree on which is which.
// It plays a chip: a result is made in tiles by several cores, and last bits of sums can be drawn anew in each call.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <type_traits>
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
  int64_t cycle;  // calls with that name and size in a healthy step: a step that is made again is struck too; or 0
  uint64_t before;  // of the one call, a hash of its right result, or 0: a detector's own calls may come before it
  int64_t most;  // bytes of the results that it strikes, or 0: any
  double chance;        // for each call
  uint64_t seed;
  int32_t extent, value, period, exponent;
  int32_t core, cores;  // strikes what that one of so many cores makes; 0 cores: whatever any of them makes
  int32_t rows, columns;  // of a tile; 0 rows: results are cut into runs, as vector cores do
  int32_t types;  // 0: floats; 1: and truth values; 2: and integers
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
enum Extent { kElement, kFour, kRow, kPeriodic, kQuarter, kRange, kAll, kTileRow, kTileColumn, kRare };
enum Value { kZero, kFlip, kStuck, kInfinite, kNotANumber, kOne, kStale, kShifted, kLost };

// How a type keeps its numbers; the mantissa of an integer has no bits, that of a truth value -1.
struct Format {
  size_t width;  // in bytes; 0: not changed
  int mantissa;
};

std::vector<Fault> faults;
bool listing = false;
int64_t step = 0, strikes = 0;
Strike first{};
std::map<std::pair<std::string, size_t>, int64_t> calls;
std::map<std::string, std::vector<char>> kept;  // right results of the step before, for faults that are stale
std::ostringstream listed;
std::string shown, shaken;  // kernels whose last bits are drawn
double share = 0;           // of the numbers, whose last bit is another
uint64_t drawing = 0;
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

// How many of its inputs a kernel computes anew, in place; 0 for all others.
size_t in_place(const std::string &name) {
  static const std::map<std::string, size_t> known = {
      {"Adam", 3},   {"AdamWeightDecay", 3}, {"ApplyMomentum", 2}, {"ApplyAdagrad", 2}, {"ApplyRMSProp", 3}, {"SGD", 1},
      {"Assign", 1}, {"AssignAdd", 1},       {"AssignSub", 1},     {"ScatterMax", 1},   {"InplaceCopy", 1}};
  const auto found = known.find(name);
  return found == known.end() ? 0 : found->second;
}

Format format_of(const KernelTensor *tensor) {
  if (tensor->device_ptr() == nullptr) return {0, 0};
  switch (tensor->dtype_id()) {
    case mindspore::kNumberTypeFloat32: return {4, 23};
    case mindspore::kNumberTypeFloat16: return {2, 10};
    case mindspore::kNumberTypeBFloat16: return {2, 7};
    case mindspore::kNumberTypeInt32: return {4, 0};
    case mindspore::kNumberTypeInt64: return {8, 0};
    case mindspore::kNumberTypeBool: return {1, -1};
    default: return {0, 0};
  }
}

bool is_float(const KernelTensor *tensor) { return format_of(tensor).mantissa > 0 && tensor->size() >= 2; }

size_t columns_of(const KernelTensor *tensor, size_t count) {
  const auto &shape = tensor->GetShapeVector();
  return shape.empty() || shape.back() <= 0 ? count : std::min<size_t>(shape.back(), count);
}

bool named(const std::string &names, const std::string &name) { return names.find(' ' + name + ' ') != std::string::npos; }

// The bits of a number, in the format that has so many for its mantissa.
template <typename Bits>
Bits bits_of(float number, int mantissa) {
  if (mantissa <= 0) return Bits(number != 0);
  if (mantissa == 10) {
    const float16 half(number);
    uint16_t bits;
    std::memcpy(&bits, &half, sizeof(bits));
    return Bits(bits);
  }
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return Bits(mantissa == 7 ? bits >> 16 : bits);
}

float shifted(const float *data, size_t count, size_t i, float by) {  // by so many root mean squares of all
  double sum = 0;
  for (size_t k = 0; k < count; k++) sum += static_cast<double>(data[k]) * data[k];
  return static_cast<float>(data[i] + by * std::sqrt(sum / count));
}

template <typename Bits>
int64_t corrupt(const Fault &fault, Bits *data, const Bits *stale, size_t count, size_t columns, size_t row, int mantissa) {
  constexpr int width = sizeof(Bits) * 8;
  const bool is_number = mantissa > 0;
  const Bits sign = Bits(Bits(1) << (width - 1));
  const Bits exponents = is_number ? Bits((sign - 1) & ~((Bits(1) << mantissa) - 1)) : Bits(0);
  const Bits greatest = mantissa < 0 ? Bits(1) : Bits(sign - 1);  // of integers and truth values, in place of infinity
  const int low = static_cast<int>(fault.bit * width), bias = is_number ? (1 << (width - 2 - mantissa)) - 1 : 0;
  Bits flipped = Bits(Bits(fault.mask) << low) ? Bits(Bits(fault.mask) << low) : sign;
  if (mantissa < 0) flipped = 1;
  const Bits stuck = bits_of<Bits>(fault.stuck, mantissa), one = bits_of<Bits>(1, mantissa);
  const size_t at = std::min(count - 1, static_cast<size_t>(fault.place * count));
  const size_t period = std::max(1, fault.period), quarter = std::max<size_t>(1, count / 4);
  const size_t cores = std::max(1, fault.cores), across = std::max(1, fault.columns), down = fault.rows;
  const size_t run = std::max<size_t>(64, (count + cores - 1) / cores), lanes = down ? down : run / across;
  int64_t changed = 0;
  for (size_t i = 0; i < count; i++) {
    const size_t y = down ? i / columns : i % run / across, x = down ? i % columns : i;
    if (fault.cores) {
      const size_t tile = down ? y / down * ((columns + across - 1) / across) + x / across : i / run;
      if (tile % cores != static_cast<size_t>(fault.core)) continue;
    }
    bool hit = false;
    switch (fault.extent) {
      case kElement: hit = i == at; break;
      case kFour: hit = i / 4 == at / 4; break;
      case kRow: hit = i / row == at / row; break;
      case kPeriodic: hit = i % row % period == at % row % period && i / row % period == at / row % period; break;
      case kQuarter: hit = i / quarter == at / quarter; break;
      case kRange: hit = is_number && int((data[i] & exponents) >> mantissa) - bias == fault.exponent; break;
      case kAll: hit = true; break;
      case kTileRow: hit = y % lanes == static_cast<size_t>(fault.place * lanes); break;
      case kTileColumn: hit = x % across == static_cast<size_t>(fault.place * across); break;
      case kRare: hit = mixed(data[i] ^ fault.seed) % period == 0; break;
    }
    if (!hit) continue;
    Bits is = data[i];
    switch (fault.value) {
      case kZero: is = 0; break;
      case kFlip: is = Bits(is ^ flipped); break;
      case kStuck: is = stuck; break;
      case kInfinite: is = is_number ? exponents : greatest; break;
      case kNotANumber: is = is_number ? Bits(exponents | (exponents >> 1)) : greatest; break;
      case kOne: is = one; break;
      case kStale:
      case kLost:
        is = stale ? stale[i] : is;
        if (mantissa < 0) is &= 1;  // at any other truth value MindSpore ends the training by itself
        break;
      case kShifted:
        if (mantissa == 23) is = bits_of<Bits>(shifted(reinterpret_cast<float *>(data), count, i, fault.stuck), mantissa);
        break;
    }
    changed += is != data[i];
    data[i] = is;
  }
  return changed;
}

void strike(const Fault &fault, const std::string &name, KernelTensor *tensor, size_t bytes, int64_t call, const char *old) {
  void *data = tensor->device_ptr();
  const size_t size = tensor->size();
  const auto [width, mantissa] = format_of(tensor);
  const uint64_t before = first.changed ? 0 : hash_of(data, size, size);
  const size_t count = size / width, columns = columns_of(tensor, count);
  const size_t row = tensor->GetShapeVector().size() < 2 ? 1 : columns;
  const auto apply = [&](auto *typed) {
    using Bits = std::remove_pointer_t<decltype(typed)>;
    return corrupt<Bits>(fault, typed, reinterpret_cast<const Bits *>(old), count, columns, row, mantissa);
  };
  const int64_t changed = width == 4   ? apply(static_cast<uint32_t *>(data))
                          : width == 2 ? apply(static_cast<uint16_t *>(data))
                          : width == 8 ? apply(static_cast<uint64_t *>(data))
                                       : apply(static_cast<uint8_t *>(data));
  if (changed == 0) return;
  strikes++;
  if (&fault == &faults[0] && first.changed == 0) {
    first = {step, static_cast<int64_t>(bytes), call, before, changed, {}};
    std::strncpy(first.name, name.c_str(), sizeof(first.name) - 1);
  }
}

// How many binary places the numbers of a line have from the first of the greatest to the last that is set of any: the
// larger one of all rows or of all columns, whichever lines have fewer.
template <typename Bits>
int places(const Bits *data, size_t count, size_t columns, int mantissa) {
  constexpr int far = 1 << 20;
  std::vector<std::pair<int, int>> rows(count / columns + 1, {far, -far}), across(columns, {far, -far});
  int whole_rows = 0, whole_columns = 0;
  for (size_t i = 0; i < count; i++) {
    const uint64_t significand = data[i] & ((uint64_t(1) << mantissa) - 1);
    const int exponent = (data[i] >> mantissa) & ((1 << (sizeof(Bits) * 8 - 1 - mantissa)) - 1);
    if (exponent == 0) continue;
    const int last = significand ? exponent - mantissa + __builtin_ctzll(significand) : exponent;
    for (auto *line : {&rows[i / columns], &across[i % columns]})
      *line = {std::min(line->first, last), std::max(line->second, exponent)};
    whole_rows = std::max(whole_rows, rows[i / columns].second - rows[i / columns].first + 1);
    whole_columns = std::max(whole_columns, across[i % columns].second - across[i % columns].first + 1);
    if (std::min(whole_rows, whole_columns) >= 24) break;
  }
  return std::min(whole_rows, whole_columns);
}

// Sums of integers are exact in every order as long as 24 places hold them, also where rows and columns are scaled by
// powers of two: no device makes another number of them.
bool is_exact(const Tensors &inputs) {
  int needed = 0;
  const auto found = std::find_if(inputs.begin(), inputs.end(), is_float);
  if (std::count_if(inputs.begin(), inputs.end(), is_float) == 1 && format_of(*found).width == 4) {
    const auto *each = *found;  // a sum is exact where the sum of all sizes is
    const auto *bits = static_cast<const uint32_t *>(each->device_ptr());
    double total = 0;
    int last = 1 << 20;
    for (size_t i = 0; i < each->size() / 4; i++) {
      const uint32_t significand = bits[i] & 0x7fffff;
      const int exponent = (bits[i] >> 23) & 0xff;
      if (exponent == 0) continue;
      last = std::min(last, significand ? exponent - 23 + __builtin_ctz(significand) : exponent);
      total += std::ldexp(1.0 + significand * 0x1p-23, exponent - 127);
    }
    if (total <= std::ldexp(1.0, 24 + last - 127)) return true;
  }
  for (const auto *each : inputs) {
    if (!is_float(each)) continue;
    const auto [width, mantissa] = format_of(each);
    const size_t count = each->size() / width, columns = columns_of(each, count);
    const void *data = each->device_ptr();
    needed += width == 4 ? places(static_cast<const uint32_t *>(data), count, columns, mantissa)
                         : places(static_cast<const uint16_t *>(data), count, columns, mantissa);
    for (size_t most = needed ? std::max(columns, count / columns) : 1, n = 1; n < most && each == inputs[0]; n *= 2) needed++;
    if (needed > 24) return false;
  }
  return true;
}

template <typename Bits>
void shake(Bits *data, size_t count, int mantissa) {
  const Bits magnitude = Bits(~(Bits(1) << (sizeof(Bits) * 8 - 1)));
  const Bits infinite = Bits(magnitude & ~((Bits(1) << mantissa) - 1));
  for (size_t i = 0; i < count; i++) {
    const uint64_t drawn = mixed(drawing++);
    const Bits is = data[i] & magnitude;
    if (static_cast<double>(drawn >> 11) * 0x1p-53 < share && is > 1 && is < infinite - 1) data[i] += drawn & 1 ? 1 : -1;
  }
}

void draw_last_bits(const Tensors &inputs, const Tensors &outputs) {
  if (is_exact(inputs)) return;
  for (const auto *each : outputs) {
    if (!is_float(each)) continue;
    const auto [width, mantissa] = format_of(each);
    if (width == 4) shake(static_cast<uint32_t *>(each->device_ptr()), each->size() / 4, mantissa);
    else shake(static_cast<uint16_t *>(each->device_ptr()), each->size() / 2, mantissa);
  }
}

Tensors results_of(const std::string &name, const Tensors &inputs, const Tensors &outputs) {
  const size_t own = in_place(name);
  return Tensors(own ? inputs.begin() : outputs.begin(), own ? inputs.begin() + own : outputs.end());
}

// What is in memory before a kernel whose writes are lost.
using Memory = std::map<const KernelTensor *, std::vector<char>>;
Memory untouched(const std::string &name, const Tensors &results) {
  const std::lock_guard<std::mutex> guard(lock);
  Memory found;
  if (std::any_of(faults.begin(), faults.end(), [&](auto &fault) { return fault.value == kLost && named(fault.names, name); }))
    for (const auto *each : results) {
      const auto *data = static_cast<const char *>(each->device_ptr());
      if (data != nullptr) found[each].assign(data, data + each->size());
    }
  return found;
}

void launched(const std::string &name, const Tensors &inputs, const Tensors &results, const Memory &memory) {
  Tensors floats, all;
  std::copy_if(results.begin(), results.end(), std::back_inserter(floats), is_float);
  std::copy_if(results.begin(), results.end(), std::back_inserter(all), [](auto *each) { return format_of(each).width && each->size(); });
  if (all.empty()) return;
  const size_t bytes = (floats.empty() ? all : floats)[0]->size();
  const std::lock_guard<std::mutex> guard(lock);
  if (share > 0 && named(shaken, name)) draw_last_bits(inputs, results);
  const int64_t call = calls[{floats.empty() ? name + ' ' : name, bytes}]++;
  if (listing && !floats.empty()) listed << name << ' ' << bytes << ' ' << call << '\n';
  for (Fault &fault : faults) {
    if (!named(fault.names, name)) continue;
    const bool stale = fault.value == kStale;
    if (!stale && (step < fault.first || step > fault.last)) continue;
    const uint64_t drawn = mixed(hash_of(name.data(), name.size(), fault.seed ^ mixed(step * 1000003 + call)) ^ bytes);
    if (fault.bytes >= 0) {
      const int64_t which = fault.cycle ? call % fault.cycle : call;
      if (static_cast<int64_t>(bytes) != fault.bytes || floats.empty()) continue;
      if (fault.before) {
        const auto *one = floats[fault.seed % floats.size()];
        if (hash_of(one->device_ptr(), one->size(), one->size()) != fault.before) continue;
        if (faults.size() == 1) fault.before = 0;  // beside another fault each such call is struck: also an audit's
        fault.call = which;
      }
      if (which != fault.call) continue;
    } else if (static_cast<double>(drawn >> 11) * 0x1p-53 >= fault.chance) {
      continue;
    }
    Tensors struck = fault.types == 2 ? all : floats;
    if (fault.types == 0 && !fault.cores && !floats.empty()) struck = {floats[fault.seed % floats.size()]};
    if (fault.types == 1)
      std::copy_if(all.begin(), all.end(), std::back_inserter(struck), [](auto *each) { return format_of(each).mantissa < 0; });
    for (size_t i = 0; i < struck.size(); i++) {
      if (fault.most && static_cast<int64_t>(struck[i]->size()) > fault.most) continue;
      std::vector<char> right;
      const std::string key = stale ? name + ' ' + std::to_string(bytes) + ' ' + std::to_string(call) + ' ' + std::to_string(i) : "";
      const auto *data = static_cast<const char *>(struck[i]->device_ptr());
      if (stale) right.assign(data, data + struck[i]->size());
      const auto old = kept.find(key);
      const auto lost = memory.find(struck[i]);
      const char *before = fault.value == kLost && lost != memory.end() ? lost->second.data() : stale && old != kept.end() && old->second.size() == right.size() ? old->second.data() : nullptr;
      if (step >= fault.first && step <= fault.last) strike(fault, name, struck[i], bytes, call, before);
      if (stale) kept[key] = right;
    }
  }
}
}  // namespace

extern "C" {
__attribute__((visibility("default"))) bool launch(NativeCpuKernelMod *kernel, const Tensors &inputs,
                                                   const Tensors &workspace, const Tensors &outputs, void *stream)
  __asm__("_ZN9mindspore6kernel18NativeCpuKernelMod6LaunchERKSt6vectorIPNS0_12KernelTensorESaIS4_EES8_S8_Pv");
bool launch(NativeCpuKernelMod *kernel, const Tensors &inputs, const Tensors &workspace, const Tensors &outputs, void *) {
  const bool watched = listing || share > 0 || !faults.empty();
  if (!watched) return kernel->Launch(inputs, workspace, outputs);
  const std::string name = kernel->kernel_name();
  const Tensors results = results_of(name, inputs, outputs);
  const Memory memory = untouched(name, results);
  const bool fine = kernel->Launch(inputs, workspace, outputs);
  if (fine) launched(name, inputs, results, memory);
  return fine;
}

void device_break(const Fault *found, int64_t count) {
  const std::lock_guard<std::mutex> guard(lock);
  faults.assign(found, found + count);
  strikes = 0;
  first = {};
  kept.clear();
}

void device_noise(const char *names, double of, uint64_t seed) {
  const std::lock_guard<std::mutex> guard(lock);
  shaken = names;
  share = of;
  drawing = mixed(seed);
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
