// Is a device's result right? Bit for bit where docs/isa.md promises it, within a budget that follows from it
// elsewhere.
//
// Unless both sides follow isa.md to the last bit (`exact`), three things may differ: functions that a device may
// approximate, float sums and products, and which NaN it is. With `exact` only functions without a sequence may. What
// an approximated function may do to a result is found by trying: the reference runs the command with every such
// function made larger, smaller, and both in turn, by as much as is allowed, and the spread of the results, doubled, is
// the budget of an element. A sum may be off by one rounding per term, of the sum of absolute values, which is the same
// command on absolute values.
#pragma once
#include <string>
#include <vector>

#include "support/reference/reference.h"
#include "support/verify/mirror.h"

namespace npu {

enum class Exact {
  kYes,    // float sums and products in the order of docs/isa.md, functions by their sequences, one NaN
  kSplit,  // sums in that order, but products of f32 and f64 may run in parts, as on a matrix engine that has bf16 only
  kNo,     // any order
};

struct Budget {
  Exact exact = Exact::kYes;
  double functions = 1, sums = 1;  // multiples of what isa.md allows
};

// A region that the command wrote: what it should hold and what it holds.
struct Written {
  Region region;
  std::vector<std::byte> want, got;
};

struct Element {
  int64_t offset = 0;  // elements from the operand's address
  std::string place;   // "[0, 5]", or the offset in words if no point of the index space is there
  uint64_t want = 0, got = 0;
};

struct Verdict {
  bool same_bits = true;
  uint64_t differing = 0;      // elements beyond the budget
  uint64_t tolerated = 0;      // elements that differ within it
  double used = 0;             // largest part of the budget that one of those needed
  size_t written = 0;          // which Written the first difference is in
  std::vector<Element> first;  // at most eight of that one
  std::string allowed;         // "bit for bit", "within 3e-7"
};

// `before` holds the memory that the command found.
Verdict judge(const npu_command& command, const npu_program_desc* program, Mirror& before,
              const std::vector<Written>& written, const Budget& budget);

// Runs a command as docs/isa.md says on a copy of the memory it touches.
class Scratch {
 public:
  Scratch(Mirror& before, const std::vector<Region>& regions);
  void make_absolute(const std::vector<Region>& regions);
  npu_status run(const npu_command& command, const npu_program_desc* program, std::string* error);
  std::byte* find(npu_addr addr, uint64_t size);

 private:
  struct Piece {
    npu_addr addr;
    std::vector<std::byte> bytes;
  };
  Mirror& before_;
  std::vector<Piece> pieces_;
};

}  // namespace npu
