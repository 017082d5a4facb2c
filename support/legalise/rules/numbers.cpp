// Numbers of 64 bits from words (support/legalise/numbers).
#include <algorithm>

#include "support/legalise/draft/prune.h"
#include "support/legalise/draft/writer.h"
#include "support/legalise/numbers/in_words.h"
#include "support/legalise/rules/parts.h"
#include "support/program/accesses.h"

namespace npu::legalise {
namespace {

// Does the program hold numbers of 64 bits, or touch such memory? An i64 that is only an address does not count.
bool has_wide(const Draft& draft) {
  const Program& program = *draft.program;
  const npu_program_desc desc = program.desc();
  for (uint32_t id = 0; id < desc.instr_count; ++id) {
    const int type = desc.instrs[id].dtype;
    if (type != NPU_DTYPE_NONE && is_wide(type) && !is_address(desc, id)) return true;
  }
  npu_command command = draft.command;
  command.operand_count = static_cast<uint32_t>(draft.operands.size());
  for (const Access& access : accesses_of(command, &desc))
    if (access.instruction != NPU_NO_VALUE && in_wide_storage(draft.operands[access.operand].form.dtype)) return true;
  return false;
}

bool in_words(const Draft& refused, Script& script) {
  if (!refused.program || !has_wide(refused)) return false;
  Draft made;
  made.command = refused.command;
  if (for_kind(static_cast<npu_command_kind>(refused.command.kind)) & kProducts)
    made.operands = {refused.operands[0], refused.operands[1]};
  if (!InWords(refused, made).run()) return false;
  prune(made);
  script.add(made);
  return true;
}

// Elements of 8 bytes are two words each: one dimension more. An u32 is one word.
bool copy_words(const Draft& refused, Script& script) {
  const Operand &to = refused.operands[0], &from = refused.operands[1];
  const int rank = refused.command.rank;
  if (to.form.dtype != from.form.dtype || !in_wide_storage(to.form.dtype) || from.immediate()) return false;
  std::vector<int64_t> size = refused.size();
  Operand words[2] = {word_of(to, 0), word_of(from, 0)};
  if (dtype_size(to.form.dtype) == 8) {
    if (rank == NPU_MAX_RANK) return false;
    size.push_back(2);
    for (Operand& one : words) one.form.stride[rank] = 1;
  }
  script.add(copy(size, words[0], words[1]));
  return true;
}

bool copy_converts(const Draft& refused, Script& script) {
  const Operand &to = refused.operands[0], &from = refused.operands[1];
  if (!in_wide_storage(to.form.dtype) && !in_wide_storage(from.form.dtype)) return false;
  Draft map(NPU_MAP, refused.size());
  Writer writer(refused, map);
  writer.store(to, writer.load(from, compute_dtype(from.form.dtype)));
  writer.finish("copy");
  script.add(map);
  return true;
}

constexpr uint32_t kWithPrograms =
    for_kind(NPU_MAP) | for_kind(NPU_REDUCE) | for_kind(NPU_SCAN) | for_kind(NPU_SCATTER) | kProducts;

constexpr Rule kRules[] = {
    {.name = "copy of words",
     .why = "an element of 8 bytes is two of 4: one more dimension, of size 2",
     .price = Price::kCalls,
     .kinds = for_kind(NPU_COPY),
     .repeats = false,
     .make = copy_words},
    {.name = "a copy that converts, as a program",
     .why = "COPY is a load into the exact compute type, and a store",
     .price = Price::kCalls,
     .kinds = for_kind(NPU_COPY),
     .repeats = false,
     .make = copy_converts},
    {.name = "64 bits in words",
     .why = "i64, u64 and f64 are pairs of i32, whose arithmetic gives the same bits",
     .price = Price::kPasses,
     .kinds = kWithPrograms,
     .repeats = false,
     .make = in_words},
};

}  // namespace

const std::span<const Rule> number_rules = kRules;

}  // namespace npu::legalise
