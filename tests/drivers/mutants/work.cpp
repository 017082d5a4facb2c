#include "tests/drivers/mutants/mutant.h"

namespace mutant {

const Bug* current = nullptr;

bool has(std::string_view bug) {
  return current && bug == current->name;
}

const std::vector<Bug>& bugs() {
  static const std::vector<Bug> all = [] {
    std::vector<Bug> out;
    for (const auto& some : {value_bugs(), layout_bugs(), product_bugs(), row_bugs(), driver_bugs()})
      out.insert(out.end(), some.begin(), some.end());
    return out;
  }();
  return all;
}

void Work::need_program() {
  if (has_program || command.kind == NPU_SORT) return;
  if (command.kind == NPU_COPY && operands[0].dtype == operands[1].dtype) return;  // bytes as they are
  command.operands = operands.data();
  program = npu::program_of(command);
  has_program = true;
  if (command.kind == NPU_COPY) command.kind = NPU_MAP;
}

void Work::rewrite(const npu::Rewrite::Visit& visit) {
  if (!has_program) return;
  const npu::Program old = program;
  program = npu::Rewrite(old).run(visit);
}

bool Work::writes(size_t operand) const {
  for (const npu_instr& in : program.instrs)
    if (has_program && (in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT) && in.imm == operand) return true;
  if (has_program) return false;
  return command.kind == NPU_COPY ? operand == 0 : command.kind == NPU_SORT ? operand >= 2 : operand == 2;
}

unsigned char* Work::element(size_t operand, int64_t offset) const {
  const npu_operand& o = operands[operand];
  const auto width = static_cast<uint64_t>(npu::dtype_size(o.dtype));
  return static_cast<unsigned char*>(translate(o.addr + static_cast<uint64_t>(offset) * width, width, true));
}

npu_status run_right(Work& work, std::string* why) {
  work.command.operands = work.operands.data();
  work.command.operand_count = static_cast<uint32_t>(work.operands.size());
  work.command.params = work.params.data();
  work.command.param_count = static_cast<uint32_t>(work.params.size());
  npu_program_desc desc{};
  if (work.has_program) desc = work.program.desc();
  return npu::run_reference(work.command, work.has_program ? &desc : nullptr, work.translate, why);
}

}  // namespace mutant
