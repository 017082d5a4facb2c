// What the tests of support/ share: a device memory with gaps, commands that are easy to write, the examples of isa.md.
#pragma once
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "support/program/program.h"
#include "support/program/validate.h"
#include "support/reference/reference.h"
#include "tests/cpp/harness/harness.h"

namespace harness {

std::string isa_page();                             // the text of docs/isa.md
npu::Program isa_program(const std::string& name);  // one of its examples

template <typename T>
constexpr int dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return NPU_BOOL;
  if constexpr (std::is_same_v<T, uint8_t>) return NPU_U8;
  if constexpr (std::is_same_v<T, int8_t>) return NPU_I8;
  if constexpr (std::is_same_v<T, uint16_t>) return NPU_U16;
  if constexpr (std::is_same_v<T, int16_t>) return NPU_I16;
  if constexpr (std::is_same_v<T, uint32_t>) return NPU_U32;
  if constexpr (std::is_same_v<T, int32_t>) return NPU_I32;
  if constexpr (std::is_same_v<T, uint64_t>) return NPU_U64;
  if constexpr (std::is_same_v<T, int64_t>) return NPU_I64;
  if constexpr (std::is_same_v<T, float>) return NPU_F32;
  return NPU_F64;
}

// A device memory: blocks far apart, so that every stray access is refused.
class Arena {
 public:
  npu_addr add(const void* data, size_t bytes) {
    const npu_addr addr = next_;
    next_ += (bytes + 0xffff) & ~npu_addr{0xfff};
    const auto* from = static_cast<const unsigned char*>(data);
    blocks_[addr].assign(from, from + bytes);
    return addr;
  }
  template <typename T>
  npu_addr put(const std::vector<T>& values) {
    std::vector<unsigned char> bytes;  // element by element, because of vector<bool>
    for (const T value : values) {
      bytes.resize(bytes.size() + sizeof(T));
      std::memcpy(&bytes[bytes.size() - sizeof(T)], &value, sizeof(T));
    }
    return add(bytes.data(), bytes.size());
  }
  template <typename T>
  std::vector<T> get(npu_addr addr) {
    const auto& block = blocks_.at(addr);
    std::vector<T> out;
    for (size_t at = 0; at < block.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, &block[at], sizeof(T));
      out.push_back(value);
    }
    return out;
  }
  void* translate(npu_addr addr, uint64_t size) {
    auto block = blocks_.upper_bound(addr);
    if (block == blocks_.begin()) return nullptr;
    --block;
    const uint64_t offset = addr - block->first;
    return offset + size <= block->second.size() ? block->second.data() + offset : nullptr;
  }

 private:
  npu_addr next_ = 0x100000;
  std::map<npu_addr, std::vector<unsigned char>> blocks_;
};

class Command {
 public:
  Arena arena;
  npu_command c{};
  std::vector<npu_operand> operands;
  std::vector<npu_scalar> params;
  npu::Program program;
  bool has_program = false;
  std::string error;

  Command(int kind, std::vector<int64_t> size, int inner = 0) {
    c.struct_size = sizeof(c);
    c.kind = static_cast<uint8_t>(kind);
    c.rank = static_cast<uint8_t>(size.size());
    c.inner_rank = static_cast<uint8_t>(inner);
    for (size_t d = 0; d < size.size(); ++d) c.size[d] = size[d];
  }
  Command& with(npu::Program p) {
    program = std::move(p);
    has_program = true;
    return *this;
  }
  Command& with(const std::string& text) { return with(npu::parse(text)); }
  // An operand at `addr`, with a stride for each dimension.
  npu_operand& at(npu_addr addr, int dtype, std::vector<int64_t> stride) {
    npu_operand operand{};
    operand.addr = addr;
    operand.dtype = static_cast<uint8_t>(dtype);
    for (size_t d = 0; d < stride.size(); ++d) operand.stride[d] = stride[d];
    operands.push_back(operand);
    return operands.back();
  }
  template <typename T>
  npu_operand& in(const std::vector<T>& values, std::vector<int64_t> stride, int dtype = dtype_of<T>()) {
    return at(arena.put(values), dtype, std::move(stride));
  }
  template <typename T>
  npu_operand& immediate(T value) {
    npu_operand& operand = at(0, dtype_of<T>(), {});
    operand.flags = NPU_OPERAND_IMMEDIATE;
    std::memcpy(&operand.addr, &value, sizeof(T));
    return operand;
  }
  Command& f(double value) {
    npu_scalar scalar;
    scalar.f = value;
    params.push_back(scalar);
    return *this;
  }
  Command& i(int64_t value) {
    npu_scalar scalar;
    scalar.i = value;
    params.push_back(scalar);
    return *this;
  }
  void link() {
    c.operands = operands.data();
    c.operand_count = static_cast<uint32_t>(operands.size());
    c.params = params.empty() ? nullptr : params.data();
    c.param_count = static_cast<uint32_t>(params.size());
  }
  std::string check() {
    link();
    npu_program_desc desc = program.desc();
    return npu::validate_command(c, has_program ? &desc : nullptr);
  }
  npu_status run() {
    link();
    npu_program_desc desc = program.desc();
    return npu::run_reference(
        c, has_program ? &desc : nullptr,
        [this](npu_addr addr, uint64_t size, bool) { return arena.translate(addr, size); }, &error);
  }
  // The contents of the block that operand `index` starts at, after a run that must succeed.
  template <typename T>
  std::vector<T> result(size_t index) {
    if (run() != NPU_OK) report(__FILE__, __LINE__, "expected the command to succeed, got: " + error);
    return arena.get<T>(operands[index].addr);
  }
};

}  // namespace harness
