// Keeps the call of an operator whose result was wrong.
#pragma once

#include <cstdint>

namespace asd {

// Keeps `count` tensors, operands, result and settings, as an operator was given them, if `score` says that the result is
// wrong, nothing is kept yet, and all of them are no more than the host wants.
void keep_wrong(double score, int64_t slot, int count, void** params, const int* ndims, int64_t** shapes,
                const char** dtypes);

}  // namespace asd
