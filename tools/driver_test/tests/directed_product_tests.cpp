// Products and convolutions at the places where kernels change over: every layout of the operands, sizes of tiles and
// one beside them, every type, batches that broadcast, every geometry. Random commands meet these too seldom.
#include <algorithm>

#include "tools/driver_test/command/case.h"

using namespace driver_test;

namespace {

bool is_real(int dtype) {
  return dtype >= NPU_F16 && dtype <= NPU_F64;
}

// NN, NT, TN, TT: whether A is stored with m innermost, and B with k innermost.
struct Layout {
  bool a = false, b = false;
  explicit Layout(int64_t number) : a(number / 2 % 2), b(number % 2) {}
};

struct Shape {
  int64_t m, n, k;
};

Case product(Random& random, const Shape& shape, const Layout& layout, int dtype, int acc, int result, Data data) {
  const auto [m, n, k] = shape;
  Case c(NPU_MATMUL, {m, n});
  c.command.u.matmul.k = k;
  c.command.u.matmul.acc_dtype = static_cast<uint8_t>(acc);
  const std::vector<int> straight = {0, 1}, turned = {1, 0};
  c.at_strides(random, dtype, data, {m, k}, strides_in_order({m, k}, layout.a ? turned : straight));
  c.at_strides(random, dtype, data, {k, n}, strides_in_order({k, n}, layout.b ? turned : straight));
  c.at_strides(random, result, Data::kReal, {m, n}, strides_in_order({m, n}, straight));
  if (is_real(acc) && data == Data::kReal) c.tolerance = Tolerance::sum(k, acc);
  return c;
}

void products(Context& context, const std::vector<Shape>& shapes) {
  Rig rig(context);
  cases(context, context.chosen(static_cast<int64_t>(shapes.size()) * 4), [&](Random& random, int64_t number) {
    Case c = product(random, shapes[static_cast<size_t>(number / 4)], Layout(number % 4), NPU_F32, NPU_F32, NPU_F32,
                     Data::kReal);
    c.sharpen(context);
    c.run(rig);
  });
}

int acc_of(int dtype) {
  return dtype == NPU_F64 ? NPU_F64 : is_real(dtype) ? NPU_F32 : NPU_I32;
}

// Batches of three dimensions at most: the size of each, and which of A and B have it (the others broadcast).
struct Batch {
  std::vector<int64_t> size;
  std::vector<int> a, b;
};

Case batched(Random& random, const Batch& batch, const Layout& layout, int dtype) {
  const int64_t m = 9, n = 17, k = 12;
  const auto with = [&](int64_t rows, int64_t columns) {
    std::vector<int64_t> size = batch.size;
    size.insert(size.end(), {rows, columns});
    return size;
  };
  const int rows = static_cast<int>(batch.size.size()), columns = rows + 1;
  const auto order = [&](std::vector<int> dimensions, bool turned) {
    dimensions.insert(dimensions.end(), {turned ? columns : rows, turned ? rows : columns});
    return dimensions;
  };
  Case c(NPU_MATMUL, with(m, n));
  c.command.u.matmul.k = k;
  c.command.u.matmul.acc_dtype = static_cast<uint8_t>(acc_of(dtype));
  c.at_strides(random, dtype, Data::kReal, with(m, k), strides_in_order(with(m, k), order(batch.a, layout.a)));
  c.at_strides(random, dtype, Data::kReal, with(k, n), strides_in_order(with(k, n), order(batch.b, layout.b)));
  c.output(random, dtype, true);
  c.tolerance = Tolerance::sum(k, acc_of(dtype));
  return c;
}

npu_conv geometry(int spatial, uint32_t mode, int64_t in_channels, int64_t out_channels, int64_t groups) {
  npu_conv conv{};
  conv.mode = mode;
  conv.spatial_rank = static_cast<uint32_t>(spatial);
  conv.batch = 2;
  conv.in_channels = in_channels;
  conv.out_channels = out_channels;
  conv.groups = groups;
  for (int d = 0; d < spatial; d++) {
    conv.in_size[d] = spatial == 3 ? 4 + d : 7 + d;
    conv.kernel[d] = conv.stride[d] = conv.dilation[d] = 1;
  }
  return conv;
}

// `last`: channels innermost in memory, as many engines want them.
Case convolution(Random& random, npu_conv conv, int dtype, bool last) {
  const int spatial = static_cast<int>(conv.spatial_rank);
  int64_t taps = 1, positions = conv.batch;
  for (int d = 0; d < spatial; d++) {
    conv.out_size[d] =
        (conv.in_size[d] + 2 * conv.padding[d] - conv.dilation[d] * (conv.kernel[d] - 1) - 1) / conv.stride[d] + 1;
    taps *= conv.kernel[d];
    positions *= conv.out_size[d];
  }
  conv.acc_dtype = static_cast<uint8_t>(acc_of(dtype));
  const auto shape = [&](int64_t first, int64_t second, const int64_t* rest) {
    std::vector<int64_t> out = {first, second};
    out.insert(out.end(), rest, rest + spatial);
    return out;
  };
  const auto input = shape(conv.batch, conv.in_channels, conv.in_size);
  const auto weight = shape(conv.out_channels, conv.in_channels / conv.groups, conv.kernel);
  const auto output = shape(conv.batch, conv.out_channels, conv.out_size);
  const bool forward = conv.mode == NPU_CONV_FORWARD, of_weight = conv.mode == NPU_CONV_GRAD_WEIGHT;
  Case c(NPU_CONV, forward ? output : of_weight ? weight : input);
  c.command.u.conv = conv;
  std::vector<int> order = {0, 1};
  for (int d = 0; d < spatial; d++) order.push_back(d + 2);
  if (last) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  const auto laid = [&](const std::vector<int64_t>& size) { return strides_in_order(size, order); };
  const auto& first = forward ? input : output;
  const auto& second = of_weight ? input : weight;
  const Data data = is_real(dtype) ? Data::kReal : Data::kSmall;
  c.at_strides(random, dtype, data, first, laid(first));
  c.at_strides(random, dtype, data, second, laid(second));
  const auto& result = forward ? output : of_weight ? weight : input;
  c.at_strides(random, is_real(dtype) ? dtype : NPU_I32, Data::kReal, result, laid(result));
  const int64_t terms = forward     ? taps * conv.in_channels / conv.groups
                        : of_weight ? positions
                                    : taps * conv.out_channels / conv.groups;
  c.tolerance = Tolerance::sum(terms, acc_of(dtype));
  return c;
}

void convolutions(Context& context, const std::vector<std::function<Case(Random&)>>& makers) {
  Rig rig(context);
  cases(context, context.chosen(static_cast<int64_t>(makers.size())), [&](Random& random, int64_t number) {
    Case c = makers[static_cast<size_t>(number)](random);
    c.sharpen(context);
    c.run(rig);
  });
}

}  // namespace

