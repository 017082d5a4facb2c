// npu-replay: plays a recording (.npt) on a driver and compares what it answers with what was recorded.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "tools/replay/fit.h"
#include "tools/replay/plan.h"
#include "tools/replay/player.h"
#include "tools/replay/vector.h"

using namespace npu;

namespace {

const char* help =
    "usage: npu-replay FILE.npt [--driver NAME-OR-PATH[:OPTIONS]] [flags]\n"
    "  --driver X      the driver to play on (default cmodel:mode=exact)\n"
    "  --device N      which of its devices (default 0)\n"
    "  --exact         results must agree bit for bit, as in docs/isa.md (default)\n"
    "  --split         as --exact, but MATMUL and CONV of f32 and f64 as --budget: for matrix engines with bf16 only\n"
    "  --budget        float sums may be off by one rounding per term, functions by their budget: for drivers without "
    "an\n"
    "                  exact mode\n"
    "  --list          print what the recording holds\n"
    "  --command N     with --out FILE.npt or --vector FILE.json: that command only, as a recording or a test vector\n"
    "  --vector FILE   write the command as JSON, for a bench in another language; FILE - is standard output\n"
    "  --cocotb FILE   write the command as packets for the bench of the RTL (docs/rtl.md), as --driver lowers it "
    "(rtl)\n"
    "  --plan FILE     what the driver makes of each command, as JSON: takes it, refuses it in what words, has it made "
    "from\n"
    "                  others; and the time by its events\n"
    "  --fit FILE      a chip's file for what-if, from the times by its events; --chip FILE is where the search "
    "begins\n"
    "  --quiet         no progress bar\n"
    "exit code: 0 if all results agree, 1 at the first difference, 2 if the file, the driver or the call was wrong\n";

[[noreturn]] void stop(const std::string& text) {
  std::fprintf(stderr, "npu-replay: %s\n", text.c_str());
  std::exit(2);
}

struct Options {
  std::string file, driver = "cmodel:mode=exact", out, vector, cocotb, plan, fit, chip;
  uint64_t command = 0;
  uint32_t device = 0;
  bool list = false, quiet = false, driver_given = false;
  Budget budget;
};

uint64_t number(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(text.c_str(), &end, 0);
  if (text.empty() || *end || text[0] == '-') stop("expected a number after " + flag + ", got '" + text + "'");
  return value;
}

Options parse_arguments(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto value = [&] {
      if (i + 1 >= argc) stop("expected a value after " + a);
      return std::string(argv[++i]);
    };
    if (a == "--help" || a == "-h") {
      std::fputs(help, stdout);
      std::exit(0);
    } else if (a == "--driver") {
      options.driver = value();
      options.driver_given = true;
    } else if (a == "--device") {
      options.device = static_cast<uint32_t>(number(a, value()));
    } else if (a == "--exact" || a == "--split" || a == "--budget") {
      options.budget.exact = a == "--exact" ? Exact::kYes : a == "--split" ? Exact::kSplit : Exact::kNo;
    } else if (a == "--list") {
      options.list = true;
    } else if (a == "--command") {
      options.command = number(a, value());
    } else if (a == "--out") {
      options.out = value();
    } else if (a == "--vector") {
      options.vector = value();
    } else if (a == "--plan") {
      options.plan = value();
    } else if (a == "--fit" || a == "--chip") {
      (a == "--fit" ? options.fit : options.chip) = value();
    } else if (a == "--cocotb") {
      options.cocotb = value();
    } else if (a == "--quiet") {
      options.quiet = true;
    } else if (a[0] != '-' && options.file.empty()) {
      options.file = a;
    } else {
      std::fputs(help, stderr);
      stop("did not expect '" + a + "'");
    }
  }
  if (options.file.empty()) {
    std::fputs(help, stderr);
    std::exit(2);
  }
  return options;
}

class Progress {
 public:
  Progress(uint64_t total, bool quiet) : total_(total), shown_(!quiet && isatty(STDERR_FILENO)) {}
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void step(const std::string& label) {
    ++done_;
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || (now - last_ < std::chrono::milliseconds(50) && done_ != total_)) return;
    last_ = now;
    const int filled = static_cast<int>(30 * done_ / std::max<uint64_t>(total_, 1));
    std::fprintf(stderr, "\r[%.*s%.*s] %llu/%llu %s\033[K", filled, "##############################", 30 - filled,
                 "..............................", static_cast<unsigned long long>(done_),
                 static_cast<unsigned long long>(total_), label.c_str());
  }

 private:
  uint64_t total_, done_ = 0;
  bool shown_;
  std::chrono::steady_clock::time_point last_{};
};

