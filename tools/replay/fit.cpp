#include "tools/replay/fit.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "support/cost/fit.h"

namespace replay {

using namespace npu;

namespace {

// The first run of a command may make its kernel, and any may be disturbed.
constexpr int kRuns = 5;

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string comment(const Fit& fit, size_t samples, const std::string& driver) {
  std::string out = "# fitted to " + std::to_string(samples) + " commands of " + driver + ": half of them within " +
                    line("%.0f %%, the worst off by a factor of %.3g\n", 100 * (fit.median_ratio - 1), fit.worst_ratio);
  if (fit.unknown.empty()) return out;
  out += "# no command tells:";
  for (const std::string& key : fit.unknown) out += " " + key;
  return out + "\n";
}

}  // namespace

std::string fitted_chip(const Trace& trace, const std::string& driver, uint32_t device, const Chip& start,
                        const std::function<void(const TraceEntry&)>& each) {
  Player player(trace, driver, device, Budget{.exact = Exact::kNo});
  std::map<uint64_t, const Program*> programs;
  std::vector<Sample> samples;
  for (const TraceEntry& entry : trace.entries) {
    if (entry.kind == Entry::kProgram) programs[entry.number] = &entry.program;
    if (entry.kind != Entry::kCommand) {
      player.step(entry);
      continue;
    }
    each(entry);
    double least = 0;
    for (int turn = 0; turn < kRuns; ++turn) {
      player.time(entry);
      const Answer& answer = player.answer();
      if (answer.kind == Answer::kNative && answer.milliseconds > 0)
        least = least > 0 ? std::min(least, answer.milliseconds) : answer.milliseconds;
    }
    player.step(entry);
    if (least <= 0) continue;
    npu_program_desc desc{};
    if (entry.command.program) desc = programs.at(entry.command.program)->desc();
    samples.push_back({work_of(entry.command.borrow(), entry.command.program ? &desc : nullptr), least});
  }
  if (samples.empty())
    throw Problem{"expected commands that " + driver + " takes, with a time by its events, got none in " + trace.path};
  const Fit fit = fit_chip(start, samples);
  return comment(fit, samples.size(), driver) + to_text(fit.chip);
}

}  // namespace replay
