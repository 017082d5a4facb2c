// npu-driver-test: loads a driver and runs every test of the suite on it.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "support/driver/json_text.h"
#include "support/legalise/table.h"
#include "tools/driver_test/case.h"

namespace driver_test {

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace driver_test

using namespace driver_test;
using npu::json_text;

namespace {

const char* help =
    "usage: npu-driver-test <name-or-path>[:options] [flags]\n"
    "  <name>          libnpu_<name>.so beside this program; a path has a '/' or ends in .so\n"
    "  --filter TEXT   only tests whose name has TEXT\n"
    "  --seed N        of the random commands (default 1)\n"
    "  --count N       random commands per test (default 200)\n"
    "  --random N      instead of the tests: N random commands of all sorts, mixed; --filter chooses sorts\n"
    "  --supported     with --random: until N commands were compared, not counting those that the driver does not "
    "have\n"
    "  --save FILE     with --random: a command that fails is written there, for npu-replay\n"
    "  --exact         floating point must agree bit for bit with the reference, functions and NaNs included\n"
    "  --exact-sums    so must sums and products; functions that isa.md lets a driver approximate, and NaNs, need not\n"
    "  --legalised     what the driver refuses is made from what it takes, as the host does it; --why prints how\n"
    "  --list          print the names of the tests\n"
    "  --json FILE     write the results there too\n"
    "exit code: 0 if nothing failed, 1 if a test failed, 2 if the driver could not be loaded or the call was wrong,\n"
    "3 if the driver crashed\n";

[[noreturn]] void stop(const std::string& text) {
  std::fprintf(stderr, "npu-driver-test: %s\n", text.c_str());
  std::exit(2);
}

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

// A crash of the driver is its worst failure: say where, and give it a code of its own. Sanitizers say more themselves.
char doing[256] = "npu_driver_get";

void on_crash(int signal) {
  static char text[512];
  const int size = std::snprintf(text, sizeof text, "\nnpu-driver-test: the driver crashed (signal %d, %s) in: %s\n",
                                 signal, strsignal(signal), doing);
  if (write(STDERR_FILENO, text, static_cast<size_t>(size)) < 0) _exit(3);
  _exit(3);
}

void watch_for_crashes() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) std::signal(signal, on_crash);
#endif
}

void now(const std::string& what) {
  std::snprintf(doing, sizeof doing, "%s", what.c_str());
}

const npu_driver* load(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) stop("expected a driver at " + path + ", got no such file");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) stop(say("the driver could not be loaded: ", dlerror()));
  auto get = reinterpret_cast<const npu_driver* (*)()>(dlsym(library, "npu_driver_get"));
  if (!get) stop(path + " is not a driver: it does not export npu_driver_get");
  const npu_driver* driver = get();
  if (const std::string problem = npu::table_problem(driver); !problem.empty()) stop(path + " " + problem);
  return driver;
}

// Simple things first: what a later test stands on was tested before it.
void sort_tests() {
  static const std::vector<std::string> groups = {"lifetime", "properties", "memory", "copy", "stream", "event",
                                                  "failure",  "threads",    "COPY",   "MAP",  "REDUCE", "SCAN",
                                                  "SORT",     "SCATTER",    "MATMUL", "CONV"};
  auto rank = [](const Test& test) {
    return std::find(groups.begin(), groups.end(), test.name.substr(0, test.name.find(':'))) - groups.begin();
  };
  std::stable_sort(tests().begin(), tests().end(), [&](const Test& a, const Test& b) { return rank(a) < rank(b); });
}

int64_t number(int argc, char** argv, int* i) {
  if (*i + 1 >= argc) stop(say("expected a number after ", argv[*i]));
  char* end = nullptr;
  const char* flag = argv[*i];
  int64_t value = std::strtoll(argv[++*i], &end, 0);
  if (*end || end == argv[*i]) stop(say("expected a number after ", flag, ", got '", argv[*i], "'"));
  return value;
}

// What the command line asks for.
struct Call {
  std::string what, filter, json, save;
  bool list = false, legalised = false, why = false;
  int64_t random = 0;
  Context context;
};

Call read(int argc, char** argv) {
  Call call;
  for (int i = 1; i < argc; i++) {
    std::string a = argv[i];
    if (a == "--help" || a == "-h") {
      std::fputs(help, stdout);
      std::exit(0);
    } else if (a == "--list") {
      call.list = true;
    } else if (a == "--legalised" || a == "--why") {
      call.legalised = true;
      call.why |= a == "--why";
    } else if (a == "--exact") {
      call.context.exact = true;
    } else if (a == "--exact-sums") {
      call.context.exact_sums = true;
    } else if (a == "--supported") {
      call.context.supported = true;
    } else if (a == "--seed") {
      call.context.seed = static_cast<uint64_t>(number(argc, argv, &i));
    } else if (a == "--count") {
      call.context.count = static_cast<int>(number(argc, argv, &i));
    } else if (a == "--random") {
      call.random = number(argc, argv, &i);
      if (call.random <= 0) stop("expected a number above 0 after --random");
    } else if ((a == "--filter" || a == "--json" || a == "--save") && i + 1 < argc) {
      (a == "--filter" ? call.filter : a == "--json" ? call.json : call.save) = argv[++i];
    } else if (a[0] != '-' && call.what.empty()) {
      call.what = a;
    } else {
      std::fputs(help, stderr);
      stop("did not expect '" + a + "'");
    }
  }
  return call;
}

