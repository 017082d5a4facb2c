// Programs and commands.
#include "drivers/rtl/lower/lower.h"
#include "drivers/rtl/observe/observer.h"
#include "support/program/validate.h"

namespace rtl {

Lowering::Lowering(npu_device* device, const npu_command& command, const npu::Program* program, bool dry)
    : device_(device),
      command_(command),
      operands_(command.operands, command.operands + command.operand_count),
      program_(program),
      dry_(dry) {
  command_.operands = operands_.data();
  space_.rank = command.rank;
  for (int d = 0; d < space_.rank; d++) space_.size[d] = dry ? 1 : command.size[d];
}

void Lowering::run() {
  switch (command_.kind) {
    case NPU_COPY:
      return lower_copy();
    case NPU_MAP:
    case NPU_REDUCE:
    case NPU_SCAN:
    case NPU_SCATTER:
      return lower_program(nullptr);
    case NPU_MATMUL:
      return lower_matmul();
    case NPU_CONV:
      return lower_conv();
    default:
      throw Unsupported{"commands of this kind"};
  }
}

namespace {

std::string what(const npu_command& command) {
  return std::string(npu::command_name(command.kind)) + (command.label ? std::string(" (") + command.label + ")" : "");
}

// Lowers, or says why not.
npu_status lower(npu_device* device, const npu_command* command, bool dry, std::vector<Packet>* out = nullptr,
                 std::vector<Check>* checks = nullptr) {
  if (!device || !command) return error(NPU_ERROR_INVALID, "expected a command, got a null pointer");
  const npu_program* program = command->program;
  const npu_program_desc desc = program ? program->program.desc() : npu_program_desc{};
  if (const std::string problem = npu::validate_command(*command, program ? &desc : nullptr); !problem.empty())
    return error(NPU_ERROR_INVALID, what(*command) + ": " + problem);
  bool empty = false;
  for (int d = 0; d < command->rank; d++) empty |= command->size[d] == 0;
  bool no_rows = false;
  for (int d = 0; d + command->inner_rank < command->rank; d++) no_rows |= command->size[d] == 0;
  if (empty && !dry && command->kind == NPU_REDUCE && !no_rows)
    return error(NPU_UNSUPPORTED, what(*command) + ": the NPU does not have folds over nothing");
  if (empty && !dry) return lower(device, command, true);  // nothing to do, if it can be done at all
  try {
    Lowering lowering(device, *command, program ? &program->program : nullptr, dry);
    lowering.run();
    if (out) *out = std::move(lowering.packets);
    if (checks) *checks = std::move(lowering.checks);
    return NPU_OK;
  } catch (const Unsupported& why) {
    return error(NPU_UNSUPPORTED, what(*command) + ": the NPU does not have " + why.text);
  } catch (const Refused& why) {
    return error(why.status, what(*command) + ": " + why.text);
  }
}

// What a CHECK packet found, from the words that are still in the NPU's memory.
Failure explain(npu_device& device, const Check& check, const Failure& failure) {
  int64_t coordinate[NPU_MAX_RANK] = {};
  auto rest = static_cast<int64_t>(failure.element);
  for (int d = check.space.rank - 1; d >= 0; d--) {
    coordinate[d] = rest % check.space.size[d];
    rest /= check.space.size[d];
  }
  const auto word = [&](const View& view) {
    uint32_t bits = view.bits;
    uint64_t addr = view.addr;
    for (int d = 0; d < check.space.rank; d++) addr += static_cast<uint64_t>(coordinate[d] * view.stride[d]);
    if (!view.immediate) device.processor->board().read_memory(&bits, addr, sizeof bits);
    return bits;
  };
  const auto index = std::to_string(static_cast<int64_t>(uint64_t{word(check.high)} << 32 | word(check.index)));
  const std::string size = check.size < 0 ? "its dimension" : std::to_string(check.size);
  if (check.status == NPU_ERROR_INDEX)
    return {check.status, "index " + index + " is out of bounds for dimension with size " + size};
  return {check.status, "expected a computed address inside the operand, got element " + index + " of " + size};
}

}  // namespace
}  // namespace rtl

namespace npu::driver {
using namespace rtl;

npu_status program_create(npu_device* device, const npu_program_desc* desc, npu_program** out) {
  if (!device || !desc || !out) return error(NPU_ERROR_INVALID, "expected a program, got a null pointer");
  if (const std::string problem = npu::validate(*desc); !problem.empty())
    return error(NPU_ERROR_INVALID, std::string("program '") + (desc->name ? desc->name : "") + "': " + problem);
  *out = device->programs.add(std::unique_ptr<npu_program>(new npu_program{device, Program::copy_of(*desc)}));
  return NPU_OK;
}

void program_destroy(npu_program* program) {
  if (program) program->device->programs.destroy(program);
}

npu_status supports(npu_device* device, const npu_command* command) {
  return lower(device, command, true);
}

npu_status submit(npu_stream* stream, const npu_command* command) {
  if (!stream) return error(NPU_ERROR_INVALID, "expected a stream, got a null pointer");
  npu_device* device = stream->device;
  std::vector<Packet> packets;
  std::vector<Check> checks;
  const npu_status status = lower(device, command, false, &packets, &checks);
  if (status != NPU_OK || packets.empty()) return status;
  Observed seen{npu::command_name(command->kind), command->label ? command->label : "", device->index};
  device->give(stream, what(*command),
               [device, seen, packets = std::move(packets), checks = std::move(checks)]() mutable {
                 Failure failure = run_observed(*device->processor, seen, packets);
                 for (const Check& check : checks)
                   if (failure.status == NPU_ERROR_INDEX && check.packet == failure.packet)
                     failure = explain(*device, check, failure);
                 return failure;
               });
  return NPU_OK;
}

}  // namespace npu::driver
