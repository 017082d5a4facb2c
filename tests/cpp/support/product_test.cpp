// MATMUL and CONV: exact integers against independent loops, and float sums in the prescribed order.
#include <cmath>

#include "tests/cpp/support/command.h"

namespace {

using harness::Command;
using Floats = std::vector<float>;
using Longs = std::vector<int64_t>;

uint64_t state = 5;
int64_t next(int64_t range) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(2 * range + 1)) - range;
}
Longs random_longs(int64_t n) {
  Longs out(static_cast<size_t>(n));
  for (int64_t& x : out) x = next(9);
  return out;
}
Floats random_floats(int64_t n) {
  Floats out(static_cast<size_t>(n));
  for (float& x : out) x = static_cast<float>(next(1000000)) * 1e-6f;
  return out;
}

struct Conv {
  std::vector<int64_t> in, kernel, stride, padding, dilation;
  int64_t batch, in_channels, out_channels, groups;
  int spatial() const { return static_cast<int>(in.size()); }
  std::vector<int64_t> out() const {
    std::vector<int64_t> size;
    for (size_t d = 0; d < in.size(); ++d)
      size.push_back((in[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1);
    return size;
  }
};

int64_t product(const std::vector<int64_t>& size) {
  int64_t n = 1;
  for (int64_t s : size) n *= s;
  return n;
}

std::vector<int64_t> shape(int64_t a, int64_t b, std::vector<int64_t> rest) {
  rest.insert(rest.begin(), {a, b});
  return rest;
}

std::vector<int64_t> dense(const std::vector<int64_t>& size) {
  std::vector<int64_t> stride(size.size(), 1);
  for (size_t d = size.size() - 1; d-- > 0;) stride[d] = stride[d + 1] * size[d + 1];
  return stride;
}

template <typename T>
std::vector<T> run_conv(const Conv& conv, int mode, const std::vector<T>& first, const std::vector<T>& second,
                        int acc) {
  const auto input = shape(conv.batch, conv.in_channels, conv.in);
  const auto weight = shape(conv.out_channels, conv.in_channels / conv.groups, conv.kernel);
  const auto output = shape(conv.batch, conv.out_channels, conv.out());
  const auto& a = mode == NPU_CONV_FORWARD ? input : output;
  const auto& b = mode == NPU_CONV_GRAD_WEIGHT ? input : weight;
  const auto& c = mode == NPU_CONV_FORWARD ? output : mode == NPU_CONV_GRAD_INPUT ? input : weight;
  Command command(NPU_CONV, c);
  npu_conv& u = command.c.u.conv;
  u.mode = static_cast<uint32_t>(mode);
  u.spatial_rank = static_cast<uint32_t>(conv.spatial());
  u.batch = conv.batch;
  u.in_channels = conv.in_channels;
  u.out_channels = conv.out_channels;
  u.groups = conv.groups;
  u.acc_dtype = static_cast<uint8_t>(acc);
  for (size_t d = 0; d < conv.in.size(); ++d) {
    u.in_size[d] = conv.in[d];
    u.out_size[d] = conv.out()[d];
    u.kernel[d] = conv.kernel[d];
    u.stride[d] = conv.stride[d];
    u.padding[d] = conv.padding[d];
    u.dilation[d] = conv.dilation[d];
  }
  command.in(first, dense(a));
  command.in(second, dense(b));
  command.in(std::vector<T>(static_cast<size_t>(product(c))), dense(c));
  return command.template result<T>(2);
}

int64_t dot(const Longs& a, const Longs& b) {
  int64_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

const Conv kConvs[] = {{{9}, {3}, {2}, {1}, {2}, 2, 4, 6, 2},
                       {{5, 6}, {3, 2}, {1, 2}, {1, 0}, {1, 1}, 2, 3, 4, 1},
                       {{4, 5}, {1, 3}, {1, 1}, {0, 2}, {1, 2}, 1, 4, 4, 4},
                       {{3, 4, 5}, {2, 2, 2}, {1, 2, 1}, {0, 1, 1}, {1, 1, 2}, 2, 2, 2, 1}};

}  // namespace

TEST(matmul_of_floats_sums_k_in_order) {
  const int64_t m = 5, n = 7, k = 40;
  const Floats a = random_floats(m * k), b = random_floats(k * n);
  Command command(NPU_MATMUL, {m, n});
  command.c.u.matmul = {k, NPU_F32, 0, {}};
  command.in(a, {k, 1});
  command.in(b, {1, k});  // stored transposed
  command.in(Floats(m * n), {n, 1});
  const Floats got = command.result<float>(2);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      volatile float sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        volatile float term = a[static_cast<size_t>(i * k + p)] * b[static_cast<size_t>(j * k + p)];
        sum = sum + term;
      }
      EQUAL(got[static_cast<size_t>(i * n + j)], float{sum});
    }
}

