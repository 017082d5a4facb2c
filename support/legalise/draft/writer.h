// Writes a program for a draft, mostly out of the instructions of another one: what a value needs is copied with it,
// with operands, parameters and constants that are numbered anew.
//
//   Draft map(NPU_MAP, refused.size());
//   Writer writer(refused, map);
//   writer.provide(acc, writer.load(sums, NPU_F32));   // instead of being computed, it is loaded
//   writer.sink(store);                                // the store, and all that its value needs
//   writer.finish("epilogue");
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "npu/program.h"
#include "support/legalise/draft/draft.h"

namespace npu::legalise {

class Writer {
 public:
  // Copies from `source`'s program into a new one of `target`, whose operands and parameters grow as they are used.
  // Both live as long as the writer. A program of segments other than one each begins with `segment`.
  Writer(const Draft& source, Draft& target, npu_segment first = NPU_SEGMENT_EACH);

  // From now on value `id` of the source is value `here` of the new program.
  void provide(uint16_t id, uint16_t here);
  bool provided(uint16_t id) const { return values_[id] != NPU_NO_VALUE; }
  // Forgets the values that were copied, not those that were provided: in a new segment they are not seen.
  void segment(npu_segment kind);
  // The same without a segment: what is copied from now on is computed anew, for another point.
  void forget();
  // The source's value `id`, with all that it needs. Folds, scans and `acc` must have been provided.
  uint16_t value(uint16_t id);
  // The source's instruction `id` that defines no value: a store, or a store_at. It and what it needs are written at
  // the end of the segment, with other sinks in the order of the source, because a program in place loads before it
  // stores.
  void sink(uint16_t id);

  // The source's instruction `id` as it stands, here and now; its value is provided.
  void keep(uint16_t id);

  // New instructions.
  uint16_t emit(npu_op op, int dtype, uint16_t a = NPU_NO_VALUE, uint16_t b = NPU_NO_VALUE, uint16_t c = NPU_NO_VALUE,
                uint32_t imm = 0, uint16_t mask = NPU_NO_VALUE, int flags = 0);
  uint16_t load(const Operand& operand, int dtype, uint16_t mask = NPU_NO_VALUE);
  uint16_t load_at(const Operand& operand, int dtype, uint16_t offset, uint16_t mask = NPU_NO_VALUE);
  void store(const Operand& operand, uint16_t value, uint16_t mask = NPU_NO_VALUE);
  uint16_t integer(int dtype, int64_t value);  // a constant
  uint16_t real(int dtype, double value);
  uint16_t zero(int dtype) { return integer(dtype, 0); }  // whose bits are those of +0.0
  uint16_t param(int dtype, const Param& param);
  uint16_t index(int dimension, int dtype = NPU_I64);
  int type(uint16_t here) const { return program_.instrs[here].dtype; }
  // The target's number of an operand: a new one, unless it is there already.
  uint32_t operand(const Operand& operand);

  // `index` and `size` of source dimension d become those of `dimension[d]` of the target.
  void map_dimensions(std::vector<int> dimension);
  // From now on the source's operands are copied as these: with other strides, or moved.
  void map_operands(std::function<Operand(const Operand&)> become);
  // From now on what is copied touches memory, and checks an index, only where `mask` holds too; NPU_NO_VALUE: always.
  void guard(uint16_t mask);

  void finish(const std::string& name);

 private:
  uint16_t add(npu_instr instr);
  uint32_t constant(uint64_t bits);
  npu_instr moved(npu_instr instr);  // a source instruction, renumbered
  void need(uint16_t id);            // marks what is to be copied for it
  void flush();                      // writes the sinks

  const Draft& source_;
  Draft& target_;
  Program program_;
  std::vector<uint16_t> values_;  // of the source's values: theirs here
  std::vector<bool> lasting_;     // those that were provided
  std::vector<bool> needed_;      // by sinks that are not written yet
  std::vector<int> dimensions_;
  std::function<Operand(const Operand&)> become_;
  uint16_t guard_ = NPU_NO_VALUE;
};

// Copies the whole program of `source`, but for the instructions that `replace` writes in another way: then it says
// true, and has provided the value if there is one. `target` has its kind and sizes.
using Replace = std::function<bool(Writer& writer, uint16_t id, const npu_instr& in)>;
void rewrite(const Draft& source, Draft& target, const Replace& replace);

}  // namespace npu::legalise
