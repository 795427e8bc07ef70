// Checks a convolution and its two gradients. Each is a matrix product with a tensor unfolded: a row for each place, a column
// for each number that is multiplied there. So it is checked as a product is, by signed sums over its channels; the tensor is
// padded, and unfolded in place by tables of where rows and columns begin.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "convolution/convolution.h"

namespace asd {

namespace {

using Table = std::vector<int64_t>;

bool layout_of(const ConvolutionKind& kind, const Operand& x, const Operand& w, const Operand& y, Convolution* layout) {
  if (x.dimensions != 4 || w.dimensions != 4 || y.dimensions != 4 || kind.groups <= 0) return false;
  Convolution& c = *layout;
  c = {x.shape[0], kind.groups, w.shape[1], w.shape[0] / kind.groups, {}, {}, {}, {}, {}, {}};
  for (int i = 0; i < 2; ++i) {
    c.size[i] = x.shape[2 + i], c.kernel[i] = w.shape[2 + i], c.out[i] = y.shape[2 + i];
    c.stride[i] = kind.stride[i], c.dilation[i] = kind.dilation[i], c.before[i] = kind.before[i];
    if (c.stride[i] <= 0 || c.dilation[i] <= 0) return false;
    const int64_t needed = (c.out[i] - 1) * c.stride[i] + (c.kernel[i] - 1) * c.dilation[i] + 1;
    if (kind.same) c.before[i] = std::max<int64_t>(0, needed - c.size[i]) / 2;
  }
  return x.shape[1] == c.groups * c.channels && w.shape[0] == c.groups * c.outputs && y.shape[0] == c.batches &&
         y.shape[1] == w.shape[0];
}

// Planes of numbers with zeros around them, and between them where they are further apart than one.
struct Planes {
  std::vector<float> data;
  int64_t size[2];

  int64_t area() const { return size[0] * size[1]; }

  void fill(const float* from, int64_t count, const int64_t* old, const int64_t* before, const int64_t* apart) {
    data.assign(static_cast<size_t>(count * area()), 0.0f);
    for (int64_t plane = 0; plane < count; ++plane) {
      for (int64_t h = 0; h < old[0]; ++h, from += old[1]) {
        float* to = data.data() + plane * area() + (before[0] + h * apart[0]) * size[1] + before[1];
        for (int64_t w = 0; w < old[1]; ++w) to[w * apart[1]] = from[w];
      }
    }
  }
};

// Where the elements of a grid are, row by row.
void add_grid(int64_t begin, int64_t rows, int64_t columns, int64_t row, int64_t column, Table* table) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) table->push_back(begin + i * row + j * column);
  }
}

// A matrix of `rows` x `columns` the other way round.
void turn(const float* from, int64_t rows, int64_t columns, std::vector<float>* to) {
  to->resize(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) (*to)[j * rows + i] = from[i * columns + j];
  }
}

int64_t blocks_of(int64_t n) { return (n + 255) / 256; }

// What a product is made of, and room for it.
struct Unfolded {
  Product p = {};
  Planes planes;
  Table rows, columns, lines;
  std::vector<float> b, c;

  void set_a(int64_t run, int64_t step, bool rows_run) {
    p.a = {planes.data.data(), 0, 0, rows.data(), columns.data(), run, step, rows_run};
  }
};

// The input with its zeros around it.
void pad(const Convolution& c, const float* x, int64_t count, Planes* planes) {
  const int64_t together[2] = {1, 1};
  for (int i = 0; i < 2; ++i) {
    const int64_t needed = (c.out[i] - 1) * c.stride[i] + (c.kernel[i] - 1) * c.dilation[i] + 1;
    planes->size[i] = std::max(c.size[i] + c.before[i], needed);
  }
  planes->fill(x, count, c.size, c.before, together);
}

void unfold_places(const Convolution& c, const Planes& planes, int64_t begin, Table* table) {
  add_grid(begin, c.out[0], c.out[1], c.stride[0] * planes.size[1], c.stride[1], table);
}

