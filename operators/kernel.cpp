// One pass over a tensor: largest magnitude, sum of squares and of magnitudes, count of non-finite elements; and the gate.
// The first gradient of a step that breaks its limit is kept for the host, as evidence. While a step is replayed every
// update is refused and the bits of every gradient are hashed. Dropout draws its masks here, so that a replay can draw
// them again.
//
// Plain C ABI, used in two ways by the same process: as `ops.Custom(..., func_type="aot")` inside a compiled graph, and
// through ctypes from PyNative hooks. The results live in a table of slots in this library, one slot a checkpoint, so no
// Parameter is needed and nothing of it can reach a checkpoint file.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>

#include "portable.h"

namespace {

constexpr int kSlots = 16384;
constexpr int64_t kBlock = 2048;  // elements: 128 float32 additions a lane before the sum goes on in double
constexpr int kDimensions = 8;    // of a tensor whose shape is kept
constexpr int kStreams = 4096;

// What the gate does; keep in step with `GATE` in site.py.
enum Gate : int64_t { kOff = 0, kJudge = 1, kReplay = 2 };

// A rank that announces adds this to what is summed over the ranks: too little, even from 32767 ranks, to refuse.
constexpr float kAnnouncement = 1.0f / 65536;

struct Slot {
  double max_abs;      // largest |g| among the finite elements, worst call of the step
  double l2;           // L2 norm of the worst call of the step; inf or nan when an element is
  int64_t non_finite;  // elements that are inf or nan, all calls of the step
  int64_t calls;       // checks made in this step
  int64_t order;       // position of the first of them among all checks since the library was loaded
  int64_t worst_call;  // which of them, from 1, had the largest L2 norm; the first that is not finite, if one is
  double mean_abs;     // mean |g| of the worst call of the step; inf or nan when an element is
  int64_t elements;    // of the last call
  double limit_max;    // written by the host: the largest values the gate lets pass, loss scale included
  double limit_l2;
  double limit_mean;
  int64_t judged;      // written by the host: 0 when nobody judges the slot, so that the gate leaves it out
};

struct Header {
  int64_t used;     // slots in use
  int64_t armed;    // one of `Gate`; in a replay it refuses every update, and none of them is counted
  int64_t refused;  // updates refused since the library was loaded, by this rank's verdict or by another's
  int64_t checks;   // checks made since the library was loaded
  int64_t unsupported;  // calls with a type or a slot number that could not be checked
  int64_t announcing;   // written by the host: 1 to tell all ranks something with the next update; 0 once they know
  int64_t announced;    // updates with which any rank announced something, since the library was loaded
  int64_t capture_bytes;  // written by the host: the most that is kept of a gradient that breaks its limit; 0: nothing
  int64_t nanoseconds;    // spent in checks since the library was loaded
};

// The first gradient that broke its limit since the host emptied this: as it was, or a window around its worst element.
struct Capture {
  int64_t slot;
  int64_t call;        // which call of the step it was, from 1
  int64_t elements;    // of the whole gradient
  int64_t offset;      // elements before the first kept one
  int64_t kept;        // elements in `data`; 0: nothing is kept
  int64_t bytes;       // the same in bytes
  int64_t dimensions;  // of the whole gradient; with more than kDimensions it counts as flat
  int64_t shape[kDimensions];
  char dtype[16];
  unsigned char* data;
};

struct Shape {
  int64_t dimensions;
  const int64_t* sizes;
};

// The random stream of one place where a dropout is called. Each node of a compiled graph has a stream of its own, as
// MindSpore's kernels have; all calls from PyNative share one.
struct Stream {
  int64_t dropout;   // its number
  const void* node;  // tells the nodes of compiled graphs apart; null in PyNative
  uint64_t state;    // of the generator, from 1 on
};

Header header = {};
alignas(64) Slot slots[kSlots];
Capture capture = {};
uint64_t hashes[kSlots];   // of the bits of all gradients a slot saw in a replay; the sum over its calls
Stream streams[kStreams];
int64_t used_streams = 0;
uint64_t first_states[kStreams];  // written by the host: the state that each dropout begins with
std::mutex guard;

struct Statistics {
  double max_abs = 0.0;
  double sum_squares = 0.0;
  double sum_abs = 0.0;
  int64_t non_finite = 0;
};

// Four places of a tensor are read side by side: more of its memory is on the way at a time than one place gives.
constexpr int kPlaces = 4;
constexpr int kLanes = 16;
using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));
using Places = const float* [kPlaces];

