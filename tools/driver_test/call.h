// What the command line asks for.
#pragma once
#include <string>

#include "tools/driver_test/frame/suite.h"

namespace driver_test {

struct Call {
  std::string driver, filter, json, save, log, from;
  bool list = false, legalised = false, why = false, in_process = false, first = false;
  int64_t random = 0;
  int jobs = 1;
  double limit = 120;
  Context context;
};

extern const char* const help;

// Ends the program with status 2: the call was wrong, or the driver cannot be loaded.
[[noreturn]] void stop(const std::string& text);

Call read_call(int argc, char** argv);

}  // namespace driver_test
