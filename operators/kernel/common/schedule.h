// When checksums are due, by a schedule for each gate, and how many there were: what the checks of products and of means over ranks share.
#pragma once

#include <chrono>
#include <cstdint>

namespace asd {

// Keep in step with `Schedule` in library.py.
struct Schedule {
  int64_t every;      // each site is due in one step of so many; 0: never
  int64_t turn;       // number of the step
  int64_t all;        // 1: every site is due
  int64_t tolerance;  // one of `Tolerance` of checksum.cpp
  int64_t checked;    // since the library was loaded; this and what follows in the first schedule only
  int64_t dismissed;  // of these, how many exceeded the tolerance and were right when computed again
  int64_t unjudged;   // of these: an operand is not finite, or the shapes or types are unknown
  int64_t nanoseconds;  // spent in checks that were due
};

bool is_due(int64_t slot);

// Whether `slot`, of what counts its own steps, is due in step `number` of them.
bool is_turn(int64_t slot, int64_t number);

// Counts one that was checked.
void count_checked(bool dismissed, bool unjudged);

// Counts the time from its beginning to its end as that of a check.
class CheckTime {
 public:
  ~CheckTime();

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace asd
