// The four numbers of one tensor, from one pass over it.
#pragma once

#include <cstdint>

namespace asd {

struct Statistics {
  double max_abs = 0.0;
  double sum_squares = 0.0;
  double sum_abs = 0.0;
  int64_t non_finite = 0;
};

// Of n elements; returns false for a type that is not a floating-point one.
bool statistics(const void* data, int64_t n, const char* dtype, Statistics* s);

}  // namespace asd
