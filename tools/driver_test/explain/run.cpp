// A case, run for a test: what fails is explained and made small.
#include <utility>

#include "tools/driver_test/explain/trial.h"
#include "tools/driver_test/frame/flight.h"

namespace driver_test {

bool Case::run(Rig& rig) {
  static thread_local std::vector<npu_scalar> last_params;
  rig.context.cases++;
  const Ran ran = attempt(rig);
  const std::vector<npu_scalar> before = std::exchange(last_params, params);
  if (!ran.supported) rig.context.unsupported++;
  if (ran.failed.empty()) return ran.supported;
  std::string text = ran.failed + "\n" + describe();
  fly_failure(text);  // in case that looking closer ends the process
  const std::string looks = explanation(*this, ran, before);
  text = ran.failed + looks + "\n" + describe();
  fly_failure(text);
  fail(text, smaller(rig, *this, ran));
}

}  // namespace driver_test
