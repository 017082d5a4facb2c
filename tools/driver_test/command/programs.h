// Random programs that keep every rule, made of instructions whose result is defined to the last bit.
#pragma once
#include "tools/driver_test/command/builder.h"
#include "tools/driver_test/frame/suite.h"

namespace driver_test {

// Grows a program from the values it has been given. Only instructions with one right answer are used, so that results
// agree however long the program gets.
class Grower {
 public:
  Grower(Builder& builder, Random& random) : b(builder), random_(random) {}
  void give(Id value) { values_.push_back(value); }
  void forget() { values_.clear(); }  // at a new segment
  bool step();                        // adds one instruction; false: nothing fitted this time
  void grow(int steps);
  Id pick(int dtype);  // a value of that type, made by a cast if there is none
  Id pick_any() { return random_.pick(values_); }
  Id mask() { return random_.chance(20) ? pick(NPU_BOOL) : none; }

  Builder& b;

 private:
  Id find(int dtype);
  Random& random_;
  std::vector<Id> values_;
};

// Instructions that are approximated, and how many units in the last place a driver may be off (docs/isa.md,
// "Functions"), with three more for the reference. `absolute`: near a zero, or far out.
struct Inexact {
  int op;
  double ulp, absolute;
};
const std::vector<Inexact>& inexact_ops();

const std::vector<int>& compute_dtypes();
// Whether the instruction is arithmetic with one right answer on every value (docs/isa.md).
bool is_exact(int op);

}  // namespace driver_test
