// Draws the masks of dropouts, so that a step that is made again can draw them again.
//
// Part of the same library as `kernel.cpp`, with the same plain C interface.
#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>

namespace {

constexpr int kStreams = 4096;

// The random stream of one place where a dropout is called. Each node of a compiled graph has a stream of its own, as
// MindSpore's kernels have; all calls from PyNative share one.
struct Stream {
  int64_t dropout;   // its number
  const void* node;  // tells the nodes of compiled graphs apart; null in PyNative
  uint64_t state;    // of the generator, from 1 on
};

Stream streams[kStreams];
int64_t used_streams = 0;
uint64_t first_states[kStreams];  // written by the host: the state that each dropout begins with
std::mutex guard;

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

int64_t asd_stream_size() { return sizeof(Stream); }

Stream* asd_streams() { return streams; }
int64_t* asd_used_streams() { return &used_streams; }
uint64_t* asd_first_states() { return first_states; }
int64_t asd_stream_capacity() { return kStreams; }

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
