#include "tests/cpp/legalise/trial.h"

#include "tools/driver_test/case.h"

namespace legalise_test {

using driver_test::Case;
using driver_test::Context;
using driver_test::Failed;
using driver_test::Maker;
using driver_test::Random;
using driver_test::Rig;

Tally try_commands(const Make& make, uint32_t kinds, int enough, uint64_t seed) {
  Context context;
  context.driver = making_driver(make);
  Rig rig(context);
  Tally tally;
  // A rule may fit one of a hundred random commands.
  const int most = 100 * enough;
  for (int turn = 0; turn < most && tally.fitted < enough; ++turn) {
    for (const Maker& maker : driver_test::makers()) {
      if (tally.fitted >= enough) break;
      Random random(seed + static_cast<uint64_t>(turn));
      // The first part of a maker's name says its kind; making a case only to look at it takes longer.
      const std::string kind = maker.name.substr(0, maker.name.find(':'));
      bool wanted = false;
      for (int k = 0; k < NPU_COMMAND_COUNT; ++k) wanted |= (kinds >> k & 1) && kind == npu::command_name(k);
      if (!wanted) continue;
      Case one = maker.make(random);
      ++tally.commands;
      try {
        tally.fitted += one.run(rig);
      } catch (const Failed& failed) {
        tally.failure =
            maker.name + ", seed " + std::to_string(seed + static_cast<uint64_t>(turn)) + ": " + failed.text;
        return tally;
      }
    }
  }
  return tally;
}

uint64_t below(uint64_t n, uint64_t* seed) {
  Random random(*seed);
  *seed = random.next();
  return n ? *seed % n : 0;
}

}  // namespace legalise_test
