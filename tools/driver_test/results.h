// What the suite says: a line for each test, a sum, and a JSON file.
#pragma once
#include <string>
#include <vector>

#include "tools/driver_test/call.h"
#include "tools/driver_test/frame/outcome.h"

namespace driver_test {

class Results {
 public:
  Results(const Call& call, std::string name, std::string version, std::vector<Test> tests);
  void started(size_t number);
  void ended(size_t number, const Outcome& outcome);
  int finish() const;  // prints the sum and writes the JSON. The exit status

 private:
  void write_json() const;
  const Call& call_;
  std::string name_, version_;
  std::vector<Test> tests_;
  std::vector<std::string> rows_, failures_;
  int passed_ = 0, unsupported_ = 0;
  bool broke_ = false;  // a test crashed or hung
};

}  // namespace driver_test