void unfold_taps(const Convolution& c, const Planes& planes, Table* table) {
  for (int64_t channel = 0; channel < c.channels; ++channel) {
    add_grid(channel * planes.area(), c.kernel[0], c.kernel[1], c.dilation[0] * planes.size[1], c.dilation[1], table);
  }
}

// A row for each place of the output, a column for each channel of it.
void check_output(const Convolution& c, const float* x, const float* w, const float* y, Unfolded* u, Finding* finding) {
  u->p.m = c.places(), u->p.n = c.outputs, u->p.k = c.channels * c.taps();
  u->p.kappa = kappa_of(c.batches * c.groups * c.places() * blocks_of(c.outputs));
  for (int64_t i = 0; i < c.batches * c.groups && !(finding->score > 1.0); ++i) {
    pad(c, x + i * c.channels * c.positions(), c.channels, &u->planes);
    if (u->rows.empty()) {
      unfold_places(c, u->planes, 0, &u->rows);
      unfold_taps(c, u->planes, &u->columns);
    }
    u->set_a(c.out[1], c.stride[1], true);
    u->p.b = {w + i % c.groups * c.outputs * u->p.k, 1, u->p.k};
    turn(y + i * c.outputs * c.places(), c.outputs, c.places(), &u->c);
    u->p.c = u->c.data();
    check_by_variance(u->p, finding);
  }
}

// A row for each place of the input, a column for each channel of it: dy with zeros between its places, against the weights
// from their last to their first.
void check_dx(const Convolution& c, const float* w, const float* dy, const float* dx, Unfolded* u, Finding* finding) {
  u->p.m = c.positions(), u->p.n = c.channels, u->p.k = c.outputs * c.taps();
  u->p.kappa = kappa_of(c.batches * c.groups * c.positions() * blocks_of(c.channels));
  int64_t before[2], first[2];
  for (int i = 0; i < 2; ++i) {
    before[i] = std::max<int64_t>(0, (c.kernel[i] - 1) * c.dilation[i] - c.before[i]);
    first[i] = c.before[i] + before[i];
    u->planes.size[i] = std::max(c.size[i] + first[i], (c.out[i] - 1) * c.stride[i] + 1 + before[i]);
  }
  const int64_t width = u->planes.size[1];
  add_grid(first[0] * width + first[1], c.size[0], c.size[1], width, 1, &u->rows);
  for (int64_t output = 0; output < c.outputs; ++output) {
    add_grid(output * u->planes.area(), c.kernel[0], c.kernel[1], -c.dilation[0] * width, -c.dilation[1], &u->columns);
  }
  for (int64_t i = 0; i < c.batches * c.groups && !(finding->score > 1.0); ++i) {
    u->planes.fill(dy + i * c.outputs * c.places(), c.outputs, c.out, before, c.stride);
    u->set_a(c.size[1], 1, true);
    u->b.clear();
    const float* weights = w + i % c.groups * c.outputs * c.channels * c.taps();
    std::vector<float> turned;
    for (int64_t output = 0; output < c.outputs; ++output) {
      turn(weights + output * c.channels * c.taps(), c.channels, c.taps(), &turned);
      u->b.insert(u->b.end(), turned.begin(), turned.end());
    }
    u->p.b = {u->b.data(), c.channels, 1};
    turn(dx + i * c.channels * c.positions(), c.channels, c.positions(), &u->c);
    u->p.c = u->c.data();
    check_by_variance(u->p, finding);
  }
}

