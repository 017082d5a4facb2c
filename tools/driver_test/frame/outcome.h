// How a test ended, and the tests that a process of their own runs.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tools/driver_test/frame/suite.h"

namespace driver_test {

struct Outcome {
  enum Result { kPass, kUnsupported, kFail, kCrash, kHang } result = kPass;
  std::string why;
  int64_t cases = 0, unsupported = 0;
  double seconds = 0;

  bool failed() const { return result >= kFail; }
};

const char* result_name(Outcome::Result result);  // "PASS", "FAIL": a crash and a hang are failures
Outcome run_here(const Test& test, Context context);

}  // namespace driver_test
