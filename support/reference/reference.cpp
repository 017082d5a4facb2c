#include "support/reference/reference.h"

#include "support/program/program.h"
#include "support/program/validate.h"
#include "support/reference/machine.h"

namespace npu {
namespace {

npu_status refuse(std::string text, std::string* error) {
  if (error) *error = std::move(text);
  return NPU_ERROR_INVALID;
}

void run(const npu_command& command, const npu_program_desc* program, const Translate& translate) {
  Memory memory(command, translate);
  switch (command.kind) {
    case NPU_COPY:
      return run_copy(command, memory);
    case NPU_SORT:
      return run_sort(command, memory);
    case NPU_MATMUL:
      return run_matmul(command, program, memory);
    case NPU_CONV:
      return run_conv(command, program, memory);
    case NPU_REDUCE:
    case NPU_SCAN:
      return Machine(command, *program, memory).run(command.inner_rank);
    default:  // one row that is the whole index space
      return Machine(command, *program, memory).run(command.rank);
  }
}

}  // namespace

void run_copy(const npu_command& command, Memory& memory) {
  if (points(command.size, command.rank) == 0) return;
  memory.expect_space(0, command.size, command.rank, true);
  memory.expect_space(1, command.size, command.rank, false);
  const bool same = memory.dtype(0) == memory.dtype(1);
  const int via = compute_dtype(memory.dtype(1));
  int64_t point[NPU_MAX_RANK] = {};
  do {
    const int64_t from = offset_of(point, command.operands[1].stride, command.rank);
    const int64_t to = offset_of(point, command.operands[0].stride, command.rank);
    if (same)
      memory.copy(0, to, 1, from);
    else
      memory.store(0, to, memory.load(1, from, via), via);
  } while (next_point(point, command.size, command.rank));
}

npu_status run_reference(const npu_command& command, const npu_program_desc* program, const Translate& translate,
                         std::string* error) {
  if (program) {
    std::string broken = validate(*program);
    if (!broken.empty()) return refuse(std::move(broken), error);
    if (program->param_count && (!command.params || command.param_count < program->param_count))
      return refuse("expected " + std::to_string(program->param_count) + " parameters, got " +
                        std::to_string(command.params ? command.param_count : 0),
                    error);
  }
  std::string broken = validate_command(command, program);
  if (!broken.empty()) return refuse(std::move(broken), error);
  try {
    run(command, program, translate);
    return NPU_OK;
  } catch (const Failure& failure) {
    if (error) *error = failure.text;
    return failure.status;
  } catch (const std::bad_alloc&) {
    if (error) *error = "expected host memory for the reference, got none";
    return NPU_ERROR_INTERNAL;
  }
}

}  // namespace npu
