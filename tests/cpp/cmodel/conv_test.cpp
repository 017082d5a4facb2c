#include <cmath>
#include <limits>

#include "tests/cpp/cmodel/product_case.h"

namespace {

using namespace product_test;

// Another for convolutions: a batch norm, whose deviation depends on the channel only, a residual and relu. `asks` for
// a coordinate, or for a mask, which not all ways to walk the results have.
void add_norm(Case& c, const Shape& shape, Tensor::Layout residual) {
  const bool asks = chance(15), masked = chance(15);
  std::string text =
      "program norm(a, b, mean, variance, gain, residual, out)\neach:\n  %acc = acc : f32\n  %m = load mean : f32\n"
      "  %v = load variance : f32\n  %vv = mul %v, %v\n  %one = const 1 : f32\n  %e = add %vv, %one\n  %d = sqrt %e\n"
      "  %i = reciprocal %d\n  %x = sub %acc, %m\n  %y = mul %x, %i\n  %g = load gain : f32\n  %z = mul %y, %g\n"
      "  %r = load residual : f32\n  %sum = add %z, %r\n  %zero = const 0 : f32\n  %relu = max %sum, %zero\n";
  if (asks) text += "  %c = index 1 : i64\n  %f = cast %c : f32\n  %last = add %relu, %f\n";
  const std::string value = asks ? "%last" : "%relu";
  if (masked) text += "  %some = gt %r, %zero\n";
  c.program = npu::parse(text + "  store out, " + value + (masked ? ", mask %some\n" : "\n"));
  c.has_program = true;
  for (int k = 0; k < 4; ++k) {
    Tensor t(chance(20) ? NPU_BF16 : NPU_F32, shape, k == 3 ? residual : Tensor::kDense);
    for (size_t d = 0; d < shape.size() && k < 3; ++d)
      if (d != 1 || chance(10)) t.stride[d] = 0;
    t.fill();
    c.tensors.push_back(std::move(t));
  }
}

// The whole result, row-major: every (output position, tap) pair that meets inside the input gives one term.
std::vector<double> plain_conv(Case& c) {
  const npu_conv& v = c.command.u.conv;
  const int rank = int(v.spatial_rank);
  const int64_t in_group = v.in_channels / v.groups, out_group = v.out_channels / v.groups;
  int64_t points = 1, taps = 1, results = 1;
  for (int d = 0; d < rank; ++d) points *= v.out_size[d], taps *= v.kernel[d];
  for (int d = 0; d < c.command.rank; ++d) results *= c.command.size[d];
  std::vector<double> sums(results);
  Shape out(2 + rank), tap(2 + rank), in(2 + rank);
  const Shape& first = v.mode == NPU_CONV_FORWARD ? in : out;
  const Shape& second = v.mode == NPU_CONV_GRAD_WEIGHT ? in : tap;
  const Shape& result = v.mode == NPU_CONV_FORWARD ? out : v.mode == NPU_CONV_GRAD_INPUT ? in : tap;
  for (int64_t pair = 0; pair < points * taps; ++pair) {
    unravel(pair / taps, v.out_size, rank, out.data() + 2);
    unravel(pair % taps, v.kernel, rank, tap.data() + 2);
    bool inside = true;
    for (int d = 0; d < rank; ++d) {
      in[2 + d] = out[2 + d] * v.stride[d] - v.padding[d] + tap[2 + d] * v.dilation[d];
      inside = inside && in[2 + d] >= 0 && in[2 + d] < v.in_size[d];
    }
    if (!inside) continue;
    for (int64_t i = 0; i < v.batch * v.out_channels * in_group; ++i) {
      out[0] = in[0] = i / in_group / v.out_channels;
      out[1] = tap[0] = i / in_group % v.out_channels;
      tap[1] = i % in_group;
      in[1] = out[1] / out_group * in_group + tap[1];
      int64_t at = 0;
      for (int d = 0; d < 2 + rank; ++d) at = at * c.command.size[d] + result[d];
      sums[at] += c.tensors[0].value(first) * c.tensors[1].value(second);
    }
  }
  return sums;
}

void check_conv(int64_t largest) {
  Case c;
  const int acc = pick<int>({NPU_F32, NPU_F32, NPU_F64, NPU_I32, NPU_I64});
  npu_conv& v = c.command.u.conv;
  v.mode = uint32_t(uniform(0, 2));
  const int rank = int(uniform(1, 3));
  v.spatial_rank = uint32_t(rank);
  v.acc_dtype = uint8_t(acc);
  v.batch = uniform(1, 3);
  v.groups = pick<int64_t>({1, 1, 1, 2, 3});
  v.in_channels = v.groups * uniform(1, 9);
  v.out_channels = v.groups * uniform(1, 14);
  if (chance(15)) v.groups = v.in_channels, v.out_channels = v.in_channels * uniform(1, 2);  // depthwise
  if (chance(5)) v.in_channels = v.groups * 66, v.out_channels = v.groups * 64;  // the path for narrow images
  const bool pointwise = chance(20);
  // Rows of whole vectors, which are read where they lie.
  const bool whole = !pointwise && chance(20);
  if (whole) v.in_channels = v.groups * uniform(6, 20), v.out_channels = v.groups * uniform(8, 30);
  // Channels that are whole vectors, along which those run then.
  if (!pointwise && !whole && chance(25)) {
    v.in_channels = v.groups * pick<int64_t>({3, 8, 16, 48}), v.out_channels = v.groups * 16 * uniform(1, 6);
  }
  const int64_t extent = rank == 1 ? 6 * largest : rank == 2 ? largest : std::min<int64_t>(largest, 6);
  for (int d = 0; d < rank; ++d) {
    v.kernel[d] = pointwise ? 1 : uniform(1, 5);
    v.stride[d] = pointwise ? 1 : pick<int64_t>({1, 1, 2, 3});
    v.dilation[d] = pick<int64_t>({1, 1, 2});
    v.padding[d] = pointwise ? 0 : uniform(0, 3);
    if (whole && d == rank - 1) {
      v.kernel[d] = pick<int64_t>({1, 3, 3, 5});
      v.dilation[d] = 1;
      v.padding[d] = v.kernel[d] / 2;
      v.stride[d] = pick<int64_t>({1, 1, 2});
      v.in_size[d] = v.out_size[d] = 16 * uniform(1, 3);
      v.in_size[d] *= v.stride[d];
      continue;
    }
    v.in_size[d] = std::max<int64_t>(uniform(1, extent), v.dilation[d] * (v.kernel[d] - 1) + 1 - 2 * v.padding[d]);
    v.out_size[d] = (v.in_size[d] + 2 * v.padding[d] - v.dilation[d] * (v.kernel[d] - 1) - 1) / v.stride[d] + 1;
  }
  Shape in{v.batch, v.in_channels}, weight{v.out_channels, v.in_channels / v.groups}, out{v.batch, v.out_channels};
  for (int d = 0; d < rank; ++d) {
    in.push_back(v.in_size[d]), weight.push_back(v.kernel[d]), out.push_back(v.out_size[d]);
  }
  const Shape& first = v.mode == NPU_CONV_FORWARD ? in : out;
  const Shape& second = v.mode == NPU_CONV_GRAD_WEIGHT ? in : weight;
  const Shape& result = v.mode == NPU_CONV_FORWARD ? out : v.mode == NPU_CONV_GRAD_INPUT ? in : weight;
  c.command.kind = NPU_CONV;
  c.command.rank = uint8_t(2 + rank);
  std::copy(result.begin(), result.end(), c.command.size);
  const bool channels_last = chance(25);
  const auto layout = [&](Tensor::Layout other) {
    return channels_last ? Tensor::kChannelsLast : chance(45) ? Tensor::kDense : other;
  };
  const int same = random_dtype(acc);
  c.tensors.emplace_back(chance(60) ? same : random_dtype(acc), first, layout(Tensor::kAny));
  c.tensors.emplace_back(chance(60) ? same : random_dtype(acc), second, layout(Tensor::kAny));
  for (Tensor& t : c.tensors) t.fill();
  if (chance(30)) {
    add_epilogue(c, result, acc);
  } else if (acc == NPU_F32 && chance(50)) {
    add_norm(c, result, layout(Tensor::kAny));
  }
  c.tensors.emplace_back(random_result(acc), result, layout(Tensor::kOutput));
  c.text = "conv mode " + std::to_string(v.mode) + " acc " + npu::dtype_name(acc) + " groups " +
           std::to_string(v.groups) + (c.has_program ? " with epilogue" : "");
  for (int d = 0; d < rank; ++d) {
    c.text += " [kernel " + std::to_string(v.kernel[d]) + " stride " + std::to_string(v.stride[d]) + " padding " +
              std::to_string(v.padding[d]) + " dilation " + std::to_string(v.dilation[d]) + "]";
  }
  std::vector<double> sums;
  c.check([&](const Shape& at) {
    if (sums.empty()) sums = plain_conv(c);
    int64_t i = 0;
    for (int d = 0; d < 2 + rank; ++d) i = i * c.command.size[d] + at[d];
    return sums[i];
  });
}

// An infinity reaches the results that read it and no others, whichever operand holds it: padding takes no part.
void check_that_infinity_stays_in_place() {
  for (uint32_t mode = 0; mode < 3; ++mode) {
    Case c;
    npu_conv& v = c.command.u.conv;
    const int64_t in_channels = pick<int64_t>({1, 3, 16}), out_channels = pick<int64_t>({1, 7, 32});
    v = {mode, 2, 2, in_channels, out_channels, 1, {9, 11}, {5, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, NPU_F32, 0, {}};
    const Shape in{2, in_channels, 9, 11}, weight{out_channels, in_channels, 3, 3}, out{2, out_channels, 5, 6};
    const Shape& result = mode == 0 ? out : mode == 1 ? in : weight;
    c.command.kind = NPU_CONV;
    c.command.rank = 4;
    std::copy(result.begin(), result.end(), c.command.size);
    const int dtype = pick<int>({NPU_F32, NPU_BF16});
    c.tensors.emplace_back(dtype, mode == 0 ? in : out, Tensor::kDense);
    c.tensors.emplace_back(dtype, mode == 2 ? in : weight, Tensor::kDense);
    for (Tensor& t : c.tensors) t.fill();
    c.tensors.emplace_back(NPU_F32, result, Tensor::kDense);
    Tensor& holder = c.tensors[uniform(0, 1)];
    npu::Value infinity{};
    infinity.f64 = chance(80) ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    npu::store_value(holder.bytes.data() + uniform(0, holder.count() - 1) * npu::dtype_size(dtype), dtype, infinity,
                     NPU_F64);
    std::vector<Tensor> ours = c.tensors, theirs = c.tensors;
    bool ok = c.run_cmodel(ours) && c.run_reference(theirs);
    const float *a = reinterpret_cast<float*>(ours[2].data()), *b = reinterpret_cast<float*>(theirs[2].data());
    for (int64_t i = 0; i < c.tensors[2].count(); ++i)
      ok = ok && (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])));
    if (!ok) {
      harness::fail("infinity in conv mode " + std::to_string(mode) + ", operand " +
                    std::to_string(&holder - c.tensors.data()) + " of " + npu::dtype_name(dtype));
    }
  }
}

}  // namespace

TEST(convolutions_of_any_geometry_layout_type_and_epilogue) {
  with_threads([] {
    for (int i = 0; i < harness::work(500); ++i) check_conv(i % 10 == 0 ? 30 : 12);
  });
}

TEST(infinity_stays_in_its_place) {
  with_threads([] {
    for (int i = 0; i < 60; ++i) check_that_infinity_stays_in_place();
  });
}
