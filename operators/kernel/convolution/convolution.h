// A convolution under check: what the files that check it share.
#pragma once

#include <cstdint>

#include "product/product.h"

namespace asd {

// As MindSpore gives it; heights before widths.
struct ConvolutionKind {
  int64_t stride[2], dilation[2];
  int64_t before[2];  // zeros above and left of the input; those below and right follow from the shape of the output
  bool same;          // as many zeros as an output of input / stride needs, half of them before
  int64_t groups;
  const char* rounded_to;  // the type of results that are stored in a wider one; null for their own
};

// Of (batches, groups * channels, size), weights (groups * outputs, channels, kernel), and (batches, groups * outputs, out).
struct Convolution {
  int64_t batches, groups, channels, outputs;
  int64_t size[2], kernel[2], out[2], stride[2], dilation[2], before[2];

  int64_t positions() const { return size[0] * size[1]; }
  int64_t places() const { return out[0] * out[1]; }
  int64_t taps() const { return kernel[0] * kernel[1]; }
};

// Whether shapes and types are such that it can be checked; then what was found of y.
bool check_convolution(const ConvolutionKind& kind, const Operand& x, const Operand& w, const Operand& y, Finding* of_y);

// The same of the gradients of x and of w, of which each may have no data: then it is not checked.
bool check_convolution_gradients(const ConvolutionKind& kind, const Operand& x, const Operand& w, const Operand& dy,
                                 const Operand& dx, const Operand& dw, Finding* of_x, Finding* of_w);

}  // namespace asd
