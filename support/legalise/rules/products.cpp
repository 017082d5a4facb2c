// MATMUL and CONV from less than they are.
#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/parts.h"

namespace npu::legalise {
namespace {

int acc_dtype(const npu_command& command) {
  return command.kind == NPU_MATMUL ? command.u.matmul.acc_dtype : command.u.conv.acc_dtype;
}

bool product_then_program(const Draft& refused, Script& script) {
  if (!refused.program) return false;
  const int type = acc_dtype(refused.command);
  const Operand sums = script.scratch(type, refused.size());
  Draft product = refused;
  product.program = nullptr;
  product.params.clear();
  product.operands = {refused.operands[0], refused.operands[1], sums};
  script.add(product);

  Draft map(NPU_MAP, refused.size());
  Writer writer(refused, map);
  const auto& instrs = refused.program->instrs;
  for (uint16_t id = 0; id < instrs.size(); ++id) {
    if (instrs[id].op == NPU_OP_ACC) writer.provide(id, writer.load(sums, type));
    // In its place: a later load of memory that a store before it writes must not move behind the store.
    if (instrs[id].op == NPU_OP_LOAD || instrs[id].op == NPU_OP_LOAD_AT) writer.value(id);
    if (instrs[id].op == NPU_OP_STORE) writer.sink(id);
  }
  writer.finish(refused.program->name);
  script.add(map);
  return true;
}

constexpr Rule kRules[] = {
    {.name = "product, then its program",
     .why = "an epilogue runs on finished sums: they lie in scratch, in the type in which they were made",
     .price = Price::kPass,
     .kinds = kProducts,
     .repeats = false,
     .make = product_then_program},
};

}  // namespace

const std::span<const Rule> product_rules = kRules;

}  // namespace npu::legalise
