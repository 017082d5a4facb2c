#include "tools/driver_test/results.h"

#include <cstdio>
#include <fstream>

#include "support/driver/json_text.h"
#include "tools/driver_test/frame/flight.h"

namespace driver_test {

Results::Results(const Call& call, std::string name, std::string version, std::vector<Test> tests)
    : call_(call), name_(std::move(name)), version_(std::move(version)), tests_(std::move(tests)) {}

void Results::started(size_t number) {
  log_flight(say(tests_[number].name, ", seed ", call_.context.seed));
  if (call_.jobs > 1) return;  // lines of several tests would mix; with --log they are in the file
  std::printf("[%2zu/%zu] %-72s ", number + 1, tests_.size(), tests_[number].name.c_str());
  std::fflush(stdout);
}

void Results::ended(size_t number, const Outcome& outcome) {
  if (call_.jobs > 1) std::printf("[%2zu/%zu] %-72s ", number + 1, tests_.size(), tests_[number].name.c_str());
  const std::string& why = outcome.why;
  const char* result = result_name(outcome.result);
  if (why.find('\n') != std::string::npos)
    std::printf("%s\n%s\n", result, why.c_str());
  else
    std::printf("%s%s%s%s\n", result, why.empty() ? "" : " (", why.c_str(), why.empty() ? "" : ")");
  std::fflush(stdout);
  passed_ += outcome.result == Outcome::kPass;
  unsupported_ += outcome.result == Outcome::kUnsupported;
  broke_ |= outcome.result == Outcome::kCrash || outcome.result == Outcome::kHang;
  if (outcome.failed()) failures_.push_back(tests_[number].name);
  static const char* const how[] = {"passed", "unsupported", "failed", "crashed", "hung"};
  rows_.push_back(say("  {\"test\": ", npu::json_text(tests_[number].name), ", \"result\": \"", result,
                      "\", \"ended\": \"", how[outcome.result], "\", \"why\": ", npu::json_text(why),
                      ", \"cases\": ", outcome.cases, ", \"unsupported\": ", outcome.unsupported,
                      ", \"seconds\": ", outcome.seconds, "}"));
}

void Results::write_json() const {
  std::ofstream out(call_.json);
  out << "{\"driver\": " << npu::json_text(name_) << ", \"version\": " << npu::json_text(version_)
      << ", \"seed\": " << call_.context.seed << ", \"passed\": " << passed_ << ", \"failed\": " << failures_.size()
      << ", \"unsupported\": " << unsupported_ << ", \"tests\": [\n";
  for (size_t i = 0; i < rows_.size(); i++) out << rows_[i] << (i + 1 < rows_.size() ? ",\n" : "\n");
  out << "]}\n";
  if (!out) stop("could not write " + call_.json);
}

int Results::finish() const {
  for (const std::string& name : failures_) std::printf("failed: %s\n", name.c_str());
  std::printf("%d passed, %d failed, %d unsupported\n", passed_, static_cast<int>(failures_.size()), unsupported_);
  if (!call_.json.empty()) write_json();
  return broke_ ? 3 : failures_.empty() ? 0 : 1;
}

}  // namespace driver_test
