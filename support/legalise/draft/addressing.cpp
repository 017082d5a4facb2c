#include "support/legalise/draft/addressing.h"

namespace npu::legalise {

uint16_t Addressing::offset(Writer& writer, uint16_t id, uint16_t plus, const std::vector<int64_t>& stride,
                            int64_t shift) {
  int segment = id;
  while (source_.program->instrs[static_cast<size_t>(segment)].op != NPU_OP_SEGMENT) --segment;
  if (segment != segment_) {
    segment_ = segment;
    coordinates_.fill(NPU_NO_VALUE);
  }
  const bool row = source_.program->instrs[static_cast<size_t>(segment)].imm == NPU_SEGMENT_ROW;
  const int rank = source_.command.rank - (row ? source_.command.inner_rank : 0);
  const auto add = [&](uint16_t part) {
    plus = plus == NPU_NO_VALUE ? part : writer.emit(NPU_OP_ADD, NPU_I64, plus, part);
  };
  for (int d = 0; d < rank; ++d) {
    const int64_t step = stride[static_cast<size_t>(d)];
    if (step == 0) continue;
    uint16_t& at = coordinates_[static_cast<size_t>(d)];
    if (at == NPU_NO_VALUE) at = writer.index(d);
    add(step == 1 ? at : writer.emit(NPU_OP_MUL, NPU_I64, at, writer.integer(NPU_I64, step)));
  }
  if (shift || plus == NPU_NO_VALUE) add(writer.integer(NPU_I64, shift));
  return plus;
}

}  // namespace npu::legalise
