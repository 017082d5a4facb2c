// A case, run for a test: what fails is made small and explained.
#include "tools/driver_test/command/case.h"
#include "tools/driver_test/frame/flight.h"

namespace driver_test {

bool Case::run(Rig& rig) {
  rig.context.cases++;
  const Ran ran = attempt(rig);
  if (!ran.supported) rig.context.unsupported++;
  if (ran.failed.empty()) return ran.supported;
  fail(ran.failed, "\n", describe());
}

}  // namespace driver_test
