// npu-driver-test: loads a driver and runs every test of the suite on it.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "support/legalise/table.h"
#include "tools/driver_test/call.h"
#include "tools/driver_test/command/case.h"
#include "tools/driver_test/frame/apart.h"
#include "tools/driver_test/frame/flight.h"
#include "tools/driver_test/frame/watched.h"
#include "tools/driver_test/results.h"
#include "tools/driver_test/tests/recorded.h"

using namespace driver_test;

namespace {

// "name:options" or "/path/lib.so:options".
std::string resolve(const std::string& what, std::string* options) {
  size_t colon = what.find(':');
  *options = colon == std::string::npos ? "" : what.substr(colon + 1);
  std::string name = what.substr(0, colon);
  if (name.find('/') != std::string::npos) return name;
  if (name.size() > 3 && name.compare(name.size() - 3, 3, ".so") == 0) return "./" + name;
  char self[4096];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  std::string folder = n > 0 ? std::string(self, static_cast<size_t>(n)) : "./";
  return folder.substr(0, folder.rfind('/') + 1) + "libnpu_" + name + ".so";
}

// With --in-process nobody else can say where the driver crashed. Sanitizers say more themselves.
void on_crash(int signal) {
  const std::string where = flight().in_flight();
  std::fprintf(stderr, "\nnpu-driver-test: the driver crashed (signal %d, %s) in %s\n  %s\n", signal, strsignal(signal),
               where.empty() ? "none of its functions" : where.c_str(), flight().seed);
  _exit(3);
}

void watch_for_crashes() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) std::signal(signal, on_crash);
#endif
}

void print_decision(const npu::legalise::Decision& decision) {
  std::printf("\n  %s\n", decision.command.c_str());
  if (decision.rules.empty()) std::printf("    no rule makes it\n");
  for (const std::string& rule : decision.rules) std::printf("    %s\n", rule.c_str());
  for (const std::string& step : decision.steps) std::printf("      %s\n", step.c_str());
}

// Throws Failed with a sentence if this is no driver.
const npu_driver* load(const Call& call) {
  std::string options;
  const std::string path = resolve(call.driver, &options);
  if (access(path.c_str(), R_OK) != 0) fail("expected a driver at ", path, ", got no such file");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail("the driver could not be loaded: ", dlerror());
  auto get = reinterpret_cast<const npu_driver* (*)()>(dlsym(library, "npu_driver_get"));
  if (!get) fail(path, " is not a driver: it does not export npu_driver_get");
  InCall in("npu_driver_get");
  const npu_driver* driver = get();
  if (const std::string problem = npu::table_problem(driver); !problem.empty()) fail(path, " ", problem);
  if (call.why) npu::legalise::tell_decisions(print_decision);
  return watched(call.legalised ? npu::legalise::legalised(driver) : driver);
}

// Opens the driver, sees that it has a device, and says what it is: name and version in two lines, then a text for
// people.
std::string introduce(const Call& call, const npu_driver& driver) {
  const Context& context = call.context;
  npu_instance* probe = nullptr;
  if (npu_status status = driver.open(context.options.c_str(), &probe); status != NPU_OK)
    fail(call.driver, ": open(\"", context.options, "\") failed: ", status_name(status), ": ", driver.error_text());
  uint32_t devices = 0;
  driver.device_count(probe, &devices);
  driver.close(probe);
  if (devices == 0) fail(call.driver, ": the driver has no device");
  const std::string name = driver.name ? driver.name : "without a name";
  const std::string version = driver.version ? driver.version : "without a version";
  return say(name, "\n", version, "\ndriver ", name, " ", version, ", ABI ", driver.abi_major, ".", driver.abi_minor,
             ", ", devices, " device", devices == 1 ? "" : "s", ", seed ", context.seed);
}

