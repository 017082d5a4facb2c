// MATMUL and CONV of the C model against plain loops and against the reference executor. Values are small integers, so
// every sum is exact in every accumulator and all results must agree to the last bit, whatever the order of addition.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/product/gemm.h"
#include "drivers/cmodel/threads/pool.h"
#include "support/reference/reference.h"
#include "support/reference/value.h"

int test_micro_kernels(int rounds);  // cmodel_micro_test.cpp

namespace {

using Shape = std::vector<int64_t>;

std::mt19937_64 random_bits(20240);
int failures = 0;

int64_t uniform(int64_t low, int64_t high) {
  return low + int64_t(random_bits() % uint64_t(high - low + 1));
}
bool chance(int percent) {
  return uniform(0, 99) < percent;
}
template <class T>
T pick(std::initializer_list<T> from) {
  return from.begin()[uniform(0, int64_t(from.size()) - 1)];
}

bool is_float(int dtype) {
  return dtype >= NPU_F16;
}

// A tensor in memory with a layout of its own: exactly the bytes it spans, so that a sanitizer sees one byte too many.
struct Tensor {
  int dtype;
  Shape shape, stride;
  std::vector<char> bytes;
  int64_t origin = 0;  // of element (0, ..., 0), in elements

  enum Layout { kDense, kAny, kOutput, kChannelsLast };
  Tensor(int dtype, Shape shape_, Layout layout) : dtype(dtype), shape(std::move(shape_)), stride(shape.size()) {
    const int rank = int(shape.size());
    std::vector<int> order(rank);
    std::iota(order.begin(), order.end(), 0);
    if (layout == kChannelsLast) {
      std::rotate(order.begin() + 1, order.begin() + 2, order.end());
      layout = kDense;
    }
    if (layout != kDense && chance(50)) std::shuffle(order.begin(), order.end(), random_bits);
    int64_t step = layout != kDense && chance(15) ? 2 : 1, low = 0, high = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const int d = order[i];
      int64_t s = step;
      step *= std::max<int64_t>(1, shape[d]);
      if (layout != kDense && chance(20)) step += uniform(1, 3);
      if (layout == kAny && chance(6)) s = 0;
      if (layout != kDense && chance(8)) s = -s;
      stride[d] = s;
      (s < 0 ? low : high) += s * std::max<int64_t>(0, shape[d] - 1);
    }
    origin = -low;
    bytes.assign(size_t(high - low + 1) * npu::dtype_size(dtype), 0x55);
  }
  char* data() { return bytes.data() + origin * npu::dtype_size(dtype); }
  int64_t count() const { return int64_t(bytes.size()) / npu::dtype_size(dtype); }
  int64_t offset(const Shape& at) const {
    int64_t o = 0;
    for (size_t d = 0; d < at.size(); ++d) o += at[d] * stride[d];
    return o;
  }
  void fill() {
    for (int64_t i = 0; i < count(); ++i) {
      npu::Value v{};
      v.i = uniform(dtype == NPU_U16 || dtype == NPU_U32 || dtype == NPU_U64 ? 0 : -3, 3);  // plain loops do not wrap
      npu::store_value(bytes.data() + i * npu::dtype_size(dtype), dtype, v, NPU_I64);
    }
  }
  double value(const Shape& at) {
    return npu::load_value(data() + offset(at) * npu::dtype_size(dtype), dtype, NPU_F64).f64;
  }
};

// Coordinates of the i-th point of a box, row-major.
void unravel(int64_t i, const int64_t* size, int rank, int64_t* at) {
  for (int d = rank - 1; d >= 0; --d) {
    at[d] = i % size[d];
    i /= size[d];
  }
}

// The command with its operands, run twice: by the C model and by the reference.
struct Case {
  npu_command command{};
  std::vector<Tensor> tensors;
  npu::Program program;
  bool has_program = false;
  std::string text;

