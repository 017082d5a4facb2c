#include "csrc/core/observe/sanitizer/touches.h"

#include <algorithm>

#include "csrc/core/observe/sanitizer/computed.h"
#include "support/program/accesses.h"
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

void add_instruction(std::vector<Touch>& touches, const npu_command& command, const npu_program_desc& program,
                     const npu::Access& access, Computed& computed) {
  const npu_operand& operand = command.operands[access.operand];
  if (is_immediate(operand) || !has_points(command.size, access.rank)) return;
  const auto points = [&] {
    return Bytes(Box(operand.addr, command.size, operand.stride, access.rank, width_of(operand)));
  };
  Touch touch{access.operand, access.write, false, {}};
  touch.instruction = access.instruction;
  touch.is_choice = program.instrs[access.instruction].op == NPU_OP_LOAD && computed.is_choice(touch.instruction);
  if (!access.computed && !access.masked) {
    touch.bytes = points();
  } else if (std::optional<Bytes> found = computed.touched(access.instruction, access.rank)) {
    touch.bytes = std::move(*found);
  } else {
    touch.unsure = true;
    const auto elements = static_cast<uint64_t>(std::max<int64_t>(operand.limit, 1));
    touch.bytes = access.computed ? Bytes(Run{operand.addr, operand.addr + elements * width_of(operand)}) : points();
  }
  if (touch.bytes.empty()) return;
  if (access.meets) {
    touch.write = false;
    touches.push_back(touch);
    touch.write = true;
  }
  touches.push_back(std::move(touch));
}

// The operand of a convolution that is read where some kernel position meets it; none: 2.
uint32_t image_of(const npu_command& command) {
  if (command.kind != NPU_CONV) return 2;
  const uint32_t mode = command.u.conv.mode;
  return mode == NPU_CONV_FORWARD ? 0 : mode == NPU_CONV_GRAD_WEIGHT ? 1 : 2;
}

int rank_of_segment(const npu_command& command, const npu_program_desc& program, uint32_t id) {
  while (program.instrs[id].op != NPU_OP_SEGMENT) --id;
  return npu::segment_rank(command, program.instrs[id].imm);
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
  const bool product = command.kind == NPU_MATMUL || command.kind == NPU_CONV;
  if (product && !has_points(command.size, command.rank)) return touches;
  std::optional<Computed> computed;
  if (program) computed.emplace(command, *program, read);
  for (const npu::Access& access : npu::accesses_of(command, program)) {
    if (access.instruction != NPU_NO_VALUE) {
      add_instruction(touches, command, *program, access, *computed);
    } else if (!access.write && access.operand == image_of(command)) {
      add_image(touches, command, access.operand);
    } else {
      add_all(touches, command, access.operand, access.write);
    }
  }
  return touches;
}

}  // namespace torch_npu::sanitizer
