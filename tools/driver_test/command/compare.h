// Is what a driver left in memory right?
#pragma once
#include <optional>

#include "tools/driver_test/command/view.h"

namespace driver_test {

// How far two floating point results may lie apart. Integers, bools and untouched elements are always equal; two NaNs
// are equal.
//
// The distance counts before the store: what it may have been there is an interval, and the result lies between the two
// ends as the store rounds them. So a result of 16 bits is as a rule one value only, and a store that truncates is
// seen.
struct Tolerance {
  enum Kind { kExact, kUlp, kSum, kNear } kind = kExact;
  double amount = 0;    // kUlp: units in the last place of F32, or of F64 where that is stored.
                        // kSum: share of the sum of the absolute values of the terms, which is the same command on
                        //       absolute values. kNear: relative
  double absolute = 0;  // always allowed on top
  static Tolerance ulp(double n, double absolute = 0) { return {n > 0 ? kUlp : kExact, n, absolute}; }
  // Each of `terms` additions rounds once.
  static Tolerance sum(int64_t terms, int acc_dtype);
  static Tolerance near(double relative, double absolute = 0) { return {kNear, relative, absolute}; }
};

struct Wrong {
  size_t buffer = 0;  // the first with a wrong element
  int64_t element = 0;
  int64_t count = 0;    // wrong elements of that buffer
  std::string allowed;  // "bit for bit", "at most 3e-7 apart before it is stored"
};

// What was found of a command: `got` of each buffer against the reference.
class Comparison {
 public:
  // `before` is the command with the memory it finds. The reference must succeed on it.
  Comparison(const View& before, const Tolerance& tolerance, bool same_nans);
  const std::vector<Buffer>& want() const { return want_; }
  // Of what is right to the last bit: results that the driver may yield instead of the reference's.
  std::optional<Wrong> judge(const std::vector<Buffer>& got, int skipped_buffer = -1);

 private:
  struct Interval {
    double low, high, allowed;
  };
  bool right(size_t buffer, const Buffer& got, int64_t element, std::string* allowed);
  Interval interval(size_t buffer, int64_t element, double got);
  std::optional<Wrong> biased(size_t buffer, const Buffer& got);
  void prepare();

  View before_;
  Tolerance tolerance_;
  bool same_nans_;
  std::vector<Buffer> want_;
  std::vector<Buffer> wide_, scale_;  // before the store; the same on absolute values. Made when something differs
};

}  // namespace driver_test
