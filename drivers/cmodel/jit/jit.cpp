#include "drivers/cmodel/jit/jit.h"

#include "drivers/cmodel/jit/compiler.h"

namespace cmodel {
namespace {

// Does the next result wait for this one for longer than the processor looks ahead?
bool waits(const CompiledLoop& loop) {
  int steps = 0;
  for (int i : loop.members) steps += 1 + kTemporarySteps * temporaries_of((*loop.program)[i]);
  return steps >= kWaitingSteps;
}

std::unique_ptr<Code> make(const CompiledLoop& loop, Form form, uint64_t storage = 0) {
  // Short bodies of several points are under way at once by themselves.
  const int side_by_side = isa_level() == IsaLevel::kAvx512 ? kMostWideVectors : kMostVectors;
  const int most = form == Form::kColumns || !waits(loop) ? 1 : side_by_side;
  for (int together = most; together > 0; together /= 2)
    for (const bool in_registers : {true, false})
      if (auto code = Compiler(loop, form, {storage, in_registers, together, false}).run()) return code;
  return Compiler(loop, form, {storage, false, 1, true}).run();
}

}  // namespace

const Code* CompiledLoop::variant(Form form, uint64_t storage) const {
  return variants->find(form, storage, [&] { return make(*this, form, storage); });
}

bool compile(CompiledLoop& loop, bool streams) {
  if (loop.constants.size() > kLoopConstants) return false;
  loop.code = make(loop, Form::kPlain);
  if (!loop.code) return false;
  if (streams) loop.streaming = make(loop, Form::kStreaming);
  if (loop.folds.empty()) return true;
  loop.folding = make(loop, Form::kFolding);
  if (loop.stored.empty()) loop.columns = make(loop, Form::kColumns);
  return loop.folding != nullptr;
}

}  // namespace cmodel
