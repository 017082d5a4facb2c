// A MAP over one dimension, outside of the comparison with the reference: for commands that shall fail.
#pragma once
#include "tools/driver_test/command/builder.h"
#include "tools/driver_test/frame/rig.h"

namespace driver_test {

struct Line {
  Rig& rig;
  npu_program* program = nullptr;
  std::vector<npu_operand> operands;  // `n` elements in memory of their own, stride 1
  npu_command command{};

  // Throws NotSupported if the driver does not have the program.
  Line(Rig& rig, const Builder& builder, int64_t n, const std::vector<int>& dtypes, const char* label);
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // Throws NotSupported if the driver does not run the command.
  void submit(npu_stream* stream = nullptr) const;
  npu_status run() const;  // what submit says, or what the synchronisation behind it does
};

}  // namespace driver_test