TEST(matmul_of_batches_broadcasts_and_wraps) {
  Command command(NPU_MATMUL, {2, 2, 2});
  command.c.u.matmul = {2, NPU_I32, 0, {}};
  command.in(std::vector<int32_t>{1, 2, 3, 4}, {0, 2, 1});  // one A for both batches
  command.in(std::vector<int8_t>{5, 6, 7, 8, -1, 0, 0, -1}, {4, 2, 1});
  command.in(Longs(8), {4, 2, 1});
  const Longs want{19, 22, 43, 50, -1, -2, -3, -4};
  CHECK(command.result<int64_t>(2) == want);
  Command wrap(NPU_MATMUL, {1, 1});
  wrap.c.u.matmul = {2, NPU_I32, 0, {}};
  wrap.in(std::vector<int32_t>{65536, 1}, {0, 1});
  wrap.in(std::vector<int32_t>{65536, 5}, {1, 0});
  wrap.in(std::vector<int32_t>(1), {0, 0});
  EQUAL(wrap.result<int32_t>(2)[0], 5);
}

TEST(matmul_rounds_its_result_to_the_storage_type) {
  Command command(NPU_MATMUL, {1, 1});
  command.c.u.matmul = {2, NPU_F32, 0, {}};
  command.in(std::vector<uint16_t>{0x3f80, 0x3f80}, {0, 1}, NPU_BF16);
  command.in(Floats{1, 0.005f}, {1, 0});
  command.in(std::vector<uint16_t>{0}, {0, 0}, NPU_BF16);
  EQUAL(command.result<uint16_t>(2)[0], 0x3f81);  // 1.005 is nearer to 1.0078125
}

TEST(matmul_epilogue_adds_a_bias_and_clamps) {
  Command command(NPU_MATMUL, {2, 2});
  command.c.u.matmul = {2, NPU_F32, 0, {}};
  command.with(harness::isa_program("linear_relu"));
  command.in(Floats{1, 2, 3, 4}, {2, 1});
  command.in(Floats{1, 0, 0, -1}, {2, 1});
  command.in(Floats{0.5f, 3}, {0, 1});
  command.in(Floats(4, -5), {2, 1});
  const Floats want{1.5f, 1, 3.5f, 0};
  CHECK(command.result<float>(3) == want);
}

TEST(matmul_without_k_is_zero_and_without_points_is_nothing) {
  Command command(NPU_MATMUL, {1, 2});
  command.c.u.matmul = {0, NPU_F64, 0, {}};
  command.at(8, NPU_F64, {1, 1});
  command.at(8, NPU_F64, {1, 1});
  command.in(Floats{9, 9}, {2, 1});
  const Floats want{0, 0};
  CHECK(command.result<float>(2) == want);
  command.c.size[0] = 0;
  command.operands[2].addr = 8;
  EQUAL(command.run(), NPU_OK);
}

