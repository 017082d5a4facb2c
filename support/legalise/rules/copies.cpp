// COPY and MAP from each other.
#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/parts.h"

namespace npu::legalise {
namespace {

// A program would change the bits of a bool other than 0 and 1, and of a NaN of two bytes; those of an integer stay.
int moving_type(int dtype) {
  if (dtype == NPU_BOOL) return NPU_U8;
  return dtype == NPU_F16 || dtype == NPU_BF16 ? int{NPU_U16} : dtype;
}

bool copy_as_map(const Draft& refused, Script& script) {
  Operand to = refused.operands[0], from = refused.operands[1];
  if (to.form.dtype == from.form.dtype)
    to.form.dtype = from.form.dtype = static_cast<uint8_t>(moving_type(from.form.dtype));
  Draft map(NPU_MAP, refused.size());
  Writer writer(refused, map);
  writer.store(to, writer.load(from, compute_dtype(from.form.dtype)));
  writer.finish("copy");
  script.add(map);
  return true;
}

// The operand that a store moves as it is; null: something is computed.
const Operand* moved_by(const Draft& draft, const npu_instr& store) {
  const npu_instr& load = draft.program->instrs[store.a];
  if (load.op != NPU_OP_LOAD || load.mask != NPU_NO_VALUE || store.mask != NPU_NO_VALUE) return nullptr;
  const Operand& from = draft.operands[load.imm];
  const int type = from.form.dtype;
  if (load.dtype != compute_dtype(type)) return nullptr;
  // COPY would leave a bool that is neither 0 nor 1 as it is.
  if (type == NPU_BOOL && draft.operands[store.imm].form.dtype == NPU_BOOL) return nullptr;
  return &from;
}

bool map_as_copies(const Draft& refused, Script& script) {
  std::vector<const Operand*> written;
  for (const npu_instr& in : refused.program->instrs) {
    if (in.op == NPU_OP_SEGMENT || in.op == NPU_OP_LOAD) continue;
    if (in.op != NPU_OP_STORE) return false;
    const Operand* from = moved_by(refused, in);
    if (!from) return false;
    for (const Operand* before : written)
      if (script.same_memory(*before, *from)) return false;
    const Operand& to = refused.operands[in.imm];
    script.add(copy(refused.size(), to, *from));
    written.push_back(&to);
  }
  return !written.empty();
}

constexpr Rule kRules[] = {
    {.name = "copy by a program",
     .why = "COPY is a load in the exact type and a store; bits of one type are those of an integer",
     .price = Price::kCalls,
     .kinds = for_kind(NPU_COPY),
     .repeats = false,
     .make = copy_as_map},
    {.name = "stores as copies",
     .why = "a program that computes nothing moves elements, each store as COPY does",
     .price = Price::kCalls,
     .kinds = for_kind(NPU_MAP),
     .repeats = false,
     .make = map_as_copies},
};

}  // namespace

const std::span<const Rule> copy_rules = kRules;

}  // namespace npu::legalise
