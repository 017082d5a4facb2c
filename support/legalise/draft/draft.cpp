#include "support/legalise/draft/draft.h"

#include <algorithm>

#include <utility>
#include "support/legalise/draft/ranges.h"

namespace npu::legalise {

uint64_t part_of(uint64_t bits, Part part) {
  return part == Part::kWhole ? bits : part == Part::kLow ? bits & 0xffffffff : bits >> 32;
}

Operand Operand::moved(int64_t elements) const {
  return immediate() ? *this : moved_bytes(elements * dtype_size(form.dtype));
}

Operand Operand::moved_bytes(int64_t bytes) const {
  Operand out = *this;
  if (place.kind == Place::kLiteral)
    out.form.addr >>= 8 * bytes;
  else
    out.place.offset += bytes;
  if (!immediate()) out.skew = static_cast<uint8_t>((skew + bytes) & (kAlignment - 1));
  return out;
}

Draft::Draft(npu_command_kind kind, const std::vector<int64_t>& size, int inner_rank) : Draft() {
  command.kind = static_cast<uint8_t>(kind);
  command.rank = static_cast<uint8_t>(size.size());
  command.inner_rank = static_cast<uint8_t>(inner_rank);
  std::copy(size.begin(), size.end(), command.size);
}

int64_t Draft::points() const {
  int64_t points = 1;
  for (int d = 0; d < command.rank; ++d) points *= command.size[d];
  return points;
}

Draft draft_of(const npu_command& command, std::shared_ptr<const Program> program) {
  Draft draft;
  draft.command = command;
  draft.command.operands = nullptr;
  draft.command.params = nullptr;
  draft.command.program = nullptr;
  draft.command.choice = 0;
  draft.program = std::move(program);
  for (uint32_t k = 0; k < command.operand_count; ++k) {
    Operand& operand = draft.operands.emplace_back();
    operand.form = command.operands[k];
    operand.form.addr = 0;
    operand.place = {Place::kOperand, k, 0};
    if (!operand.immediate()) operand.skew = static_cast<uint8_t>(command.operands[k].addr & (kAlignment - 1));
  }
  for (uint32_t k = 0; k < command.param_count; ++k) draft.params.push_back({static_cast<int>(k), {}});
  if (command.kind == NPU_SCATTER && command.params && draft.program)
    for (const uint32_t k : params_of_offsets(*draft.program))
      draft.params[k] = {static_cast<int>(k), command.params[k], true};
  return draft;
}

std::vector<uint32_t> aliases_of(const npu_command& command) {
  std::vector<uint32_t> out(command.operand_count);
  const auto memory = [&](uint32_t k) { return !(command.operands[k].flags & NPU_OPERAND_IMMEDIATE); };
  for (uint32_t k = 0; k < command.operand_count; ++k) {
    out[k] = k;
    for (uint32_t other = 0; other < k && memory(k) && out[k] == k; ++other)
      if (memory(other) && command.operands[other].addr == command.operands[k].addr) out[k] = other;
  }
  return out;
}

Bound::Bound(const Draft& draft, const npu_command& refused, const std::vector<npu_addr>& scratch)
    : command(draft.command) {
  for (size_t k = 0; k < draft.operands.size(); ++k) {
    const Place& place = draft.operands[k].place;
    operands[k] = draft.operands[k].form;
    const auto offset = static_cast<uint64_t>(place.offset);
    if (place.kind == Place::kScratch) operands[k].addr = scratch[place.number] + offset;
    if (place.kind != Place::kOperand) continue;
    const npu_addr there = part_of(refused.operands[place.number].addr, place.part);
    operands[k].addr = draft.operands[k].immediate() ? there >> (8 * offset) : there + offset;
  }
  for (size_t k = 0; k < draft.params.size(); ++k) {
    const Param& param = draft.params[k];
    params[k] = param.value;
    if (param.from >= 0) params[k].u = part_of(refused.params[param.from].u, param.part);
  }
  command.operands = operands;
  command.operand_count = static_cast<uint32_t>(draft.operands.size());
  command.params = params;
  command.param_count = static_cast<uint32_t>(draft.params.size());
  command.label = refused.label;
}

Draft copy(const std::vector<int64_t>& size, const Operand& to, const Operand& from) {
  Draft draft(NPU_COPY, size);
  draft.operands = {to, from};
  return draft;
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& size) {
  std::vector<int64_t> strides(size.size());
  int64_t step = 1;
  for (size_t d = size.size(); d-- > 0; step *= size[d]) strides[d] = step;
  return strides;
}

void set_strides(npu_operand& form, const std::vector<int64_t>& strides) {
  std::fill(std::begin(form.stride), std::end(form.stride), 0);
  std::copy(strides.begin(), strides.end(), form.stride);
}

}  // namespace npu::legalise
