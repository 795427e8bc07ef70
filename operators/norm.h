// A norm under check: what the files that check it share.
#pragma once

#include <cstdint>

namespace asd {

// A tensor without its shape; no data where there is none.
struct Array {
  const void* data;
  int64_t elements;
  const char* dtype;
};

// What is normalized together: the last axes, as many elements as gamma has, with `groups` 0; else groups of channels of
// (batches, channels, ...).
struct NormKind {
  int64_t batches, groups;
  bool centred;  // else the mean is not taken away: RMSNorm
  double epsilon;
};

// The worst residual as a multiple of what rounding explains.
struct NormScore {
  double worst = 0.0;
  bool compared = false;  // any element at all
  bool judged = true;     // every element that could be compared

  bool says_something() const { return (compared && judged) || worst > 1.0; }
};

// Whether shapes and types are such that it can be checked; then the score of y.
bool check_norm(const NormKind& kind, const Array& x, const Array& gamma, const Array& beta, const Array& y,
                NormScore* of_y);

// The same of the backward pass: the scores of dx, and of dgamma and dbeta, of which each may have no data.
bool check_norm_gradients(const NormKind& kind, const Array& x, const Array& gamma, const Array& dy, const Array& dx,
                          const Array& dgamma, const Array& dbeta, NormScore* of_x, NormScore* of_weights);

}  // namespace asd
