// Rules: how a command that a driver refuses becomes commands that it may take. One entry each, in one table; what a
// rule makes may be refused again, and then other rules have their turn.
#pragma once
#include <span>

#include "support/legalise/draft/draft.h"

namespace npu::legalise {

// What a rule writes: commands in the order in which they run, and scratch memory for them.
class Script {
 public:
  // `aliases[k]`: the first operand of the refused command with the address of operand k.
  Script(std::vector<uint64_t>& scratch, const std::vector<uint32_t>& aliases) : scratch_(scratch), aliases_(aliases) {}

  // Dense memory for an array of this shape. Operand strides are those of `size`.
  Operand scratch(int dtype, const std::vector<int64_t>& size);
  void add(Draft draft) { drafts.push_back(std::move(draft)); }
  // What the operand's address is modulo kAlignment. A recipe that was made with it serves such addresses only.
  int64_t skew(const Operand& operand) {
    by_address = true;
    return operand.skew;
  }
  // Both lie in the same memory: one may be written in place of the other.
  bool same_memory(const Operand& a, const Operand& b) const;

  std::vector<Draft> drafts;
  bool by_address = false;  // `skew` was asked for

 private:
  std::vector<uint64_t>& scratch_;  // bytes of each
  const std::vector<uint32_t>& aliases_;
};

// What a rule costs beside the command itself. Dearer rules are tried where cheaper ones lead nowhere.
enum class Price : uint8_t {
  kCalls,   // more commands, no more work
  kPass,    // operands or results are walked once more
  kPasses,  // a few times more, or once for each doubling of a size
  kLast     // much more work than the command
};

struct Rule {
  const char* name;  // what is made: "product, then its program"
  const char* why;   // why that is the same
  Price price;
  uint32_t kinds;  // bit k: it is for commands of kind k
  bool repeats;    // what it makes is smaller, so that it may have its turn again
  // False: it does not fit, and has written nothing that counts. It looks at the draft, never at the driver: whether
  // the driver takes what it makes is found out by those who ask.
  bool (*make)(const Draft& refused, Script& script);
  // It changes only what `supports` does not see (strides, addresses), so that it helps where submit has refused.
  bool placement = false;
};

constexpr uint32_t for_kind(npu_command_kind kind) {
  return 1u << kind;
}

// Did the rule of this name lead to the draft? A rule that does better with what another one began with looks here.
bool came_by(const Draft& draft, const char* name);

// The table, in the order in which rules are tried: by price, then as listed. At most 64.
std::span<const Rule> rules();

}  // namespace npu::legalise