  bool run_cmodel(std::vector<Tensor>& t) {
    std::vector<cmodel::Operand> operands(t.size());
    for (size_t i = 0; i < t.size(); ++i) {
      operands[i].ptr = t[i].data();
      operands[i].begin = t[i].bytes.data();
      operands[i].end = operands[i].begin + t[i].bytes.size();
      operands[i].dtype = uint8_t(t[i].dtype);
      std::copy(t[i].stride.begin(), t[i].stride.end(), operands[i].stride);
    }
    cmodel::Program compiled;
    if (has_program) compiled = {program, cmodel::make_plan(program)};
    cmodel::Job job;
    job.command = command;
    job.command.operand_count = uint32_t(t.size());
    job.program = has_program ? &compiled : nullptr;
    job.operands = operands.data();
    cmodel::Failure failure;
    const bool ok = command.kind == NPU_MATMUL ? cmodel::run_matmul(job, failure) : cmodel::run_conv(job, failure);
    if (!ok) std::printf("failed: %s\n", failure.text.c_str());
    return ok;
  }

  bool run_reference(std::vector<Tensor>& t) {
    std::vector<npu_operand> operands(t.size());
    for (size_t i = 0; i < t.size(); ++i) {
      operands[i].addr = reinterpret_cast<npu_addr>(t[i].data());
      operands[i].dtype = uint8_t(t[i].dtype);
      std::copy(t[i].stride.begin(), t[i].stride.end(), operands[i].stride);
    }
    npu_command c = command;
    c.struct_size = sizeof c;
    c.operands = operands.data();
    c.operand_count = uint32_t(t.size());
    const npu_program_desc desc = program.desc();
    std::string error = npu::validate_command(c, has_program ? &desc : nullptr);
    if (!error.empty()) {
      std::printf("the test made a bad command: %s\n", error.c_str());
      return false;
    }
    const auto translate = [](npu_addr addr, uint64_t, bool) { return reinterpret_cast<void*>(addr); };
    return npu::run_reference(c, has_program ? &desc : nullptr, translate, &error) == NPU_OK;
  }

  // `plain`: the value that independent loops expect at a point of the result.
  template <class F>
  void check(F&& plain) {
    std::vector<Tensor> ours = tensors, theirs = tensors;
    const size_t out = tensors.size() - 1;
    bool ok = run_cmodel(ours) && run_reference(theirs) && ours[out].bytes == theirs[out].bytes;
    if (ok && !has_program && (tensors[out].dtype == NPU_F64 || tensors[out].dtype == NPU_I64)) {
      Shape at(command.rank, 0);
      const int64_t points =
          std::accumulate(command.size, command.size + command.rank, int64_t(1), std::multiplies<>());
      for (int64_t i = 0; i < points && ok; ++i) {
        unravel(i, command.size, command.rank, at.data());
        ok = ours[out].value(at) == plain(at);
      }
    }
    if (ok) return;
    ++failures;
    std::printf("differs: %s\n", text.c_str());
    for (const Tensor& t : tensors) {
      std::printf("  %s", npu::dtype_name(t.dtype));
      for (size_t d = 0; d < t.shape.size(); ++d) std::printf(" %ld:%ld", long(t.shape[d]), long(t.stride[d]));
      std::printf("\n");
    }
  }
};

int random_dtype(int acc) {
  if (acc == NPU_F32 || acc == NPU_F64) {
    if (chance(60)) return acc;
    return pick<int>({NPU_BF16, NPU_F16, NPU_F32, NPU_F64, NPU_I8, NPU_BOOL, NPU_I64});
  }
  return int(uniform(NPU_BOOL, NPU_I64));
}

// Results that wrap or round are compared with the reference only; the plain loops see the wide types.
int random_result(int acc) {
  if (chance(50)) return acc;
  return chance(50) ? int(uniform(NPU_BOOL, NPU_F64)) : acc == NPU_F32 || acc == NPU_F64 ? NPU_F64 : NPU_I64;
}

