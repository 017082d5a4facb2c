// --random: commands of all sorts, mixed, each with a seed of its own.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "support/verify/trace.h"
#include "tools/driver_test/command/case.h"
#include "tools/driver_test/frame/flight.h"

namespace driver_test {

std::vector<Maker>& makers() {
  static std::vector<Maker> all;
  return all;
}

RegisterRandom::RegisterRandom(const char* name, Case (*make)(Random&)) {
  makers().push_back({name, make});
  tests().push_back({name, [make](Context& context) {
                       Rig rig(context);
                       random_cases(context, rig, make);
                     }});
}

void Case::save(const std::string& path) {
  npu_program_desc desc{};
  if (program) desc = program->desc();
  const npu_program_desc* text = program ? &desc : nullptr;
  View expected = *this;
  std::string error;
  if (expected.run_reference(&error) != NPU_OK) fail("a command that must fail is not saved: ", error);
  npu::TraceWriter out(path, "{\"made_by\": \"npu-driver-test\"}");
  for (const Buffer& b : buffers) {
    out.alloc(b.addr, std::max<uint64_t>(b.bytes.size(), 1));
    out.write(b.addr, b.bytes.data(), b.bytes.size());
  }
  if (text) out.program(1, desc);
  out.command(npu::TraceCommand(command, 1, text ? 1 : 0));
  const auto around = [&](npu_addr addr) {
    for (const Buffer& b : buffers)
      if (addr >= b.addr && addr - b.addr < b.bytes.size()) return npu::Extent{b.addr, b.bytes.size()};
    return npu::Extent{};
  };
  for (const npu::Region& region : npu::footprint(command, text, around)) {
    for (const Buffer& b : expected.buffers)
      if (region.write && region.addr >= b.addr && region.addr - b.addr < b.bytes.size())
        out.result(region.operand, region.addr, b.bytes.data() + (region.addr - b.addr), region.size, true);
  }
  out.finish();
}

int run_random(Context context, int64_t count, const std::string& filter, const std::string& save) {
  std::vector<Maker> chosen;
  for (const Maker& maker : makers())
    if (maker.name.find(filter) != std::string::npos) chosen.push_back(maker);
  if (chosen.empty()) {
    std::fprintf(stderr, "npu-driver-test: no random test has '%s' in its name; --list prints them\n", filter.c_str());
    return 2;
  }
  struct Tally {
    int64_t cases = 0, unsupported = 0;
  };
  std::map<std::string, Tally> tallies;  // by kind of command
  const bool terminal = isatty(STDERR_FILENO);
  const auto start = std::chrono::steady_clock::now();
  Rig rig(context);
  int64_t compared = 0, i = 0;
  // A driver may have nothing of what is chosen: then it ends all the same.
  const int64_t most = context.only ? *context.only + 1 : context.supported ? 1000 + 50 * count : count;
  if (context.only) i = *context.only;
  for (; i < most && (!context.supported || compared < count); i++) {
    const std::string where = say("--random ", i + 1, " --seed ", context.seed, " --case ", i);
    fly_seed(where);
    Random random = context.random(static_cast<uint64_t>(i));
    const Maker& maker = random.pick(chosen);
    Case one = maker.make(random);
    one.sharpen(context);
    if (terminal && (i % 16 == 0 || i + 1 == most))
      std::fprintf(stderr, "\r%lld/%lld %s\033[K", static_cast<long long>(i + 1), static_cast<long long>(count),
                   maker.name.c_str());
    try {
      Tally& tally = tallies[npu::command_name(one.command.kind)];
      tally.cases++;
      const bool supported = one.run(rig);
      tally.unsupported += !supported;
      compared += supported;
    } catch (const Failed& e) {
      std::printf("%sFAIL, command %lld, %s\n  %s: %s\n", terminal ? "\r\033[K" : "", static_cast<long long>(i + 1),
                  maker.name.c_str(), where.c_str(), e.text.c_str());
      if (!save.empty()) {
        try {
          one.save(save);
          std::printf("saved as %s\n", save.c_str());
        } catch (const Failed& why) {
          std::printf("not saved: %s\n", why.text.c_str());
        } catch (const std::exception& why) {
          std::printf("not saved: %s\n", why.what());
        }
      }
      return 1;
    }
  }
  if (terminal) std::fputs("\r\033[K", stderr);
  for (const auto& [kind, tally] : tallies) {
    std::printf("%-8s %lld commands, %lld unsupported\n", kind.c_str(), static_cast<long long>(tally.cases),
                static_cast<long long>(tally.unsupported));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%lld random commands, %lld compared, no difference (%.1f s)\n", static_cast<long long>(i),
              static_cast<long long>(compared), seconds);
  return 0;
}

}  // namespace driver_test
