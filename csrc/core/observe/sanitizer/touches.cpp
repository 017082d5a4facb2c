#include "csrc/core/observe/sanitizer/touches.h"

#include <algorithm>

#include "csrc/core/observe/sanitizer/computed.h"
#include "support/program/operand_shape.h"
#include "support/program/program.h"

namespace torch_npu::sanitizer {
namespace {

bool is_immediate(const npu_operand& operand) {
  return operand.flags & NPU_OPERAND_IMMEDIATE;
}

uint64_t width_of(const npu_operand& operand) {
  return static_cast<uint64_t>(npu::dtype_size(operand.dtype));
}

bool has_points(const int64_t* size, int rank) {
  return std::all_of(size, size + rank, [](int64_t extent) { return extent > 0; });
}

void add_all(std::vector<Touch>& touches, const npu_command& command, uint32_t operand, bool write) {
  int64_t size[NPU_MAX_RANK];
  npu::operand_shape(command, operand, size);
  const npu_operand& place = command.operands[operand];
  if (is_immediate(place) || !has_points(size, command.rank)) return;
  touches.push_back({operand, write, false, Bytes(Box(place.addr, size, place.stride, command.rank, width_of(place)))});
}

// The positions of an image that some kernel position meets; the others take no part.
std::vector<int64_t> met_positions(const npu_conv& conv, int d) {
  std::vector<bool> met(static_cast<size_t>(conv.in_size[d]));
  for (int64_t out = 0; out < conv.out_size[d]; ++out) {
    for (int64_t tap = 0; tap < conv.kernel[d]; ++tap) {
      const int64_t in = out * conv.stride[d] - conv.padding[d] + tap * conv.dilation[d];
      if (in >= 0 && in < conv.in_size[d]) met[static_cast<size_t>(in)] = true;
    }
  }
  std::vector<int64_t> positions;
  for (size_t k = 0; k < met.size(); ++k) {
    if (met[k]) positions.push_back(static_cast<int64_t>(k));
  }
  return positions;
}

void add_image(std::vector<Touch>& touches, const npu_command& command, uint32_t operand) {
  const npu_conv& conv = command.u.conv;
  const npu_operand& place = command.operands[operand];
  int64_t size[NPU_MAX_RANK];
  npu::operand_shape(command, operand, size);
  if (is_immediate(place) || !has_points(size, command.rank)) return;
  const auto width = static_cast<int64_t>(width_of(place));
  std::vector<int64_t> offsets{0};  // in bytes, of the dimensions that are walked one by one
  for (int d = 0; d < static_cast<int>(conv.spatial_rank); ++d) {
    const std::vector<int64_t> met = met_positions(conv, d);
    if (static_cast<int64_t>(met.size()) == conv.in_size[d]) continue;
    std::vector<int64_t> longer;
    for (const int64_t offset : offsets) {
      for (const int64_t position : met) longer.push_back(offset + position * place.stride[2 + d] * width);
    }
    offsets.swap(longer);
    size[2 + d] = 1;
  }
  const Box box(place.addr, size, place.stride, command.rank, width_of(place));
  Touch touch{operand, false, false, {}};
  for (const int64_t offset : offsets) touch.bytes.add(box.moved(offset));
  if (!touch.bytes.empty()) touches.push_back(std::move(touch));
}

void add_program(std::vector<Touch>& touches, const npu_command& command, const npu_program_desc& program,
                 const ReadMemory& read) {
  Computed computed(command, program, read);
  int rank = command.rank;
  for (uint32_t id = 0; id < program.instr_count; ++id) {
    const npu_instr& in = program.instrs[id];
    if (in.op == NPU_OP_SEGMENT) rank = command.rank - (in.imm == NPU_SEGMENT_ROW ? command.inner_rank : 0);
    const bool at = in.op == NPU_OP_LOAD_AT || in.op == NPU_OP_STORE_AT;
    const bool write = in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT;
    if (!at && !write && in.op != NPU_OP_LOAD) continue;
    const npu_operand& operand = command.operands[in.imm];
    if (is_immediate(operand) || !has_points(command.size, rank)) continue;
    Touch touch{in.imm, write, false, {}};
    touch.instruction = static_cast<uint16_t>(id);
    touch.is_choice = in.op == NPU_OP_LOAD && computed.is_choice(touch.instruction);
    if (!at && in.mask == NPU_NO_VALUE) {
      touch.bytes = Bytes(Box(operand.addr, command.size, operand.stride, rank, width_of(operand)));
    } else if (std::optional<Bytes> found = computed.touched(static_cast<uint16_t>(id), rank)) {
      touch.bytes = std::move(*found);
    } else {
      touch.unsure = true;
      if (at && operand.limit > 0) {
        touch.bytes = Bytes(Run{operand.addr, operand.addr + static_cast<uint64_t>(operand.limit) * width_of(operand)});
      } else if (!at) {
        touch.bytes = Bytes(Box(operand.addr, command.size, operand.stride, rank, width_of(operand)));
      } else {
        touch.bytes = Bytes(Run{operand.addr, operand.addr + width_of(operand)});
      }
    }
    if (touch.bytes.empty()) continue;
    if (in.op == NPU_OP_STORE_AT && in.flags != NPU_STORE_SET) {  // meets what is there
      touch.write = false;
      touches.push_back(touch);
      touch.write = true;
    }
    touches.push_back(std::move(touch));
  }
}

int rank_of_segment(const npu_command& command, const npu_program_desc& program, uint32_t id) {
  while (program.instrs[id].op != NPU_OP_SEGMENT) --id;
  return command.rank - (program.instrs[id].imm == NPU_SEGMENT_ROW ? command.inner_rank : 0);
}

}  // namespace

Bytes used_bytes(const npu_command& command, const npu_program_desc& program, const ReadMemory& read,
                 const Touch& touch) {
  Computed computed(command, program, read);
  return computed.used(touch.instruction, rank_of_segment(command, program, touch.instruction)).value_or(Bytes());
}

Bytes unwritten_results(const npu_command& command, const npu_program_desc& program, const ReadMemory& read,
                        const std::function<bool(Run)>& is_written) {
  Computed computed(command, program, read);
  Bytes all;
  for (uint32_t id = 0; id < program.instr_count; ++id) {
    if (program.instrs[id].op != NPU_OP_STORE) continue;
    const auto bytes = computed.unwritten(static_cast<uint16_t>(id), rank_of_segment(command, program, id), is_written);
    if (!bytes) continue;
    bytes->each_run([&](const Run& run) {
      all.add(run);
      return true;
    });
  }
  all.finish();
  return all;
}

std::vector<Touch> touches_of(const npu_command& command, const npu_program_desc* program, const ReadMemory& read) {
  std::vector<Touch> touches;
  switch (command.kind) {
    case NPU_COPY:
      add_all(touches, command, 1, false);
      add_all(touches, command, 0, true);
      return touches;
    case NPU_SORT:
      for (const uint32_t operand : {0u, 1u, 2u, 3u}) add_all(touches, command, operand, operand >= 2);
      return touches;
    case NPU_MATMUL:
    case NPU_CONV: {
      if (!has_points(command.size, command.rank)) return touches;
      const bool conv = command.kind == NPU_CONV;
      const uint32_t image = !conv                                         ? 2
                             : command.u.conv.mode == NPU_CONV_FORWARD     ? 0
                             : command.u.conv.mode == NPU_CONV_GRAD_WEIGHT ? 1
                                                                           : 2;
      for (const uint32_t operand : {0u, 1u}) {
        if (operand == image) {
          add_image(touches, command, operand);
        } else {
          add_all(touches, command, operand, false);
        }
      }
      if (!program) add_all(touches, command, 2, true);
      break;
    }
    default:
      break;
  }
  if (program) add_program(touches, command, *program, read);
  return touches;
}

}  // namespace torch_npu::sanitizer