// An epilogue: relu(acc + operand 2), stored to operand 3. Inputs of it are of the accumulator's own type or bf16.
void add_epilogue(Case& c, const Shape& shape, int acc) {
  const std::string t = npu::dtype_name(acc);
  c.program = npu::parse("program bias_relu(a, b, bias, out)\neach:\n  %acc = acc : " + t +
                         "\n  %bias = load bias : " + t + "\n  %sum = add %acc, %bias\n  %zero = const 0 : " + t +
                         "\n  %relu = max %sum, %zero\n  store out, %relu\n");
  c.has_program = true;
  Shape bias_shape = shape;
  Tensor bias(is_float(acc) && chance(30) ? NPU_BF16 : acc, bias_shape, Tensor::kDense);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (chance(50)) bias.stride[d] = 0;
  }
  bias.fill();
  c.tensors.push_back(std::move(bias));
}

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

void test_matmul(int64_t m, int64_t n, int64_t k) {
  Case c;
  const int acc = pick<int>({NPU_F32, NPU_F32, NPU_F64, NPU_I32, NPU_I64});
  const int batch_rank = chance(50) ? 0 : int(uniform(1, 3));
  Shape a, b, r;
  for (int d = 0; d < batch_rank; ++d) {
    const int64_t size = uniform(1, 4);
    a.push_back(size), b.push_back(size), r.push_back(size);
  }
  a.insert(a.end(), {m, k}), b.insert(b.end(), {k, n}), r.insert(r.end(), {m, n});
  c.command.kind = NPU_MATMUL;
  c.command.rank = uint8_t(r.size());
  std::copy(r.begin(), r.end(), c.command.size);
  c.command.u.matmul.k = k;
  c.command.u.matmul.acc_dtype = uint8_t(acc);
  const int same = random_dtype(acc);
  c.tensors.emplace_back(chance(60) ? same : random_dtype(acc), a, chance(40) ? Tensor::kDense : Tensor::kAny);
  c.tensors.emplace_back(chance(60) ? same : random_dtype(acc), b, chance(40) ? Tensor::kDense : Tensor::kAny);
  for (Tensor& t : c.tensors) t.fill();
  if (chance(25)) {  // one matrix for all batches
    Tensor& t = c.tensors[size_t(uniform(0, 1))];
    for (int d = 0; d < batch_rank; ++d) t.stride[d] = 0;
  }
  if (chance(30)) add_epilogue(c, r, acc);
  c.tensors.emplace_back(random_result(acc), r, chance(50) ? Tensor::kDense : Tensor::kOutput);
  c.text = "matmul acc " + std::string(npu::dtype_name(acc)) + (c.has_program ? " with epilogue" : "");
  c.check([&](const Shape& at) {
    Shape left = at, right = at;
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) {
      left[batch_rank + 1] = right[batch_rank] = p;
      sum += c.tensors[0].value(left) * c.tensors[1].value(right);
    }
    return sum;
  });
}

void test_matmul(int64_t largest) {
  const auto extent = [&] { return chance(12) ? 1 : chance(3) ? 0 : uniform(1, largest); };
  const int64_t m = extent(), n = extent(), k = extent();
  test_matmul(m, n, k);
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

void test_conv(int64_t largest) {
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
void test_conv_keeps_infinity_in_place() {
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
      ++failures;
      std::printf("differs: infinity in conv mode %u, operand %d of %s\n", mode, int(&holder - c.tensors.data()),
                  npu::dtype_name(dtype));
    }
  }
}

