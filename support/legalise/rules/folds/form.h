// What rules for REDUCE and SCAN read in a refused command: its segments, its folds, and what each of them needs.
#pragma once
#include <optional>
#include <vector>

#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/rule.h"

namespace npu::legalise {

// Instructions [begin, end) behind a `segment`.
struct Segment {
  npu_segment kind;
  uint16_t begin, end;
};

// Members of a fold or a scan that is copied, and where they go.
struct Stored {
  uint32_t member;
  Operand to;
};

// A fold (or scan) by itself: a command that has only this one, in an each segment that stores nothing, and then stores
// members of it as they are.
struct Plain {
  uint16_t id;
  npu_instr instr;
  int kind;                // npu_fold
  std::vector<int> types;  // of its members
  std::vector<Stored> stores;

  bool masked() const { return instr.mask != NPU_NO_VALUE; }
  // Any order of its elements gives the same, but for the last bits of sums and products.
  bool any_order() const { return kind != NPU_FOLD_CUSTOM; }
};

// Those that are no combine segments, and the combine segments, each in order.
std::vector<Segment> segments_of(const Program& program);
std::vector<Segment> combines_of(const Program& program);

bool is_fold(const npu_instr& instr);    // or a scan
bool is_store(const npu_instr& instr);   // or a store_at
bool is_effect(const npu_instr& instr);  // a store, or a check that can fail
bool folds(const Program& program, const Segment& segment);

struct Member {
  uint16_t fold;
  uint32_t number;
  bool operator==(const Member&) const = default;
};
// The member that a value is: folds and scans are their first, a `get` names one.
std::optional<Member> member_of(const Program& program, uint16_t id);
int type_of(const Program& program, const Member& member);

// Which instructions `wanted` are made of, themselves included.
std::vector<bool> needs(const Program& program, const std::vector<uint16_t>& wanted);
// The instructions of a segment that are needed, in their order: loads stay before stores of the same memory. Folds and
// gets are left to who calls.
void copy_segment(Writer& writer, const Program& program, const Segment& segment, const std::vector<bool>& needed);

// Copies folds with the combine segments that they need, which stand at the program's end.
class FoldCopier {
 public:
  FoldCopier(Writer& writer, const Program& program) : writer_(writer), program_(program) {}
  // As `fold` says, of these values where there are any.
  uint16_t fold(uint16_t id, const std::vector<uint16_t>& args, uint16_t mask);
  uint16_t fold(uint16_t id);  // of its own
  void combines();

 private:
  Writer& writer_;
  const Program& program_;
  std::vector<int> combines_;  // the numbers that they had
};

// A member of a fold of the program in the making.
uint16_t get(Writer& writer, uint16_t fold, uint32_t member, int type);

// The folds of a command that has one each segment, which stores nothing, and then stores members of folds as they are.
// Nothing where it is more than that: other rules make it so.
std::vector<Plain> plain_folds(const Draft& draft, const Script& script);
// The only one.
std::optional<Plain> plain(const Draft& draft, const Script& script);
// The same operand where the index space ends with the first `rank` dimensions.
Operand first_dimensions(const Operand& operand, int rank);
int kept_rank(const Draft& draft);
// Of the dimensions from `kept` on.
int64_t inner_points(const Draft& draft, int kept);

}  // namespace npu::legalise