TEST("MATMUL: NN, NT, TN and TT, m and n at tile sizes and one beside them") {
  std::vector<Shape> shapes;
  for (const int64_t size : tile_sizes()) {
    shapes.push_back({size, 19, 21});
    shapes.push_back({19, size, 21});
  }
  products(context, shapes);
}

TEST("MATMUL: NN, NT, TN and TT, k and all three at tile sizes and one beside them") {
  std::vector<Shape> shapes;
  for (const int64_t size : tile_sizes()) {
    shapes.push_back({19, 23, size});
    if (size < 70) shapes.push_back({size, size, size});
  }
  products(context, shapes);
}

TEST("MATMUL: NN, NT, TN and TT of every type, stored as it and as it is summed") {
  Rig rig(context);
  const auto types = static_cast<int64_t>(all_dtypes().size());
  cases(context, context.chosen(types * 8), [&](Random& random, int64_t number) {
    const int dtype = all_dtypes()[static_cast<size_t>(number / 8)], acc = acc_of(dtype);
    const Data data = is_real(dtype) ? Data::kReal : Data::kSpecial;
    Case c = product(random, {33, 18, 31}, Layout(number % 4), dtype, acc, number % 8 < 4 ? dtype : acc, data);
    c.sharpen(context);
    c.run(rig);
  });
}

