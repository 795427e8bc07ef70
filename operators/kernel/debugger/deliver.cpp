// Takes the tensors of a compiled graph while it runs: to the host at once, or into a queue of what a dump tells of them,
// which the host reads when the graph has run.
//
// Part of the same library as `kernel.cpp`, with the same plain C interface. Nothing of it is called unless a debugger
// put its taps into a network.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

extern "C" int64_t asd_summarise(const void* data, int64_t n, const char* dtype, double* moments, uint32_t* crc);

namespace {

using Clock = std::chrono::steady_clock;

// `number` is that of the record whose tensor this is, or -1 without a queue. With no label it asks to empty the queue.
using Deliver = void (*)(int64_t number, const int32_t* label, const void* data, int64_t dimensions,
                         const int64_t* sizes, const char* dtype);

constexpr int kDimensions = 8;
constexpr int64_t kFew = 64;        // elements up to which the host takes the sums in another order
constexpr int64_t kCopied = 65536;  // bytes of a tensor that may wait for the host in a copy
constexpr auto kPatience = std::chrono::seconds(1);

// Keep in step with `_RECORD` and the states in collecting.py.
enum State : int32_t { kUnderway = 0, kPassedOver = 1, kSummary = 2, kCopy = 3, kHandedOver = 4 };

struct Record {
  int64_t number;
  int32_t label[4];
  uint32_t crc;
  int32_t state;
  int64_t dimensions;
  int64_t sizes[kDimensions];
  double moments[4];
  void* copy;  // whoever takes the record frees it
  char dtype[16];
};

std::atomic<Deliver> deliver{nullptr};
std::atomic<int64_t> queues{0};  // whether there is a queue,
std::atomic<int64_t> wanted{0};  // a bit for each kind of label whose tensors are read for it,
std::atomic<int64_t> checks{0};  // and whether their check sums are
std::mutex guard;
std::deque<Record>& records = *new std::deque<Record>;  // never destroyed: a graph may outlive what is
int64_t next_number = 0;
Clock::time_point emptied;

int64_t width_of(const char* dtype) {
  const char* digits = dtype + std::strcspn(dtype, "0123456789");
  if (std::strcmp(dtype, "bool") == 0) return 1;
  return *digits != '\0' ? std::atoi(digits) / 8 : 0;
}

// False where the host must read the tensor itself, at once.
bool fill(Record* record, const void* data, const int64_t* sizes, const char* dtype) {
  if (record->dimensions > kDimensions) return false;
  int64_t n = 1;
  for (int64_t i = 0; i < record->dimensions; ++i) n *= record->sizes[i] = sizes[i];
  std::strncpy(record->dtype, dtype, sizeof record->dtype - 1);
  uint32_t* crc = checks.load() != 0 ? &record->crc : nullptr;
  if (n > kFew && asd_summarise(data, n, dtype, record->moments, crc) == 0) {
    record->state = kSummary;
    return true;
  }
  const int64_t bytes = n * width_of(dtype);
  if (bytes > kCopied || (bytes == 0 && n > 0)) return false;
  record->copy = std::malloc(static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (record->copy == nullptr) return false;
  if (bytes > 0) std::memcpy(record->copy, data, static_cast<size_t>(bytes));
  record->state = kCopy;
  return true;
}

Record* enqueue(const int32_t* label, int64_t dimensions) {
  const std::lock_guard<std::mutex> lock(guard);
  records.emplace_back();
  Record* record = &records.back();  // stays where it is, whatever comes and goes before and behind it
  record->number = next_number++;
  std::copy_n(label, 4, record->label);
  record->dimensions = dimensions;
  return record;
}

void collect(Deliver callback, const int32_t* label, const void* data, int64_t dimensions, const int64_t* sizes,
             const char* dtype) {
  Record* record = enqueue(label, dimensions);
  Record filled = *record;
  if ((wanted.load() >> label[1] & 1) == 0) {
    filled.state = kPassedOver;
  } else if (!fill(&filled, data, sizes, dtype)) {
    callback(filled.number, label, data, dimensions, sizes, dtype);
    filled.state = kHandedOver;
  }
  bool due;
  {
    const std::lock_guard<std::mutex> lock(guard);
    *record = filled;
    due = Clock::now() - emptied > kPatience;
  }
  if (due) callback(-1, nullptr, nullptr, 0, nullptr, nullptr);
}

}  // namespace

extern "C" {

// Every tensor that a tap sees from now on goes to `callback`, in the thread that computes; null for none. With a queue
// only those go there that must be read with more care, and a request to empty it when that is due; see `Deliver`.
void asd_deliver_to(Deliver callback, int64_t has_queue, int64_t kinds, int64_t has_checks) {
  {
    const std::lock_guard<std::mutex> lock(guard);
    emptied = Clock::now();
  }
  queues.store(has_queue);
  wanted.store(kinds);
  checks.store(has_checks);
  deliver.store(callback);
}

// Moves at most `room` records out of the queue, in the order in which the tensors came, and returns how many; it stops at
// one that is still underway.
int64_t asd_take(Record* out, int64_t room) {
  const std::lock_guard<std::mutex> lock(guard);
  emptied = Clock::now();
  int64_t count = 0;
  while (count < room && !records.empty() && records.front().state != kUnderway) {
    out[count++] = records.front();
    records.pop_front();
  }
  return count;
}

void asd_free(void* copy) { std::free(copy); }

// ops.Custom "aot" face: inputs (any tensor, label int32[4]), output float32[1] that only serves as a dependency.
int asd_deliver(int nparam, void** params, int* ndims, int64_t** shapes, const char** dtypes, void*, void*) {
  if (nparam != 3) return 1;
  const Deliver callback = deliver.load();
  const int32_t* label = static_cast<const int32_t*>(params[1]);
  if (callback != nullptr && queues.load() != 0) {
    collect(callback, label, params[0], ndims[0], shapes[0], dtypes[0]);
  } else if (callback != nullptr) {
    callback(-1, label, params[0], ndims[0], shapes[0], dtypes[0]);
  }
  *static_cast<float*>(params[2]) = 0.0f;
  return 0;
}

}  // extern "C"