void print_decision(const npu::legalise::Decision& decision) {
  std::printf("\n  %s\n", decision.command.c_str());
  if (decision.rules.empty()) std::printf("    no rule makes it\n");
  for (const std::string& rule : decision.rules) std::printf("    %s\n", rule.c_str());
  for (const std::string& step : decision.steps) std::printf("      %s\n", step.c_str());
}

// Loads the driver, sees that it has a device, and says what it is.
void open(Call& call) {
  Context& context = call.context;
  const std::string path = resolve(call.what, &context.options);
  watch_for_crashes();
  const npu_driver* driver = context.driver = load(path);
  if (call.why) npu::legalise::tell_decisions(print_decision);
  if (call.legalised) driver = context.driver = npu::legalise::legalised(driver);
  npu_instance* probe = nullptr;
  now("open, before the first test");
  if (npu_status status = driver->open(context.options.c_str(), &probe); status != NPU_OK)
    stop(say(path, ": open(\"", context.options, "\") failed: ", status_name(status), ": ", driver->error_text()));
  uint32_t devices = 0;
  driver->device_count(probe, &devices);
  driver->close(probe);
  if (devices == 0) stop(path + ": the driver has no device");
  std::printf("driver %s %s, ABI %u.%u, %u device%s, seed %llu\n", driver->name ? driver->name : "without a name",
              driver->version ? driver->version : "without a version", driver->abi_major, driver->abi_minor, devices,
              devices == 1 ? "" : "s", static_cast<unsigned long long>(context.seed));
}

struct Outcome {
  const char* result = "PASS";
  std::string why;
  double seconds = 0;
};

Outcome run(const Test& test, Context& context) {
  now(test.name);
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  try {
    test.run(context);
    outcome.why = context.note;
  } catch (const NotSupported& e) {
    outcome = {"UNSUPPORTED", e.text};
  } catch (const Failed& e) {
    outcome = {"FAIL", e.text};
  } catch (const std::exception& e) {
    outcome = {"FAIL", say("the suite itself threw: ", e.what())};
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

void print(const Outcome& outcome) {
  const std::string& why = outcome.why;
  if (why.find('\n') != std::string::npos)
    std::printf("%s\n%s\n", outcome.result, why.c_str());
  else
    std::printf("%s%s%s%s\n", outcome.result, why.empty() ? "" : " (", why.c_str(), why.empty() ? "" : ")");
}

int run_tests(const Call& call) {
  int passed = 0, unsupported = 0, number_of = 0, total = 0;
  std::string rows;
  std::vector<std::string> failures;
  for (const Test& test : tests()) total += test.name.find(call.filter) != std::string::npos;
  if (total == 0) stop("no test has '" + call.filter + "' in its name; --list prints them");
  for (const Test& test : tests()) {
    if (test.name.find(call.filter) == std::string::npos) continue;
    std::printf("[%2d/%d] %-72s ", ++number_of, total, test.name.c_str());
    std::fflush(stdout);
    Context context = call.context;
    const Outcome outcome = run(test, context);
    print(outcome);
    passed += *outcome.result == 'P';
    unsupported += *outcome.result == 'U';
    if (*outcome.result == 'F') failures.push_back(test.name);
    rows += say(rows.empty() ? "" : ",\n", "  {\"test\": ", json_text(test.name), ", \"result\": \"", outcome.result,
                "\", \"why\": ", json_text(outcome.why), ", \"cases\": ", context.cases,
                ", \"unsupported\": ", context.unsupported, ", \"seconds\": ", outcome.seconds, "}");
  }
  for (const std::string& name : failures) std::printf("failed: %s\n", name.c_str());
  std::printf("%d passed, %d failed, %d unsupported\n", passed, static_cast<int>(failures.size()), unsupported);
  if (!call.json.empty()) {
    const npu_driver* driver = call.context.driver;
    std::ofstream out(call.json);
    out << "{\"driver\": " << json_text(driver->name) << ", \"version\": " << json_text(driver->version)
        << ", \"seed\": " << call.context.seed << ", \"passed\": " << passed << ", \"failed\": " << failures.size()
        << ", \"unsupported\": " << unsupported << ", \"tests\": [\n"
        << rows << "\n]}\n";
    if (!out) stop("could not write " + call.json);
  }
  return failures.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  sort_tests();
  Call call = read(argc, argv);
  if (call.list) {
    for (const Test& test : tests()) std::printf("%s\n", test.name.c_str());
    return 0;
  }
  if (call.what.empty()) {
    std::fputs(help, stderr);
    return 2;
  }
  open(call);
  if (!call.random) return run_tests(call);
  now("a random command");
  return run_random(call.context, call.random, call.filter, call.save);
}
