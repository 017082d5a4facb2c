#include "tools/driver_test/explain/trial.h"

#include "support/program/validate.h"

namespace driver_test {

namespace {

constexpr double kSeconds = 3;  // a failure is worth a wait, but not a long one
constexpr size_t kMost = 3;     // guesses

}  // namespace

Trial::Trial(const Case& failed, const Ran& ran, std::vector<npu_scalar> last_params)
    : view_(failed), ran_(ran), tolerance_(failed.tolerance), last_params_(std::move(last_params)) {
  view_.link();
  view_.command.program = nullptr;
}

bool Trial::enough() const {
  return found_.size() >= kMost ||
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() > kSeconds;
}

bool Trial::writes(size_t operand) const {
  if (!view_.program) return command().kind == NPU_COPY ? operand == 0 : operand >= 2;
  for (const npu_instr& in : view_.program->instrs)
    if ((in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT) && in.imm == operand) return true;
  return false;
}

void Trial::suppose(const std::string& bug, View changed) {
  if (enough()) return;
  changed.link();
  const npu_program_desc desc = changed.program ? changed.program->desc() : npu_program_desc{};
  if (changed.program && !npu::validate(desc).empty()) return;
  if (!npu::validate_command(changed.command, changed.program ? &desc : nullptr).empty()) return;
  View result = changed;
  const npu_status status = result.run_apart();
  if (status != ran_.status) return;
  if (status != NPU_OK || ran_.got.empty()) return found_.push_back(bug);
  Comparison comparison(changed, tolerance_, false);
  const auto wrong = comparison.judge(ran_.got);
  // A sum may lie on either side of where the bug acts: a few elements may differ.
  if (!wrong || (ran_.wrong && wrong->count <= ran_.wrong->count / 50 && wrong->buffer == ran_.wrong->buffer))
    found_.push_back(bug);
}

void Trial::suppose(const std::string& bug, const std::vector<Buffer>& memory) {
  if (enough() || ran_.got.empty()) return;
  for (size_t n = 0; n < memory.size(); n++)
    if (memory[n].bytes != ran_.got[n].bytes) return;
  found_.push_back(bug);
}

void Trial::suppose(const std::string& bug, const npu::Rewrite::Visit& visit) {
  if (enough() || command().kind == NPU_SORT) return;
  View changed = view_;
  if (!changed.program) {
    changed.program = npu::program_of(changed.command);
    if (changed.command.kind == NPU_COPY) changed.command.kind = NPU_MAP;
  }
  const npu::Program old = *changed.program;
  changed.program = npu::Rewrite(old).run(visit);
  if (changed.program->instrs.size() == old.instrs.size() &&
      std::memcmp(changed.program->instrs.data(), old.instrs.data(), old.instrs.size() * sizeof(npu_instr)) == 0)
    return;  // nothing to change
  suppose(bug, std::move(changed));
}

std::string explanation(const Case& failed, const Ran& ran, const std::vector<npu_scalar>& last_params) {
  if (failed.checked_buffer >= 0) return "";
  Trial trial(failed, ran, last_params);
  for (const auto room : {suppose_status, suppose_memory, suppose_layouts, suppose_sizes, suppose_rows,
                          suppose_products, suppose_values, suppose_programs})
    room(trial);
  std::string out;
  for (const std::string& bug : trial.found()) out += (out.empty() ? "\n  looks like: " : "; or ") + bug;
  return out;
}

}  // namespace driver_test