TEST("MATMUL: batches of either operand broadcast, or lie in another order") {
  Rig rig(context);
  const std::vector<Batch> batches = {
      {{3}, {0}, {0}},          {{3}, {0}, {}},           {{3}, {}, {0}},
      {{2, 3}, {0, 1}, {0, 1}}, {{2, 3}, {0, 1}, {1}},    {{2, 3}, {0}, {1}},
      {{2, 3}, {0, 1}, {0}},    {{2, 3}, {1, 0}, {0, 1}}, {{2, 3, 2}, {0, 1, 2}, {0, 2}}};
  cases(context, context.chosen(static_cast<int64_t>(batches.size()) * 8), [&](Random& random, int64_t number) {
    Case c = batched(random, batches[static_cast<size_t>(number / 8)], Layout(number % 4),
                     number % 8 < 4 ? NPU_F32 : NPU_BF16);
    c.sharpen(context);
    c.run(rig);
  });
}

TEST("CONV: every mode with kernels, steps, padding and dilation that differ between dimensions") {
  std::vector<std::function<Case(Random&)>> makers;
  for (const int spatial : {1, 2, 3})
    for (const uint32_t mode : {NPU_CONV_FORWARD, NPU_CONV_GRAD_INPUT, NPU_CONV_GRAD_WEIGHT})
      for (int bits = 0; bits < (spatial == 3 ? 8 : 16); bits++) {
        npu_conv conv = geometry(spatial, mode, 4, 6, 1);
        for (int d = 0; d < spatial; d++) {
          if (bits & 1) conv.kernel[d] = spatial == 3 ? 2 : 3 - d;
          if (bits & 2) conv.stride[d] = 2 + d % 2;
          if (bits & 4) conv.padding[d] = 1 + (spatial < 3 ? d : 0);
          if (bits & 8) conv.dilation[d] = 2;
        }
        makers.push_back([=](Random& random) { return convolution(random, conv, NPU_F32, false); });
      }
  convolutions(context, makers);
}

TEST("CONV: channels at tile sizes and one beside them") {
  std::vector<std::function<Case(Random&)>> makers;
  for (const int64_t size : tile_sizes())
    for (const uint32_t mode : {NPU_CONV_FORWARD, NPU_CONV_GRAD_INPUT, NPU_CONV_GRAD_WEIGHT})
      for (const bool in : {false, true}) {
        npu_conv conv = geometry(2, mode, in ? size : 5, in ? 5 : size, 1);
        conv.in_size[0] = conv.in_size[1] = 5;
        conv.kernel[0] = conv.kernel[1] = 3;
        conv.padding[0] = 1;
        makers.push_back([=](Random& random) { return convolution(random, conv, NPU_F32, false); });
      }
  convolutions(context, makers);
}

TEST("CONV: every type, one group, several and one per channel, channels first and last") {
  std::vector<std::function<Case(Random&)>> makers;
  for (const int dtype : {NPU_F32, NPU_F16, NPU_BF16, NPU_F64, NPU_I8, NPU_U8, NPU_I32})
    for (const uint32_t mode : {NPU_CONV_FORWARD, NPU_CONV_GRAD_INPUT, NPU_CONV_GRAD_WEIGHT})
      for (const int64_t groups : {1, 2, 6})
        for (const bool last : {false, true}) {
          npu_conv conv = geometry(2, mode, 6, groups == 6 ? 6 : 4, groups);
          conv.kernel[0] = 3;
          conv.kernel[1] = 2;
          conv.padding[0] = conv.padding[1] = 1;
          makers.push_back([=](Random& random) { return convolution(random, conv, dtype, last); });
        }
  convolutions(context, makers);
}