// The driver that lowers commands to packets writes them, with the memory they need, for the first command it runs.
void export_packets(const Trace& one, const Options& options) {
  const std::string part = options.cocotb + ".part", written = part + "-1.json";
  setenv("TORCH_NPU_RTL_TRACE", ("1@" + part + ".json").c_str(), 1);
  std::remove(written.c_str());
  const std::string driver = options.driver_given ? options.driver : "rtl";
  replay::Player player(one, driver, options.device, options.budget);
  const std::string difference = player.play(0, [](const TraceEntry&) {});
  if (!difference.empty()) std::printf("note: on %s %s\n", driver.c_str(), difference.c_str());
  if (player.counts().refused) stop(driver + " does not have this command: it has no packets");
  if (std::rename(written.c_str(), options.cocotb.c_str()) != 0)
    stop("expected " + driver + " to write " + written + ", got nothing: packets are those of driver rtl");
}

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::fputs(text.c_str(), stdout);
    return;
  }
  std::ofstream file(path);
  file << text;
  if (!file.flush()) stop("could not write " + path);
}

// The one command, from the file itself or cut out of it by playing all before it.
int extract(const Trace& trace, const Options& options) {
  if (options.out.empty() && options.vector.empty() && options.cocotb.empty())
    stop("expected --out FILE, --vector FILE or --cocotb FILE with --command");
  std::optional<Trace> one;
  if (trace.commands == 1 && options.out.empty()) {
    one = trace;
  } else {
    uint64_t wanted = options.command;
    if (wanted == 0 && trace.commands != 1)
      stop("expected --command N: the recording has " + std::to_string(trace.commands) + " commands");
    for (const TraceEntry& entry : trace.entries)
      if (wanted == 0 && entry.kind == Entry::kCommand) wanted = entry.command.number;
    // The driver of --cocotb numbers the commands it runs, and must see no other.
    const std::string driver = options.cocotb.empty() ? options.driver : "cmodel:mode=exact";
    replay::Player player(trace, driver, options.device, options.budget);
    const std::string difference = player.play(wanted, [](const TraceEntry&) {});
    if (!difference.empty()) stop("a command before it gives other results on " + driver + ": " + difference);
    const std::string path = !options.out.empty() ? options.out : options.vector + options.cocotb + ".part";
    player.extract(path);
    one = read_trace(path);
    if (options.out.empty()) std::remove(path.c_str());
  }
  if (!options.cocotb.empty()) export_packets(*one, options);
  if (!options.vector.empty()) {
    write_text(options.vector, replay::vector_json(*one));
  }
  return 0;
}

int plan(const Trace& trace, const Options& options) {
  Progress progress(trace.commands, options.quiet);
  const std::string json = replay::plan_json(trace, options.driver, options.device,
                                             [&](const TraceEntry& entry) { progress.step(entry.command.label); });
  write_text(options.plan, json);
  return 0;
}

int fit(const Trace& trace, const Options& options) {
  Chip start;
  if (!options.chip.empty()) {
    std::ifstream file(options.chip);
    if (!file) stop("expected the description of a chip at " + options.chip + ", got no such file");
    start = parse_chip(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  Progress progress(trace.commands, options.quiet);
  write_text(options.fit, replay::fitted_chip(trace, options.driver, options.device, start,
                                              [&](const TraceEntry& entry) { progress.step(entry.command.label); }));
  return 0;
}

int play(const Trace& trace, const Options& options) {
  replay::Player player(trace, options.driver, options.device, options.budget);
  std::string difference;
  {
    Progress progress(trace.commands, options.quiet);
    difference = player.play(0, [&](const TraceEntry& entry) { progress.step(entry.command.label); });
  }
  const replay::Counts& counts = player.counts();
  if (!difference.empty()) std::printf("DIFFERENCE on %s: %s\n", options.driver.c_str(), difference.c_str());
  std::printf(
      "%llu of %llu commands compared on %s: %llu bit for bit, %llu within budget (%.0f %% of it used), %llu "
      "unsupported; %llu bytes\n",
      static_cast<unsigned long long>(counts.commands), static_cast<unsigned long long>(trace.commands),
      options.driver.c_str(), static_cast<unsigned long long>(counts.same_bits),
      static_cast<unsigned long long>(counts.within_budget), counts.used * 100,
      static_cast<unsigned long long>(counts.refused), static_cast<unsigned long long>(counts.bytes));
  return difference.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_arguments(argc, argv);
  try {
    const Trace trace = read_trace(options.file);
    if (trace.cut_off)
      std::fprintf(stderr,
                   "npu-replay: %s is cut off after %llu commands: the process that recorded it ended, and the last "
                   "command may be the one that was under way\n",
                   options.file.c_str(), static_cast<unsigned long long>(trace.commands));
    if (options.list) {
      replay::print_list(trace);
      return 0;
    }
    if (options.command || !options.out.empty() || !options.vector.empty() || !options.cocotb.empty())
      return extract(trace, options);
    if (!options.fit.empty()) return fit(trace, options);
    if (!options.plan.empty()) return plan(trace, options);
    return play(trace, options);
  } catch (const replay::Problem& problem) {
    stop(problem.text);
  } catch (const std::exception& problem) {
    stop(problem.what());
  }
}
