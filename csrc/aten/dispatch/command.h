// One command in the making: what Rows, Nest, attention's Step and launches over an iterator (map.h) stand on, and what
// an op uses itself whose operands are plain tensors. It lies on the stack with room for as many operands and
// parameters as the contract allows; only those that are added are ever written.
//
//   Command command(NPU_MATMUL, "aten::mm", out.sizes());
//   command.add(a);
//   command.add(b);
//   command.add(out);
//   command->u.matmul.k = a.size(-1);
//   command.run();
//
// Operands and parameters are numbered in the order in which they are added. What the contract has no room for, or no
// type, throws Unsupported.
#pragma once
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include "csrc/aten/dispatch/types.h"
#include "csrc/core/launch/launch.h"

namespace torch_npu {

inline npu_scalar number(double value) {
  npu_scalar out;
  out.f = value;
  return out;
}
inline npu_scalar integer(int64_t value) {
  npu_scalar out;
  out.i = value;
  return out;
}

class Command {
 public:
  Command(npu_command_kind kind, const char* label);
  Command(npu_command_kind kind, const char* label, at::IntArrayRef sizes, int inner_rank = 0);
  // Over an iterator's index space. `parts` more than one: an innermost dimension of that size behind it.
  Command(npu_command_kind kind, const char* label, const at::TensorIteratorBase& iter, int64_t parts = 1);
  Command(const Command&) = delete;

  void set_device(c10::DeviceIndex device) { device_ = device; }
  void set_space(at::IntArrayRef sizes, int inner_rank = 0);

  // The next operand, with strides of 0.
  npu_operand& add(npu_addr addr, npu_dtype type) {
    npu_operand& operand = next();
    operand.addr = addr;
    operand.dtype = type;
    return operand;
  }
  npu_operand& add(const void* data, npu_dtype type) { return add(reinterpret_cast<npu_addr>(data), type); }
  // With the strides of the tensor, whose shape is the index space.
  npu_operand& add(const at::Tensor& tensor);
  // Argument `arg` of the iterator whose space this is, in words of `type`, of which its elements have `words`.
  npu_operand& add(const at::TensorIteratorBase& iter, int arg, npu_dtype type, int64_t words = 1);
  // The low bytes of `bits` everywhere.
  npu_operand& immediate(npu_dtype type, uint64_t bits);
  npu_operand& immediate(double value);

  void param(npu_scalar value);

  // Fields of the kind, and what a builder on top works out.
  npu_command* operator->() { return &command_; }
  const npu_command* operator->() const { return &command_; }
  npu_operand& operand(int number) { return operands_[number]; }
  c10::DeviceIndex device() const { return device_; }

  void run() { submit(device_, command_); }
  void run(DeviceProgram& program) {
    command_.program = program.on(device_);
    run();
  }

 private:
  npu_operand& next() {
    if (command_.operand_count == NPU_MAX_OPERANDS) [[unlikely]] {
      refuse();
    }
    npu_operand& operand = operands_[command_.operand_count++];
    operand = npu_operand{};
    return operand;
  }
  [[noreturn]] void refuse() const { throw Unsupported(command_.label); }

  npu_command command_{};
  c10::DeviceIndex device_ = -1;
  npu_operand operands_[NPU_MAX_OPERANDS];
  npu_scalar params_[NPU_MAX_PARAMS];
};

}  // namespace torch_npu
