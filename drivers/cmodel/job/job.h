// A command after the runtime has checked it: addresses are host pointers into the simulated memory, everything it
// needs is owned or outlives it. The engine (map, reduce, ...) sees only this.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "npu/command.h"
#include "npu/runtime.h"
#include "support/program/program.h"

namespace cmodel {

class Memory;
struct Plan;  // what the engine works out once per program (plan.h): liveness, slots, special cases

// A program of one device. Immutable after creation, shared by queued jobs, so destroying the handle is always safe.
struct Program {
  npu::Program source;
  std::shared_ptr<const Plan> plan;
};

struct Operand {
  char* ptr = nullptr;    // element (0, ..., 0); for an immediate, the value's bytes (kept in `bits`)
  char* begin = nullptr;  // the live allocation that holds it: what load_at and store_at may touch
  char* end = nullptr;
  int64_t limit = 0;  // npu_operand::limit: load_at and store_at stay in [ptr, ptr + limit elements)
  uint64_t bits = 0;
  uint8_t dtype = 0;
  bool immediate = false;
  // Not null: begin and end are those of a region, of which parts are live. Masks say which points are touched.
  const Memory* parts = nullptr;
  int64_t stride[NPU_MAX_RANK] = {};  // in elements; 0 throughout for an immediate
};

struct Job {
  npu_command command{};  // operands, params and program pointers inside are NOT valid: use the fields below
  const Program* program = nullptr;
  const Operand* operands = nullptr;
  const npu_scalar* params = nullptr;
};

struct Failure {
  npu_status status = NPU_OK;
  std::string text;
};

// Do the operand's elements lie one behind the other in row-major order over the command's sizes?
inline bool is_contiguous(const npu_command& command, const Operand& operand) {
  int64_t expected = 1;
  for (int d = command.rank - 1; d >= 0; --d) {
    if (command.size[d] == 1) continue;
    if (operand.stride[d] != expected) return false;
    expected *= command.size[d];
  }
  return true;
}

// Is every stride (of a dimension larger than 1) zero?
inline bool is_one_value(const npu_command& command, const Operand& operand) {
  if (operand.immediate) return true;
  for (int d = 0; d < command.rank; ++d)
    if (command.size[d] > 1 && operand.stride[d] != 0) return false;
  return true;
}

// Points of the command's index space.
inline int64_t points_of(const npu_command& command) {
  int64_t points = 1;
  for (int d = 0; d < command.rank; ++d) points *= command.size[d];
  return points;
}

// "MAP (aten::add)"
inline std::string describe(const npu_command& command) {
  std::string text = npu::command_name(command.kind);
  if (command.label) text += std::string(" (") + command.label + ")";
  return text;
}

// The engine. Each runs the job to its end on the calling thread and the pool; false: see `failure`.
// Jobs are valid (npu::validate_command) and every affine access lies inside live allocations.
bool run_copy(const Job& job, Failure& failure);
bool run_map(const Job& job, Failure& failure);  // MAP and SCATTER
bool run_reduce(const Job& job, Failure& failure);
bool run_scan(const Job& job, Failure& failure);
bool run_sort(const Job& job, Failure& failure);
bool run_matmul(const Job& job, Failure& failure);
bool run_conv(const Job& job, Failure& failure);
bool run_kind(const Job& job, Failure& failure);  // the one of these that the command's kind asks for

// Applies an epilogue program to a block of results of MATMUL or CONV: rows `row0 .. row0 + rows` and columns
// `col0 .. col0 + cols` of the last two dimensions of the command's index space, at outer coordinates `outer`
// (rank - 2 of them). `acc` holds rows x cols accumulator values of type acc_dtype, `ld` apart. Single-threaded.
void run_epilogue(const Job& job, const int64_t* outer, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                  const void* acc, int64_t ld, int acc_dtype);

std::shared_ptr<const Plan> make_plan(const npu::Program& program);

// A rough cost of the job in nanoseconds on one core: decides between running inline and queueing. Cheap.
int64_t estimate_ns(const Job& job);

}  // namespace cmodel