// Rounding: real-valued operands stay within a few units of the sum of magnitudes, for sizes that reach every path.
void test_accuracy(int dtype, int64_t m, int64_t n, int64_t k) {
  Case c;
  c.command.kind = NPU_MATMUL;
  c.command.rank = 2;
  c.command.size[0] = m, c.command.size[1] = n;
  c.command.u.matmul = {k, uint8_t(dtype == NPU_F64 ? NPU_F64 : NPU_F32), 0, {}};
  c.tensors.emplace_back(dtype, Shape{m, k}, Tensor::kDense);
  c.tensors.emplace_back(dtype, Shape{k, n}, Tensor::kDense);
  c.tensors.emplace_back(dtype == NPU_F64 ? NPU_F64 : NPU_F32, Shape{m, n}, Tensor::kDense);
  std::normal_distribution<double> normal;
  for (int t = 0; t < 2; ++t) {
    for (int64_t i = 0; i < c.tensors[t].count(); ++i) {
      npu::Value v{};
      v.f64 = normal(random_bits);
      npu::store_value(c.tensors[t].bytes.data() + i * npu::dtype_size(dtype), dtype, v, NPU_F64);
    }
  }
  bool ok = c.run_cmodel(c.tensors);
  const double unit = dtype == NPU_F64 ? 0x1p-52 : 0x1p-23;
  for (int trial = 0; trial < 200 && ok; ++trial) {
    const int64_t i = uniform(0, m - 1), j = uniform(0, n - 1);
    long double sum = 0, magnitude = 0;
    for (int64_t p = 0; p < k; ++p) {
      const long double term = (long double)c.tensors[0].value({i, p}) * c.tensors[1].value({p, j});
      sum += term, magnitude += std::fabs(term);
    }
    ok = std::fabs(double(c.tensors[2].value({i, j}) - sum)) <= unit * (4 + std::sqrt(double(k))) * double(magnitude);
  }
  if (!ok) {
    ++failures;
    std::printf("inaccurate: %s %ld x %ld x %ld\n", npu::dtype_name(dtype), long(m), long(n), long(k));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 500;
  std::printf("OpenBLAS: %s\n", cmodel::product::have_openblas() ? "yes" : "no");
  failures += test_micro_kernels(rounds);
  for (const int threads : {1, 3}) {
    cmodel::set_pool_threads(threads);
    for (int i = 0; i < rounds; ++i) test_matmul(i % 20 == 0 ? 130 : 24);
    for (int i = 0; i < rounds / 20; ++i) test_matmul(uniform(1, 130), uniform(770, 1700), 20);  // several wide tiles
    for (int i = 0; i < rounds; ++i) test_conv(i % 10 == 0 ? 30 : 12);
    for (int i = 0; i < 60; ++i) test_conv_keeps_infinity_in_place();
    for (const int dtype : {NPU_F32, NPU_F64, NPU_BF16, NPU_F16}) {
      test_accuracy(dtype, 300, 200, 700);
      test_accuracy(dtype, 1, 3000, 150);
      test_accuracy(dtype, 2500, 1, 333);
      test_accuracy(dtype, 70, 65, 1);
    }
  }
  // Commands of several streams run at the same time.
  std::vector<std::thread> streams;
  for (int t = 0; t < 3; ++t) {
    streams.emplace_back([t] {
      for (int i = 0; i < 20; ++i) {
        std::vector<float> a(200 * 150, 1.0f), b(150 * 180, float(t + 1)), c(200 * 180);
        cmodel::Operand operands[3];
        float* data[3] = {a.data(), b.data(), c.data()};
        const int64_t row[3] = {150, 180, 180};
        for (int o = 0; o < 3; ++o) {
          operands[o].ptr = reinterpret_cast<char*>(data[o]);
          operands[o].dtype = NPU_F32;
          operands[o].stride[0] = row[o], operands[o].stride[1] = 1;
        }
        cmodel::Job job;
        job.command.kind = NPU_MATMUL;
        job.command.rank = 2;
        job.command.size[0] = 200, job.command.size[1] = 180;
        job.command.u.matmul = {150, NPU_F32, 0, {}};
        job.operands = operands;
        cmodel::Failure failure;
        cmodel::run_matmul(job, failure);
        for (const float x : c) {
          if (x == 150.0f * float(t + 1)) continue;
          std::printf("differs: concurrent products\n");
          std::exit(1);
        }
      }
    });
  }
  for (std::thread& s : streams) s.join();
  std::printf(failures ? "%d failures\n" : "all passed\n", failures);
  return failures != 0;
}