// Simple things first: what a later test stands on was tested before it.
std::vector<Test> chosen_tests(const std::string& filter) {
  static const std::vector<std::string> groups = {"lifetime", "properties", "memory", "copy",   "stream", "event",
                                                  "failure",  "COPY",       "MAP",    "REDUCE", "SCAN",   "SORT",
                                                  "SCATTER",  "MATMUL",     "CONV",   "order",  "threads"};
  auto rank = [](const Test& test) {
    return std::find(groups.begin(), groups.end(), test.name.substr(0, test.name.find(':'))) - groups.begin();
  };
  std::stable_sort(tests().begin(), tests().end(), [&](const Test& a, const Test& b) { return rank(a) < rank(b); });
  std::vector<Test> out;
  for (const Test& test : tests())
    if (test.name.find(filter) != std::string::npos) out.push_back(test);
  return out;
}

// Runs pieces in processes of their own, or all here.
void run_pieces(const Call& call, const std::vector<Piece>& pieces, const Apart& how) {
  if (!call.in_process) return run_apart(pieces, how);
  for (size_t i = 0; i < pieces.size(); i++) {
    how.started(i);
    if (how.ended(i, pieces[i].run())) return;
  }
}

Outcome outcome_of(const std::function<std::string()>& work) {
  Outcome outcome;
  try {
    outcome.why = work();
  } catch (const Failed& e) {
    outcome.result = Outcome::kFail;
    outcome.why = e.text;
  }
  return outcome;
}

int run_suite(Call& call) {
  // Loaded where it is used: a driver that crashes while it is loaded takes nobody along.
  const auto loaded = [&]() -> const npu_driver& {
    if (!call.context.driver) call.context.driver = load(call);
    return *call.context.driver;
  };
  Apart how;
  how.limit_seconds = call.limit;
  Outcome first;
  how.ended = [&](size_t, const Outcome& outcome) { return first = outcome, true; };
  run_pieces(call, {{"open", [&] { return outcome_of([&] { return introduce(call, loaded()); }); }}}, how);
  if (first.result == Outcome::kCrash || first.result == Outcome::kHang) {
    std::fprintf(stderr, "npu-driver-test: before the first test: %s\n", first.why.c_str());
    return 3;
  }
  if (first.failed()) stop(first.why);
  const size_t line = first.why.find('\n'), text = first.why.find('\n', line + 1);
  std::printf("%s\n", first.why.c_str() + text + 1);

  if (call.random) {
    int status = 3;
    how.ended = [&](size_t, const Outcome& outcome) {
      status = static_cast<int>(outcome.cases);
      if (outcome.failed()) std::fprintf(stderr, "npu-driver-test: %s\n", outcome.why.c_str()), status = 3;
      return true;
    };
    const auto run = [&] {
      loaded();
      Outcome outcome;
      outcome.cases = run_random(call.context, call.random, call.filter, call.save);
      return outcome;
    };
    run_pieces(call, {{"a random command", run}}, how);
    return status;
  }
  if (!call.from.empty()) tests() = recorded_tests(call.from);
  const std::vector<Test> chosen = chosen_tests(call.filter);
  if (chosen.empty()) stop("no test has '" + call.filter + "' in its name; --list prints them");
  Results results(call, first.why.substr(0, line), first.why.substr(line + 1, text - line - 1), chosen);
  std::vector<Piece> pieces;
  for (const Test& test : chosen) pieces.push_back({test.name, [&] { return loaded(), run_here(test, call.context); }});
  how.jobs = call.jobs;
  how.started = [&](size_t number) { results.started(number); };
  how.ended = [&](size_t number, const Outcome& outcome) {
    results.ended(number, outcome);
    return call.first && outcome.failed();
  };
  run_pieces(call, pieces, how);
  return results.finish();
}

}  // namespace

int main(int argc, char** argv) {
  Call call = read_call(argc, argv);
  if (call.list) {
    for (const Test& test : chosen_tests("")) std::printf("%s\n", test.name.c_str());
    return 0;
  }
  if (call.driver.empty()) {
    std::fputs(help, stderr);
    return 2;
  }
  try {
    resolve(call.driver, &call.context.options);
    if (!call.log.empty()) log_flight_to(call.log);
    if (call.in_process) watch_for_crashes();
    return run_suite(call);
  } catch (const std::exception& e) {
    stop(e.what());
  }
}
