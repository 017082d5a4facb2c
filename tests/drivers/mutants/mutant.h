// A mutant: the reference as a driver that works beside the host, with one bug. npu-driver-test must find each
// (tests/drivers/test_mutants.py).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "npu/runtime.h"
#include "support/program/rewrite.h"
#include "support/reference/reference.h"

namespace mutant {

// A command that is about to run, with copies of all it needs.
struct Work {
  npu_command command{};
  std::vector<npu_operand> operands;
  std::vector<npu_scalar> params;
  npu::Program program;
  bool has_program = false;
  npu::Translate translate;

  int kind() const { return command.kind; }
  int64_t& size(int from_the_last) { return command.size[command.rank - 1 - from_the_last]; }
  int64_t& stride(size_t operand, int from_the_last) {
    return operands[operand].stride[command.rank - 1 - from_the_last];
  }
  // COPY becomes a MAP, and a product gets a program that stores its sum.
  void need_program();
  void rewrite(const npu::Rewrite::Visit& visit);
  // Whether the program stores to the operand; without one, whether the command does.
  bool writes(size_t operand) const;
  unsigned char* element(size_t operand, int64_t offset) const;
};

npu_status run_right(Work& work, std::string* why);

struct Bug {
  const char* name;
  const char* command;  // what a message about it must name: a command or a function of the contract
  const char* what;
  const char* looks;                                // part of the explanation that fits; "" where none is asked for
  npu_status (*run)(Work& work, std::string* why);  // null: it is in the driver itself
};

// All of them, room by room.
const std::vector<Bug>& bugs();
std::vector<Bug> value_bugs();
std::vector<Bug> layout_bugs();
std::vector<Bug> product_bugs();
std::vector<Bug> row_bugs();
std::vector<Bug> driver_bugs();

// Whether this process has that bug: option bug=NAME.
bool has(std::string_view bug);
extern const Bug* current;

}  // namespace mutant
