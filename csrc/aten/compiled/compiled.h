// Commands that a compiler wrote (torch_npu/compile). What is known when a graph is compiled, the program and the form
// of the call, is prepared once; tensors and sizes come with each call.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <string>
#include <vector>

#include "csrc/core/launch/launch.h"

namespace torch_npu {

class CompiledKernel {
 public:
  // A number that is known, or the call's number `argument`.
  struct Number {
    npu_scalar value{};
    int argument = -1;
  };
  struct Operand {
    int tensor = 0;  // of the call
    Number offset;   // in elements, from the tensor's first
    std::vector<Number> strides;
  };
  struct Spec {
    std::string name;
    npu_command_kind kind = NPU_MAP;
    int inner_rank = 0;
    int tensors = 0;
    int numbers = 0;
    std::vector<Number> sizes;
    std::vector<Operand> operands;
    std::vector<Number> params;
    std::string program;  // text form; empty for a MATMUL or CONV that stores its sums
    Number k;             // MATMUL
    // CONV: mode, batch, in_channels, out_channels, groups, then in_size, out_size, kernel, stride, padding and
    // dilation, each with as many numbers as there are spatial dimensions.
    std::vector<Number> geometry;
  };

  // map, reduce, scan, scatter, matmul, conv.
  static npu_command_kind kind_of(const std::string& name);

  // Throws c10::ValueError if the program or the spec breaks a rule of docs/isa.md. Touches no device.
  explicit CompiledKernel(const Spec& spec);

  int tensors() const { return tensors_; }
  int numbers() const { return numbers_; }
  const char* name() const { return command_.label; }

  // One command on the current stream of the tensors' device. A CPU tensor without dimensions travels as an immediate.
  // Where the driver refuses, it runs on the host (core/host_executor.h) and the fallback report counts
  // "compiled::<name>".
  void run(const at::Tensor* const* tensors, const npu_scalar* numbers) const;

  // Choices (npu_driver::choices), for whoever measures. `choice` goes into every later command; 0: the driver decides.
  int choice() const { return choice_.load(std::memory_order_relaxed); }
  void set_choice(int choice);  // throws c10::ValueError if it is not 0 to 255
  // What the driver announces for this call; nothing if it has no choices or does not run the command.
  std::vector<npu_choice> choices(const at::Tensor* const* tensors, const npu_scalar* numbers) const;
  // What a time depends on, in words: kind, sizes, types, strides and a hash of the program.
  std::string signature(const at::Tensor* const* tensors, const npu_scalar* numbers) const;
  std::vector<int> written() const;  // numbers of the tensors that the command writes

 private:
  struct Call;
  // Fills in what comes with the call. False: there is no point to run at.
  bool complete(const at::Tensor* const* tensors, const npu_scalar* numbers, Call& call) const;
  struct Fixup {  // a number of the call goes into field `at` of the command or of an operand
    int operand;  // -1: size, -2: param, -3: k, -4: geometry
    int at;       // dimension, or number; for an operand, -1 is the offset
    int argument;
  };
  void set_geometry(const Spec& spec);
  void run_on_host(const npu_command& command, const at::Tensor* const* tensors) const;

  friend std::string check_program(const std::string& text);
  struct SharedProgram;
  SharedProgram* program_ = nullptr;
  npu_command command_{};
  std::atomic<uint8_t> choice_{0};
  int tensors_;
  int numbers_;
  std::vector<npu_operand> operands_;  // addr: the offset in elements, until a call adds the tensor's address
  std::vector<int> operand_tensors_;
  std::vector<npu_scalar> params_;
  std::vector<Fixup> fixups_;
};

// Empty if the text is a valid program, else what is wrong with it. A kernel of the text does not look again.
std::string check_program(const std::string& text);

}  // namespace torch_npu
