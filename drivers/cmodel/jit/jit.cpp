#include "drivers/cmodel/jit/jit.h"

#include "drivers/cmodel/jit/compiler.h"

namespace cmodel {
namespace {

// Does the next result wait for this one for longer than the processor looks ahead?
bool waits(const Group& group) {
  int steps = 0;
  for (int i : group.members) steps += 1 + 5 * temporaries_of((*group.program)[i]);
  return steps >= 40;
}

std::unique_ptr<Code> make(const Group& group, Form form, uint64_t storage = 0) {
  // Short bodies of several points are under way at once by themselves.
  const int most = form == Form::kColumns || !waits(group) ? 1 : isa_level() == IsaLevel::kAvx512 ? 2 : kMostVectors;
  for (int together = most; together > 0; together /= 2)
    for (const bool in_registers : {true, false})
      if (auto code = Compiler(group, form, {storage, in_registers, together, false}).run()) return code;
  return Compiler(group, form, {storage, false, 1, true}).run();
}

}  // namespace

const Code* Group::variant(Form form, uint64_t storage) const {
  return variants->find(form, storage, [&] { return make(*this, form, storage); });
}

bool compile(Group& group, bool streams) {
  if (group.constants.size() > kLoopConstants) return false;
  group.code = make(group, Form::kPlain);
  if (!group.code) return false;
  if (streams) group.streaming = make(group, Form::kStreaming);
  if (group.folds.empty()) return true;
  group.folding = make(group, Form::kFolding);
  if (group.stored.empty()) group.columns = make(group, Form::kColumns);
  return group.folding != nullptr;
}

}  // namespace cmodel
