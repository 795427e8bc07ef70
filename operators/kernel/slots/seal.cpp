// What the host sealed after an update, and what the gate finds before the next one: the whole forward and backward pass
// lies in between, and the update can still be refused. What was found broken stays so until the host takes it away, so
// that a step that is made again does not pass with it.
#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

extern "C" void asd_read_blocks(const void* blocks, int64_t n, int64_t threads, uint64_t* hashes, double* extremes);

namespace {

constexpr int64_t kBlockBytes = 32;  // of `struct Block` in blocks.cpp

// As `SEAL_STATES` of seal.py.
enum State : int64_t { kNone, kSealed, kKept, kChanged, kBroken };

struct Seal {
  std::vector<unsigned char> blocks;
  std::vector<int64_t> tensors;  // of each block
  std::vector<uint64_t> hashes, found;
  std::vector<unsigned char> judged;  // of each tensor: whether a change of it is a fault
  int64_t threads = 1;
  State state = kNone;
};

std::map<int64_t, Seal> seals;  // by guard
std::mutex seal_guard;

void compare(Seal* seal) {
  const int64_t n = static_cast<int64_t>(seal->hashes.size());
  asd_read_blocks(seal->blocks.data(), n, seal->threads, seal->found.data(), nullptr);
  seal->state = kKept;
  std::set<int64_t> changed;
  for (int64_t i = 0; i < n; ++i) {
    if (seal->found[i] == seal->hashes[i]) continue;
    seal->state = kChanged;
    if (seal->judged[seal->tensors[i]] != 0) changed.insert(seal->tensors[i]);
  }
  // As `Seal` of asd/rules/history/seal.py: a fault hits one tensor, a program that writes writes many.
  if (changed.size() == 1) seal->state = kBroken;
}

}  // namespace

extern "C" {

// For the gate of `guard`: whether what was sealed is broken. It looks once; a second update of the same step has none.
int64_t asd_look_at_seal(int64_t guard) {
  const std::lock_guard<std::mutex> lock(seal_guard);
  const auto at = seals.find(guard);
  if (at == seals.end()) return 0;
  if (at->second.state == kSealed) compare(&at->second);
  return at->second.state == kBroken ? 1 : 0;
}

// Seals `n` blocks of tensors numbered below `count` until the gate of `guard` looks; nobody may free them before.
void asd_seal(int64_t guard, const void* blocks, int64_t n, const uint64_t* hashes, const int64_t* tensors,
              const unsigned char* judged, int64_t count, int64_t threads) {
  const std::lock_guard<std::mutex> lock(seal_guard);
  Seal& seal = seals[guard];
  const unsigned char* bytes = static_cast<const unsigned char*>(blocks);
  seal.blocks.assign(bytes, bytes + n * kBlockBytes);
  seal.tensors.assign(tensors, tensors + n);
  seal.hashes.assign(hashes, hashes + n);
  seal.found.assign(hashes, hashes + n);
  seal.judged.assign(judged, judged + count);
  seal.threads = threads;
  seal.state = kSealed;
}

// The program wrote this tensor itself before the gate looked.
void asd_do_not_judge(int64_t guard, int64_t tensor) {
  const std::lock_guard<std::mutex> lock(seal_guard);
  const auto at = seals.find(guard);
  if (at != seals.end()) at->second.judged[tensor] = 0;
}

// What became of it, and of each block the hash that was found.
int64_t asd_seal_state(int64_t guard, uint64_t* found) {
  const std::lock_guard<std::mutex> lock(seal_guard);
  const auto at = seals.find(guard);
  if (at == seals.end()) return kNone;
  if (found != nullptr) std::copy(at->second.found.begin(), at->second.found.end(), found);
  return at->second.state;
}

void asd_unseal(int64_t guard) {
  const std::lock_guard<std::mutex> lock(seal_guard);
  seals.erase(guard);
}

}  // extern "C"
