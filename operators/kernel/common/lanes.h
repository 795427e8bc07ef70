// Loops over many elements that a compiler can take several at a time, without changing the order of a sum by itself.
#pragma once

#include <cstdint>

namespace asd {

constexpr int kLanes = 16;

// Calls `one(i, lane)` for each i below n, so that a compiler can take a lane each.
template <typename One>
inline void in_lanes(int64_t n, const One& one) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) one(i + lane, lane);
  }
  for (int lane = 0; i < n; ++i, ++lane) one(i, lane);
}

inline double total(const double* lanes) {
  double sum = 0.0;
  for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}

}  // namespace asd
