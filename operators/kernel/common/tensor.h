// A tensor as an operator gets it: what all checks of operands do with it.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

extern "C" int64_t asd_widen(const void* data, int64_t n, const char* dtype, float* out);

namespace asd {

inline int64_t elements_of(int dimensions, const int64_t* shape) {
  int64_t n = 1;
  for (int i = 0; i < dimensions; ++i) n *= shape[i];
  return n;
}

// A floating-point type.
struct Format {
  double unit;      // of the last place of a number in [1, 2)
  double smallest;  // normal number
  double largest;   // finite number
};

// False for a type that is not known.
inline bool format_of(const char* dtype, Format* format) {
  if (std::strcmp(dtype, "float32") == 0) {
    *format = {0x1p-23, 0x1p-126, 0x1.fffffep127};
  } else if (std::strcmp(dtype, "float16") == 0) {
    *format = {0x1p-10, 0x1p-14, 65504.0};
  } else if (std::strcmp(dtype, "bfloat16") == 0) {
    *format = {0x1p-7, 0x1p-126, 0x1.fep127};
  } else {
    return false;
  }
  return true;
}

// As float32; a copy only where it is something else. Null for a type that can't be read.
inline const float* as_float(const void* data, int64_t n, const char* dtype, std::vector<float>* buffer) {
  if (std::strcmp(dtype, "float32") == 0) return static_cast<const float*>(data);
  buffer->resize(static_cast<size_t>(n));
  return asd_widen(data, n, dtype, buffer->data()) == 0 ? buffer->data() : nullptr;
}

}  // namespace asd
