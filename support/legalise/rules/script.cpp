#include "support/legalise/rules/rule.h"

namespace npu::legalise {

Operand Script::scratch(int dtype, const std::vector<int64_t>& size) {
  int64_t count = 1;
  for (const int64_t extent : size) count *= extent;
  Operand operand;
  operand.form.dtype = static_cast<uint8_t>(dtype);
  set_strides(operand.form, dense_strides(size));
  operand.place = {Place::kScratch, static_cast<uint32_t>(scratch_.size()), 0};
  scratch_.push_back(static_cast<uint64_t>(count) * static_cast<uint64_t>(dtype_size(dtype)));
  return operand;
}

bool Script::same_memory(const Operand& a, const Operand& b) const {
  if (a.immediate() || b.immediate() || a.place.kind != b.place.kind) return false;
  if (a.place.kind == Place::kScratch) return a.place.number == b.place.number;
  return aliases_[a.place.number] == aliases_[b.place.number];
}

}  // namespace npu::legalise
