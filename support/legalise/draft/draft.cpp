#include "support/legalise/draft/draft.h"

#include <algorithm>

namespace npu::legalise {

uint64_t part_of(uint64_t bits, Part part) {
  return part == Part::kWhole ? bits : part == Part::kLow ? bits & 0xffffffff : bits >> 32;
}

Operand Operand::moved(int64_t elements) const {
  Operand out = *this;
  if (!immediate()) out.place.offset += elements * dtype_size(form.dtype);
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