// The bits of a non-negative float order like an integer, and everything from 0x7f800000 on is inf or nan. So one integer
// maximum finds both the largest magnitude and whether anything in the block is not finite. Squares and magnitudes are
// summed in float32 on the way, few to a lane; `add_block` decides whether that was accurate.
struct Block {
  int32_t max_bits;
  double sum_squares;
  double sum_abs;
};

// `n` elements from each place, a multiple of kLanes.
WIDEST Block read_block(const Places& x, int64_t n) {
  Ints largest[kPlaces] = {};
  Floats squares[kPlaces] = {}, sums[kPlaces] = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    for (int place = 0; place < kPlaces; ++place) {
      FETCH(reinterpret_cast<uintptr_t>(x[place] + i) + kAhead / kPlaces);  // behind the end too: it is a hint only
      Ints bits;
      std::memcpy(&bits, x[place] + i, sizeof bits);
      bits &= 0x7fffffff;
      largest[place] = bits > largest[place] ? bits : largest[place];
      Floats magnitudes;
      std::memcpy(&magnitudes, &bits, sizeof magnitudes);
      squares[place] += magnitudes * magnitudes;
      sums[place] += magnitudes;
    }
  }
  Block block = {0, 0.0, 0.0};
  for (int place = 0; place < kPlaces; ++place) {
    for (int lane = 0; lane < kLanes; ++lane) {
      block.max_bits = std::max(block.max_bits, static_cast<int32_t>(largest[place][lane]));
      block.sum_squares += static_cast<double>(squares[place][lane]);
      block.sum_abs += static_cast<double>(sums[place][lane]);
    }
  }
  return block;
}

void add_in_double(const float* x, int64_t n, Statistics* s) {
  for (int64_t i = 0; i < n; ++i) {
    const double magnitude = std::fabs(static_cast<double>(x[i]));
    s->sum_squares += magnitude * magnitude;
    s->sum_abs += magnitude;
    if (std::isfinite(x[i])) {
      s->max_abs = std::max(s->max_abs, magnitude);
    } else {
      ++s->non_finite;
    }
  }
}

void add_block(const Places& x, int64_t n, Statistics* s) {
  const Block block = read_block(x, n);
  if (block.max_bits == 0) return;
  float largest;
  std::memcpy(&largest, &block.max_bits, sizeof largest);
  // A float32 square overflows from 1.9e19 on and loses digits below 1e-19: outside a safe range once more, in double.
  if (largest > 1e-15f && largest < 1e15f) {
    s->max_abs = std::max(s->max_abs, static_cast<double>(largest));
    s->sum_squares += block.sum_squares;
    s->sum_abs += block.sum_abs;
  } else {
    for (const float* place : x) add_in_double(place, n, s);
  }
}

void add_floats(const float* x, int64_t n, Statistics* s) {
  const int64_t part = n / kPlaces / kLanes * kLanes;
  for (int64_t i = 0; i < part; i += kBlock) {
    add_block({x + i, x + part + i, x + 2 * part + i, x + 3 * part + i}, std::min(kBlock, part - i), s);
  }
  add_in_double(x + kPlaces * part, n - kPlaces * part, s);
}

