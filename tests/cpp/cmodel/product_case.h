// MATMUL and CONV of the C model against plain loops and against the reference executor. Values are small integers, so
// every sum is exact in every accumulator and all results must agree to the last bit, whatever the order of addition.
#pragma once
#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/threads/pool.h"
#include "support/program/validate.h"
#include "support/reference/reference.h"
#include "support/reference/value.h"
#include "tests/cpp/harness/harness.h"

namespace product_test {

using Shape = std::vector<int64_t>;

inline std::mt19937_64 random_bits(20240);

inline int64_t uniform(int64_t low, int64_t high) {
  return low + int64_t(random_bits() % uint64_t(high - low + 1));
}
inline bool chance(int percent) {
  return uniform(0, 99) < percent;
}
template <class T>
inline T pick(std::initializer_list<T> from) {
  return from.begin()[uniform(0, int64_t(from.size()) - 1)];
}

inline bool is_float(int dtype) {
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
inline void unravel(int64_t i, const int64_t* size, int rank, int64_t* at) {
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
    if (!ok) harness::fail("the C model refuses " + text + ": " + failure.text);
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
    if (!error.empty()) throw std::logic_error("the test made a bad command: " + error);
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
    std::string tensor_texts;
    for (const Tensor& t : tensors) {
      tensor_texts += std::string("\n    ") + npu::dtype_name(t.dtype);
      for (size_t d = 0; d < t.shape.size(); ++d)
        tensor_texts += " " + std::to_string(t.shape[d]) + ":" + std::to_string(t.stride[d]);
    }
    harness::fail("differs: " + text + tensor_texts);
  }
};

inline int random_dtype(int acc) {
  if (acc == NPU_F32 || acc == NPU_F64) {
    if (chance(60)) return acc;
    return pick<int>({NPU_BF16, NPU_F16, NPU_F32, NPU_F64, NPU_I8, NPU_BOOL, NPU_I64});
  }
  return int(uniform(NPU_BOOL, NPU_I64));
}

// Results that wrap or round are compared with the reference only; the plain loops see the wide types.
inline int random_result(int acc) {
  if (chance(50)) return acc;
  return chance(50) ? int(uniform(NPU_BOOL, NPU_F64)) : acc == NPU_F32 || acc == NPU_F64 ? NPU_F64 : NPU_I64;
}

// An epilogue: relu(acc + operand 2), stored to operand 3. Inputs of it are of the accumulator's own type or bf16.
inline void add_epilogue(Case& c, const Shape& shape, int acc) {
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

// Each part of the work on one thread and on three.
template <class F>
void with_threads(F&& test) {
  for (const int threads : {1, 3}) {
    cmodel::set_pool_threads(threads);
    test();
  }
}

}  // namespace product_test
