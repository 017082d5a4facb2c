// A command with memory of its own on the host, on which the reference runs: for expected results, for what the result
// was before it was stored, and for what a driver with a certain bug would have computed.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "support/program/program.h"
#include "tools/driver_test/frame/rig.h"

namespace driver_test {

struct Buffer {
  int dtype = 0;
  int64_t elements = 0;
  Bytes bytes;
  npu_addr addr = 0;
};

void put(Buffer& buffer, int64_t element, double value);
double take(const Buffer& buffer, int64_t element);
uint64_t bits_of(const Buffer& buffer, int64_t element);

// Where an operand lies: element `offset` of a buffer. Buffer -1: it is an immediate.
struct Place {
  int buffer = -1;
  int64_t offset = 0;
};

struct View {
  npu_command command{};
  std::optional<npu::Program> program;
  std::vector<npu_operand> operands;
  std::vector<npu_scalar> params;
  std::vector<Buffer> buffers;
  std::vector<Place> places;  // of each operand

  // Floats that are narrower than F64 become F64, so that a store rounds nothing.
  void widen();
  // Every number becomes its absolute value.
  void make_absolute();
  // Operands, params and counts of the command follow the vectors above; addresses follow the buffers'.
  void link();
  // Runs the command as docs/isa.md says: on the buffers at the addresses they have, or at some of its own.
  npu_status run_reference(std::string* error = nullptr);
  npu_status run_apart(std::string* error = nullptr);
};

}  // namespace driver_test
