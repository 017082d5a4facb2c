// Writes instructions, and fewer of them: what constants decide is computed here, and what was computed before in the
// segment is used again. Sequences for any numbers become short where some of the numbers are known.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "support/legalise/draft/writer.h"
#include "support/reference/value.h"

namespace npu::legalise {

class Emitter {
 public:
  explicit Emitter(Writer& writer) : writer_(writer) {}

  // A new segment sees nothing of the last.
  void segment() { made_.clear(); }
  // An instruction that only depends on its arguments.
  uint16_t op(npu_op op, int dtype, uint16_t a = NPU_NO_VALUE, uint16_t b = NPU_NO_VALUE, uint16_t c = NPU_NO_VALUE,
              uint32_t imm = 0);
  uint16_t same(npu_op kind, uint16_t a, uint16_t b) { return op(kind, writer_.type(a), a, b); }
  uint16_t word(int64_t value) { return constant(NPU_I32, value_of(int64_t{static_cast<int32_t>(value)})); }
  uint16_t constant(int dtype, Value value);
  std::optional<Value> known(uint16_t id) const;
  // A sequence of words.npu, by its name: the values that it stores.
  std::vector<uint16_t> call(std::string_view name, const std::vector<uint16_t>& arguments);

  Writer& writer() { return writer_; }

 private:
  // The value of an instruction that needs no instruction; NPU_NO_VALUE: it does.
  uint16_t simplified(const npu_instr& in);
  uint16_t folded(const npu_instr& in);
  uint16_t neutral(const npu_instr& in);

  static Value value_of(int64_t i) {
    Value v{};
    v.i = i;
    return v;
  }

  Writer& writer_;
  std::map<std::string, uint16_t> made_;  // by the bytes of the instruction
  std::map<uint16_t, Value> known_;
};

bool has_sequence(std::string_view name);

}  // namespace npu::legalise
