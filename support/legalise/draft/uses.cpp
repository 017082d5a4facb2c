#include "support/legalise/draft/uses.h"

#include <algorithm>

#include "support/program/accesses.h"
#include "support/program/operand_shape.h"

namespace npu::legalise {

std::vector<Use> uses_of(const Draft& draft) {
  npu_command command = draft.command;
  command.operand_count = static_cast<uint32_t>(draft.operands.size());
  std::vector<Use> uses(draft.operands.size());
  npu_program_desc desc{};
  if (draft.program) desc = draft.program->desc();
  for (const Access& access : accesses_of(command, draft.program ? &desc : nullptr)) {
    Use& use = uses[access.operand];
    use.read |= !access.write || access.meets;
    use.written |= access.write;
    use.partly |= access.write && (access.masked || access.computed);
    use.computed |= access.computed;
    use.rank = std::max(use.rank, access.rank);
  }
  for (uint32_t k = 0; k < uses.size(); ++k) {
    int64_t size[NPU_MAX_RANK];
    operand_shape(command, k, size);
    uses[k].size.assign(size, size + command.rank);
    std::fill(uses[k].size.begin() + std::min<int>(uses[k].rank, command.rank), uses[k].size.end(), 1);
  }
  return uses;
}

bool is_dense(const Operand& operand, const std::vector<int64_t>& size, bool broadcast) {
  int64_t step = 1;
  for (size_t d = size.size(); d-- > 0;) {
    const int64_t stride = operand.form.stride[d];
    if (size[d] == 1 || (broadcast && stride == 0)) continue;
    if (stride != step) return false;
    step *= size[d];
  }
  return true;
}

}  // namespace npu::legalise
