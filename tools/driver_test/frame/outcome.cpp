#include "tools/driver_test/frame/outcome.h"

#include <chrono>

namespace driver_test {

const char* result_name(Outcome::Result result) {
  return result == Outcome::kPass ? "PASS" : result == Outcome::kUnsupported ? "UNSUPPORTED" : "FAIL";
}

Outcome run_here(const Test& test, Context context) {
  Outcome outcome;
  context.test = test.name;
  const auto start = std::chrono::steady_clock::now();
  try {
    test.run(context);
    outcome.why = context.note;
  } catch (const NotSupported& e) {
    outcome.result = Outcome::kUnsupported;
    outcome.why = e.text;
  } catch (const Failed& e) {
    outcome.result = Outcome::kFail;
    outcome.why = e.text;
  } catch (const std::exception& e) {
    outcome.result = Outcome::kFail;
    outcome.why = say("the suite itself threw: ", e.what());
  }
  outcome.cases = context.cases;
  outcome.unsupported = context.unsupported;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

}  // namespace driver_test