float widen_half(uint16_t half) {
  // Exponent and mantissa moved to their place, then the bias mended by an exact multiplication (denormals included).
  uint32_t bits = static_cast<uint32_t>(half & 0x7fff) << 13;
  const bool special = bits >= 0x0f800000u;  // inf or nan
  float value;
  std::memcpy(&value, &bits, sizeof value);
  value *= 0x1p112f;
  if (special) {
    bits |= 0x7f800000u;
    std::memcpy(&value, &bits, sizeof value);
  }
  return (half & 0x8000) ? -value : value;
}

WIDEST void widen_halves(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = widen_half(x[i]);
}

WIDEST void widen_bfloats(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(x[i]) << 16;
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

Statistics statistics_of_double(const double* x, int64_t n) {
  Statistics s;
  for (int64_t i = 0; i < n; ++i) {
    s.sum_squares += x[i] * x[i];
    s.sum_abs += std::fabs(x[i]);
    if (std::isfinite(x[i])) {
      s.max_abs = std::max(s.max_abs, std::fabs(x[i]));
    } else {
      ++s.non_finite;
    }
  }
  return s;
}

enum class Type { kNone, kHalf, kBfloat, kFloat, kDouble };

Type type_of(const char* dtype) {
  if (std::strcmp(dtype, "float32") == 0) return Type::kFloat;
  if (std::strcmp(dtype, "float16") == 0) return Type::kHalf;
  if (std::strcmp(dtype, "bfloat16") == 0) return Type::kBfloat;
  return std::strcmp(dtype, "float64") == 0 ? Type::kDouble : Type::kNone;
}

Statistics statistics_of(const void* data, Type type, int64_t n) {
  if (type == Type::kDouble) return statistics_of_double(static_cast<const double*>(data), n);
  Statistics s;
  if (type == Type::kFloat) {
    add_floats(static_cast<const float*>(data), n, &s);
    return s;
  }
  float wide[kPlaces * kBlock];
  for (int64_t i = 0; i < n; i += kPlaces * kBlock) {
    const int64_t count = std::min(kPlaces * kBlock, n - i);
    const uint16_t* x = static_cast<const uint16_t*>(data) + i;
    if (type == Type::kHalf) {
      widen_halves(x, count, wide);
    } else {
      widen_bfloats(x, count, wide);
    }
    add_floats(wide, count, &s);
  }
  return s;
}

// Returns false for a type that is not a floating-point one.
bool statistics(const void* data, int64_t n, const char* dtype, Statistics* s) {
  const Type type = type_of(dtype);
  if (type == Type::kNone) return false;
  *s = statistics_of(data, type, n);
  return true;
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Of the bits and their places. Each lane is a chain of invertible steps, so no single changed bit gets lost.
uint64_t hash_bits(const void* data, int64_t bytes) {
  constexpr int kLanes = 8;
  const unsigned char* x = static_cast<const unsigned char*>(data);
  uint64_t lanes[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t i = 0;
  for (; i + 8 * kLanes <= bytes; i += 8 * kLanes) {
    FETCH(reinterpret_cast<uintptr_t>(x + i) + kAhead);
    for (int lane = 0; lane < kLanes; ++lane) {
      uint64_t word;
      std::memcpy(&word, x + i + 8 * lane, sizeof word);
      lanes[lane] = (lanes[lane] ^ word) * 0x9e3779b97f4a7c15u;
      lanes[lane] ^= lanes[lane] >> 32;
    }
  }
  uint64_t hash = mix(static_cast<uint64_t>(bytes));
  for (; i < bytes; ++i) hash = (hash ^ x[i]) * 0x100000001b3u;
  for (int lane = 0; lane < kLanes; ++lane) hash = mix(hash ^ lanes[lane]);
  return hash;
}

double worse(double a, double b) { return (std::isnan(a) || a >= b) ? a : b; }

bool breaks(const Slot& slot, int64_t non_finite, double max_abs, double l2, double mean_abs) {
  if (slot.judged == 0) return false;
  return non_finite > 0 || max_abs > slot.limit_max || l2 > slot.limit_l2 || mean_abs > slot.limit_mean;
}

bool breaks_limit(const Slot& slot) {
  return slot.calls > 0 && breaks(slot, slot.non_finite, slot.max_abs, slot.l2, slot.mean_abs);
}

// Index of the first element that is inf or nan, else of the largest magnitude. `infinity` is the bit pattern of inf: the
// others order like integers here too.
template <typename Bits>
int64_t worst_element(const void* data, int64_t n, Bits infinity) {
  const Bits* x = static_cast<const Bits*>(data);
  const Bits no_sign = static_cast<Bits>(~Bits{0}) >> 1;
  int64_t worst = 0;
  Bits largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Bits magnitude = x[i] & no_sign;
    if (magnitude >= infinity) return i;
    if (magnitude > largest) {
      largest = magnitude;
      worst = i;
    }
  }
  return worst;
}

int64_t worst_element(const void* data, int64_t n, const char* dtype) {
  if (std::strcmp(dtype, "float32") == 0) return worst_element<uint32_t>(data, n, 0x7f800000u);
  if (std::strcmp(dtype, "float16") == 0) return worst_element<uint16_t>(data, n, 0x7c00);
  if (std::strcmp(dtype, "bfloat16") == 0) return worst_element<uint16_t>(data, n, 0x7f80);
  return worst_element<uint64_t>(data, n, 0x7ff0000000000000u);
}

int64_t width_of(const char* dtype) {
  if (std::strcmp(dtype, "float32") == 0) return 4;
  return std::strcmp(dtype, "float64") == 0 ? 8 : 2;
}

// Without memory for it nothing is kept: evidence is no reason to end a training.
void keep(int64_t slot, const void* data, int64_t n, const char* dtype, Shape shape) {
  const int64_t width = width_of(dtype);
  const int64_t kept = std::min(n, header.capture_bytes / width);
  if (kept == 0) return;
  capture.data = static_cast<unsigned char*>(std::malloc(static_cast<size_t>(kept * width)));
  if (capture.data == nullptr) return;
  capture.slot = slot;
  capture.call = slots[slot].calls;
  capture.elements = n;
  capture.offset = 0;
  if (kept < n) {
    const int64_t centred = worst_element(data, n, dtype) - kept / 2;
    capture.offset = std::min(std::max(centred, int64_t{0}), n - kept);
  }
  capture.bytes = kept * width;
  if (shape.dimensions > kDimensions) shape = {1, &n};
  capture.dimensions = shape.dimensions;
  std::copy_n(shape.sizes, shape.dimensions, capture.shape);
  std::strncpy(capture.dtype, dtype, sizeof capture.dtype - 1);
  std::memcpy(capture.data, static_cast<const unsigned char*>(data) + capture.offset * width,
              static_cast<size_t>(capture.bytes));
  capture.kept = kept;
}

void record(int64_t slot, const void* data, int64_t n, const char* dtype, Shape shape) {
  if (n == 0) return;  // nothing was computed, so there is nothing to judge
  const auto begin = std::chrono::steady_clock::now();
  Statistics s;
  const bool known = slot >= 0 && slot < kSlots && statistics(data, n, dtype, &s);
  const std::lock_guard<std::mutex> lock(guard);
  if (!known) {
    ++header.unsupported;
    return;
  }
  if (header.armed == kReplay) hashes[slot] += hash_bits(data, n * width_of(dtype));
  Slot& target = slots[slot];
  const double l2 = std::sqrt(s.sum_squares);
  const double mean_abs = s.sum_abs / static_cast<double>(n);
  if (target.calls == 0) target.order = header.checks;
  ++target.calls;
  ++header.checks;
  if (target.calls == 1 || (std::isfinite(target.l2) && !(l2 <= target.l2))) target.worst_call = target.calls;
  target.max_abs = std::max(target.max_abs, s.max_abs);
  target.l2 = worse(target.l2, l2);
  target.mean_abs = worse(target.mean_abs, mean_abs);
  target.elements = n;
  target.non_finite += s.non_finite;
  if (header.capture_bytes > 0 && capture.kept == 0 && breaks(target, s.non_finite, s.max_abs, l2, mean_abs)) {
    keep(slot, data, n, dtype, shape);
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  header.nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
}

bool refuse() {
  if (header.armed != kJudge) return header.armed == kReplay;
  const std::lock_guard<std::mutex> lock(guard);
  return std::any_of(slots, slots + header.used, breaks_limit);
}

Stream* stream_of(int64_t dropout, const void* node) {
  for (int64_t i = 0; i < used_streams; ++i) {
    if (streams[i].dropout == dropout && streams[i].node == node) return &streams[i];
  }
  if (used_streams == kStreams) return nullptr;
  streams[used_streams] = {dropout, node, first_states[dropout]};
  return &streams[used_streams++];
}

// One number of [0, 1) below `keep` an element, drawn as MindSpore's Dropout draws them on a CPU.
template <typename T>
void draw_mask(uint64_t* state, int64_t n, float keep, T one, T* mask) {
  std::minstd_rand0 generator(static_cast<std::minstd_rand0::result_type>(*state));
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  for (int64_t i = 0; i < n; ++i) mask[i] = uniform(generator) < keep ? one : T{0};
  // The state can't be read off the generator; it is the number drawn last, and one draw is one number.
  for (uint64_t left = static_cast<uint64_t>(n), step = 16807; left > 0; left >>= 1) {
    if (left & 1) *state = *state * step % 2147483647u;
    step = step * step % 2147483647u;
  }
}

}  // namespace

extern "C" {

Header* asd_header() { return &header; }
Slot* asd_slots() { return slots; }
int64_t asd_capacity() { return kSlots; }
Capture* asd_capture() { return &capture; }
uint64_t* asd_hashes() { return hashes; }
Stream* asd_streams() { return streams; }
int64_t* asd_used_streams() { return &used_streams; }
uint64_t* asd_first_states() { return first_states; }
int64_t asd_stream_capacity() { return kStreams; }
uint64_t asd_hash(const void* data, int64_t bytes) { return hash_bits(data, bytes); }

// A hash of each `block` bytes; the last block may be shorter.
void asd_hash_blocks(const void* data, int64_t bytes, int64_t block, uint64_t* out) {
  const unsigned char* x = static_cast<const unsigned char*>(data);
  for (int64_t i = 0; i < bytes; i += block) *out++ = hash_bits(x + i, std::min(block, bytes - i));
}

// Makes room for the next capture.
void asd_release_capture() {
  const std::lock_guard<std::mutex> lock(guard);
  std::free(capture.data);
  capture = {};
}

// ctypes face. `data` is contiguous.
void asd_observe_buffer(int64_t slot, const void* data, int64_t n, const char* dtype) {
  record(slot, data, n, dtype, {1, &n});
}
void asd_observe_array(int64_t slot, const void* data, int64_t dimensions, const int64_t* sizes, const char* dtype) {
  int64_t n = 1;
  for (int64_t i = 0; i < dimensions; ++i) n *= sizes[i];
  record(slot, data, n, dtype, {dimensions, sizes});
}
int64_t asd_statistics(const void* data, int64_t n, const char* dtype, double* out) {
  Statistics s;
  if (!statistics(data, n, dtype, &s)) return 1;
  out[0] = s.max_abs;
  out[1] = s.sum_squares;
  out[2] = static_cast<double>(s.non_finite);
  out[3] = s.sum_abs;
  return 0;
}

// As float32 elements; returns 1 for another type than float16 and bfloat16.
int64_t asd_widen(const void* data, int64_t n, const char* dtype, float* out) {
  if (std::strcmp(dtype, "float16") == 0) {
    widen_halves(static_cast<const uint16_t*>(data), n, out);
  } else if (std::strcmp(dtype, "bfloat16") == 0) {
    widen_bfloats(static_cast<const uint16_t*>(data), n, out);
  } else {
    return 1;
  }
  return 0;
}

// One call of a checkpoint whose value is no gradient's but a score, which no loss scale divides.
int64_t asd_record_score(int64_t slot, double score) {
  if (slot < 0 || slot >= kSlots) return 1;
  const std::lock_guard<std::mutex> lock(guard);
  Slot& target = slots[slot];
  if (target.calls == 0) target.order = header.checks;
  ++target.calls;
  ++header.checks;
  const bool finite = std::isfinite(score);
  if (target.calls == 1 || (std::isfinite(target.l2) && !(score <= target.l2))) target.worst_call = target.calls;
  if (finite) target.max_abs = std::max(target.max_abs, score);
  target.l2 = worse(target.l2, score);
  target.non_finite += finite ? 0 : 1;
  return 0;
}

// ops.Custom "aot" face: inputs (gradient, slot number int32[1]), output float32[1] that only serves as a dependency.
int asd_observe(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 3) return 1;
  int64_t n = 1;
  for (int i = 0; i < ndims[0]; ++i) n *= shapes[0][i];
  record(*static_cast<const int32_t*>(params[1]), params[0], n, dtypes[0], {ndims[0], shapes[0]});
  *static_cast<float*>(params[2]) = 0.0f;
  return 0;
}

// Inputs: any tensors that must be ready first; output float32[1], 1 when the update must not be applied, plus an
// announcement if there is one.
int asd_gate(int nparam, void** params, int*, int64_t**, const char**, void*, void*) {
  const bool announces = header.announcing != 0 && header.armed != kReplay;
  *static_cast<float*>(params[nparam - 1]) = (refuse() ? 1.0f : 0.0f) + (announces ? kAnnouncement : 0.0f);
  return 0;
}

// What all ranks agreed on: input float32[1], the sum over the ranks; output 1 when any of them refuses, else 0. Counts
// refusals and announcements.
int asd_agree(int nparam, void** params, int*, int64_t**, const char**, void*, void*) {
  if (nparam != 2) return 1;
  const float sum = *static_cast<const float*>(params[0]);
  const bool refused = !(sum < 0.5f);
  const std::lock_guard<std::mutex> lock(guard);
  header.refused += refused && header.armed != kReplay ? 1 : 0;
  if (sum > std::floor(sum) && header.armed != kReplay) {
    ++header.announced;
    header.announcing = 0;
  }
  *static_cast<float*>(params[1]) = refused ? 1.0f : 0.0f;
  return 0;
}

// Inputs: a tensor, the number of the dropout int32[1], or -1 minus that from PyNative, and the share that is kept
// float32[1]; output: 1 or 0 for each element of the tensor, of its type. `node` belongs to the node of the graph.
int asd_dropout_mask(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void* node) {
  if (nparam != 4) return 1;
  int64_t n = 1;
  for (int i = 0; i < ndims[0]; ++i) n *= shapes[0][i];
  const int32_t number = *static_cast<const int32_t*>(params[1]);
  const int32_t dropout = number < 0 ? -1 - number : number;
  if (dropout >= kStreams) return 2;
  const float keep = *static_cast<const float*>(params[2]);
  const std::lock_guard<std::mutex> lock(guard);
  Stream* stream = stream_of(dropout, number < 0 ? nullptr : node);
  if (stream == nullptr) return 3;
  if (std::strcmp(dtypes[0], "float32") == 0) {
    draw_mask<float>(&stream->state, n, keep, 1.0f, static_cast<float*>(params[3]));
  } else if (std::strcmp(dtypes[0], "float16") == 0) {
    draw_mask<uint16_t>(&stream->state, n, keep, 0x3c00, static_cast<uint16_t*>(params[3]));
  } else if (std::strcmp(dtypes[0], "float64") == 0) {
    draw_mask<double>(&stream->state, n, keep, 1.0, static_cast<double*>(params[3]));
  } else {
    return 4;
  }
  return 0;
}

}  // extern "C"