// A row for each weight of an output, a column for each output: sums over all places of all samples.
void check_dw(const Convolution& c, const float* x, const float* dy, const float* dw, Unfolded* u, Finding* finding) {
  u->p.m = c.channels * c.taps(), u->p.n = c.outputs, u->p.k = c.batches * c.places();
  u->p.kappa = kappa_of(c.groups * u->p.m * blocks_of(c.outputs));
  const int64_t of_sample = c.groups * c.channels * c.positions();
  pad(c, x, c.batches * c.groups * c.channels, &u->planes);
  unfold_taps(c, u->planes, &u->rows);
  for (int64_t n = 0; n < c.batches; ++n) {
    unfold_places(c, u->planes, n * of_sample / c.positions() * u->planes.area(), &u->columns);
    add_grid(n * c.groups * c.outputs * c.places(), 1, c.places(), 0, 1, &u->lines);
  }
  for (int64_t group = 0; group < c.groups && !(finding->score > 1.0); ++group) {
    u->set_a(c.out[1], c.stride[1], false);
    u->p.a.data += group * c.channels * u->planes.area();
    u->p.b = {dy + group * c.outputs * c.places(), 1, c.places(), u->lines.data(), nullptr, c.places()};
    turn(dw + group * c.outputs * u->p.m, c.outputs, u->p.m, &u->c);
    u->p.c = u->c.data();
    check_by_variance(u->p, finding);
  }
}

const float* read(const Operand& operand, std::vector<float>* buffer) {
  int64_t elements = 1;
  for (int64_t i = 0; i < operand.dimensions; ++i) elements *= operand.shape[i];
  return as_float(operand.data, elements, operand.dtype, buffer);
}

// What is checked of two operands and a result.
template <typename Check>
bool check_result(const ConvolutionKind& kind, const Operand& one, const Operand& other, const Operand& result,
                  const Check& check) {
  std::vector<float> buffers[3];
  const float* data[3] = {read(one, &buffers[0]), read(other, &buffers[1]), read(result, &buffers[2])};
  Unfolded unfolded;
  if (data[0] == nullptr || data[1] == nullptr || data[2] == nullptr) return false;
  if (!format_of(kind.rounded_to == nullptr ? result.dtype : kind.rounded_to, &unfolded.p.format)) return false;
  for (const Operand& operand : {one, other}) unfolded.p.halves += std::strcmp(operand.dtype, "float16") == 0 ? 1 : 0;
  check(data[0], data[1], data[2], &unfolded);
  return true;
}

bool is_empty(const Convolution& c) {
  return c.batches * c.groups * c.channels * c.outputs * c.positions() * c.places() * c.taps() == 0;
}

bool has_shape(const Operand& operand, const Operand& like) {
  return operand.dimensions == like.dimensions &&
         std::equal(operand.shape, operand.shape + operand.dimensions, like.shape);
}

}  // namespace

bool check_convolution(const ConvolutionKind& kind, const Operand& x, const Operand& w, const Operand& y, Finding* of_y) {
  Convolution c;
  if (!layout_of(kind, x, w, y, &c)) return false;
  if (is_empty(c)) return true;
  return check_result(kind, x, w, y, [&](const float* a, const float* b, const float* result, Unfolded* u) {
    check_output(c, a, b, result, u, of_y);
  });
}

bool check_convolution_gradients(const ConvolutionKind& kind, const Operand& x, const Operand& w, const Operand& dy,
                                 const Operand& dx, const Operand& dw, Finding* of_x, Finding* of_w) {
  Convolution c;
  if (!layout_of(kind, x, w, dy, &c)) return false;
  if ((dx.data != nullptr && !has_shape(dx, x)) || (dw.data != nullptr && !has_shape(dw, w))) return false;
  if (is_empty(c)) return true;
  bool known = true;
  if (dx.data != nullptr) {
    known = check_result(kind, w, dy, dx, [&](const float* a, const float* b, const float* result, Unfolded* u) {
      check_dx(c, a, b, result, u, of_x);
    });
  }
  if (known && dw.data != nullptr) {
    known = check_result(kind, x, dy, dw, [&](const float* a, const float* b, const float* result, Unfolded* u) {
      check_dw(c, a, b, result, u, of_w);
    });
  }
  return known;
}

}  // namespace asd