TEST(convolution_by_hand) {
  const Conv conv{{4}, {2}, {1}, {1}, {1}, 1, 1, 1, 1};
  const Floats got = run_conv<float>(conv, NPU_CONV_FORWARD, {1, 2, 3, 4}, {10, 1}, NPU_F32);
  const Floats want{1, 12, 23, 34, 40};
  CHECK(got == want);
}

// Every product of an input and a weight is added to the output it belongs to: the other way round than the reference.
TEST(convolution_forward_agrees_with_scattered_products) {
  for (const Conv& c : kConvs) {
    const Longs x = random_longs(c.batch * c.in_channels * product(c.in));
    const Longs w = random_longs(c.out_channels * (c.in_channels / c.groups) * product(c.kernel));
    const auto out = c.out();
    Longs want(static_cast<size_t>(c.batch * c.out_channels * product(out)));
    const int64_t ig = c.in_channels / c.groups, og = c.out_channels / c.groups;
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t i = 0; i < c.in_channels; ++i)
        for (int64_t o = i / ig * og; o < (i / ig + 1) * og; ++o)
          for (int64_t p = 0; p < product(c.in); ++p)
            for (int64_t t = 0; t < product(c.kernel); ++t) {
              int64_t ip = p, it = t, at = 0, scale = 1;
              bool fits = true;
              for (int d = c.spatial() - 1; d >= 0; --d) {
                const size_t e = static_cast<size_t>(d);
                const int64_t reach = ip % c.in[e] + c.padding[e] - it % c.kernel[e] * c.dilation[e];
                ip /= c.in[e];
                it /= c.kernel[e];
                fits &= reach >= 0 && reach % c.stride[e] == 0 && reach / c.stride[e] < out[e];
                at += reach / c.stride[e] * scale;
                scale *= out[e];
              }
              if (fits)
                want[static_cast<size_t>((b * c.out_channels + o) * product(out) + at)] +=
                    x[static_cast<size_t>((b * c.in_channels + i) * product(c.in) + p)] *
                    w[static_cast<size_t>((o * ig + i % ig) * product(c.kernel) + t)];
            }
    CHECK(run_conv<int64_t>(c, NPU_CONV_FORWARD, x, w, NPU_I64) == want);
  }
}

// The gradients are the adjoints: <conv(x, w), g> = <x, grad_input(g, w)> = <w, grad_weight(g, x)>, exactly for
// integers.
TEST(convolution_gradients_are_adjoint) {
  for (const Conv& c : kConvs) {
    const Longs x = random_longs(c.batch * c.in_channels * product(c.in));
    const Longs w = random_longs(c.out_channels * (c.in_channels / c.groups) * product(c.kernel));
    const Longs g = random_longs(c.batch * c.out_channels * product(c.out()));
    const int64_t want = dot(run_conv<int64_t>(c, NPU_CONV_FORWARD, x, w, NPU_I64), g);
    EQUAL(dot(run_conv<int64_t>(c, NPU_CONV_GRAD_INPUT, g, w, NPU_I64), x), want);
    EQUAL(dot(run_conv<int64_t>(c, NPU_CONV_GRAD_WEIGHT, g, x, NPU_I64), w), want);
  }
}

TEST(convolution_of_floats_sums_channel_then_kernel_position) {
  const Conv c{{6, 6}, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, 5, 2, 1};
  const Floats x = random_floats(5 * 36), w = random_floats(2 * 5 * 9);
  const Floats got = run_conv<float>(c, NPU_CONV_FORWARD, x, w, NPU_F32);
  for (size_t o = 0; o < 2; ++o)
    for (size_t at = 0; at < 16; ++at) {
      volatile float sum = 0;
      for (size_t i = 0; i < 5; ++i)
        for (size_t t = 0; t < 9; ++t) {
          volatile float term = x[i * 36 + (at / 4 + t / 3) * 6 + at % 4 + t % 3] * w[(o * 5 + i) * 9 + t];
          sum = sum + term;
        }
      EQUAL(got[o * 16 + at], float{sum});
    }
}
