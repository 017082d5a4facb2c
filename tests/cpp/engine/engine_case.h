// One command that runs on the reference and on the engine, with the results compared.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/plan/plan.h"
#include "support/program/program.h"
#include "support/reference/reference.h"
#include "support/reference/value.h"
#include "tests/cpp/harness/harness.h"

namespace engine_test {

using harness::fail;

using Bytes = std::vector<unsigned char>;

// How far apart results may be: relative to the larger of the value and `scale`. 0: the same bits (but any NaN is one).
struct Tolerance {
  double relative = 0, scale = 0;
};

class Case {
 public:
  npu_command c{};
  std::vector<npu_operand> operands;
  std::vector<npu_scalar> params;
  std::vector<Bytes> memory;  // blocks
  std::vector<int> block_of;  // of each operand; -1: immediate
  npu::Program program;
  bool has_program = false;

  explicit Case(int kind, std::vector<int64_t> size = {}, int inner = 0) {
    c.struct_size = sizeof c;
    c.kind = static_cast<uint8_t>(kind);
    c.rank = static_cast<uint8_t>(size.size());
    c.inner_rank = static_cast<uint8_t>(inner);
    for (size_t d = 0; d < size.size(); ++d) c.size[d] = size[d];
  }
  Case& with(npu::Program p) {
    program = std::move(p);
    has_program = true;
    return *this;
  }
  Case& with(const char* text) { return with(npu::parse(text)); }

  static constexpr npu_addr address(int block) { return (npu_addr(block) + 1) << 36; }

  // An operand in block `block`, its element (0, ..., 0) at element `first` of it.
  npu_operand& add(int block, int dtype, const std::vector<int64_t>& stride, int64_t first = 0) {
    npu_operand o{};
    o.addr = address(block) + static_cast<uint64_t>(first * npu::dtype_size(dtype));
    o.dtype = static_cast<uint8_t>(dtype);
    for (size_t d = 0; d < stride.size(); ++d) o.stride[d] = stride[d];
    operands.push_back(o);
    block_of.push_back(block);
    return operands.back();
  }
  npu_operand& immediate(int dtype, uint64_t bits) {
    npu_operand o{};
    o.addr = bits;
    o.dtype = static_cast<uint8_t>(dtype);
    o.flags = NPU_OPERAND_IMMEDIATE;
    operands.push_back(o);
    block_of.push_back(-1);
    return operands.back();
  }
  int block(int64_t elements, int dtype) {
    memory.emplace_back(static_cast<size_t>(elements * npu::dtype_size(dtype)));
    return static_cast<int>(memory.size()) - 1;
  }
  template <class T>
  int block(const std::vector<T>& values) {
    memory.emplace_back(values.size() * sizeof(T));
    std::memcpy(memory.back().data(), values.data(), memory.back().size());
    return static_cast<int>(memory.size()) - 1;
  }

  npu_status reference(std::vector<Bytes>& out, std::string& error) {
    out = memory;
    link();
    npu_program_desc desc = program.desc();
    auto translate = [&](npu_addr addr, uint64_t size, bool) -> void* {
      const uint64_t number = (addr >> 36) - 1, offset = addr & ((npu_addr(1) << 36) - 1);
      if (number >= out.size() || offset + size > out[number].size()) return nullptr;
      return out[number].data() + offset;
    };
    return npu::run_reference(c, has_program ? &desc : nullptr, translate, &error);
  }

  npu_status engine(std::vector<Bytes>& out, std::string& error) {
    out = memory;
    link();
    cmodel::Program compiled;
    compiled.source = program;
    if (has_program) compiled.plan = cmodel::make_plan(program);
    std::vector<cmodel::Operand> bound(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      cmodel::Operand& o = bound[i];
      o.dtype = operands[i].dtype;
      o.limit = operands[i].limit;
      std::memcpy(o.stride, operands[i].stride, sizeof o.stride);
      if (block_of[i] < 0) {
        o.immediate = true;
        o.bits = operands[i].addr;
        o.ptr = reinterpret_cast<char*>(&o.bits);
      } else {
        Bytes& block = out[block_of[i]];
        o.begin = reinterpret_cast<char*>(block.data());
        o.end = o.begin + block.size();
        o.ptr = o.begin + static_cast<int64_t>(operands[i].addr - address(block_of[i]));
      }
    }
    cmodel::Job job;
    job.command = c;
    job.program = has_program ? &compiled : nullptr;
    job.operands = bound.data();
    job.params = params.data();
    cmodel::Failure failure;
    cmodel::estimate_ns(job);
    const bool good = cmodel::run_kind(job, failure);
    error = failure.text;
    return good ? NPU_OK : failure.status;
  }

  // Empty if both agree, else what differs first.
  std::string compare(Tolerance tolerance = {}) {
    std::vector<Bytes> want, got;
    std::string want_error, got_error;
    const npu_status a = reference(want, want_error), b = engine(got, got_error);
    if (a == NPU_ERROR_INVALID) return "invalid case: " + want_error;
    if (a != b)
      return "status: expected " + std::to_string(a) + " " + want_error + ", got " + std::to_string(b) + " " +
             got_error;
    if (a != NPU_OK)
      return a == NPU_ERROR_INDEX && want_error != got_error ? "expected '" + want_error + "', got '" + got_error + "'"
                                                             : "";
    for (size_t k = 0; k < memory.size(); ++k) {
      int dtype = NPU_U8;
      for (size_t i = 0; i < operands.size(); ++i)
        if (block_of[i] == static_cast<int>(k)) dtype = operands[i].dtype;
      const std::string text = compare_block(want[k], got[k], dtype, tolerance);
      if (!text.empty()) return "block " + std::to_string(k) + ": " + text;
    }
    return {};
  }

 private:
  void link() {
    c.operands = operands.data();
    c.operand_count = static_cast<uint32_t>(operands.size());
    c.params = params.data();
    c.param_count = static_cast<uint32_t>(params.size());
  }
  static double as_double(const unsigned char* p, int dtype) { return npu::load_value(p, dtype, NPU_F64).f64; }
  static std::string compare_block(const Bytes& want, const Bytes& got, int dtype, Tolerance tolerance) {
    const size_t size = static_cast<size_t>(npu::dtype_size(dtype));
    for (size_t i = 0; i + size <= want.size(); i += size) {
      if (std::memcmp(&want[i], &got[i], size) == 0) continue;
      const double a = as_double(&want[i], dtype), b = as_double(&got[i], dtype);
      const bool real = dtype >= NPU_F16;
      if (real && std::isnan(a) && std::isnan(b)) continue;
      if (real && tolerance.relative > 0) {
        if (a == b) continue;
        const double room = tolerance.relative * std::max(std::fabs(a), tolerance.scale);
        if (std::fabs(a - b) <= room) continue;
      }
      char text[160];
      std::snprintf(text, sizeof text, "element %zu (%s): expected %.17g, got %.17g", i / size, npu::dtype_name(dtype),
                    a, b);
      return text;
    }
    return {};
  }
};

inline void expect(Case& k, const std::string& what, Tolerance tolerance = {}) {
  const std::string text = k.compare(tolerance);
  if (!text.empty()) fail(what + ": " + text);
}

}  // namespace engine_test
