#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tests/cpp/harness/harness.h"

namespace harness {
namespace {

constexpr int kMostShown = 5;  // failed checks of one test
std::atomic<int> failures{0};  // of the running test
uint64_t chosen_seed = 1;
int chosen_work = 1;

const char* const kHelp =
    "usage: %s [part of a name] [--seed N] [--work N] [--list] [--help]\n"
    "  part of a name  only tests that have it; without it, all but those that --list shows as on request\n"
    "  --seed N        where random tests begin (default 1)\n"
    "  --work N        N times the usual number of random steps (default 1)\n"
    "exit code: 0 if every check held, 1 if not or if no test ran, 2 if the call was wrong\n";

struct Call {
  const char* part = "";
  bool list = false;
};

[[noreturn]] void leave(const char* program, std::FILE* to, int code) {
  std::fprintf(to, kHelp, program);
  std::exit(code);
}

Call read(int argc, char** argv) {
  Call call;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help") leave(argv[0], stdout, 0);
    if (word == "--list") {
      call.list = true;
    } else if ((word == "--seed" || word == "--work") && i + 1 < argc) {
      char* end = nullptr;
      const uint64_t number = std::strtoull(argv[++i], &end, 0);
      if (*end) leave(argv[0], stderr, 2);
      if (word == "--seed") chosen_seed = number;
      if (word == "--work") chosen_work = static_cast<int>(number);
    } else if (word[0] == '-' || *call.part) {
      leave(argv[0], stderr, 2);
    } else {
      call.part = argv[i];
    }
  }
  return call;
}

bool run(const Test& test) {
  failures = 0;
  try {
    test.body();
  } catch (const std::exception& error) {
    fail(std::string("expected no exception, got: ") + error.what());
  }
  std::printf("%s %s\n", failures ? "FAIL" : "ok  ", test.name);
  std::fflush(stdout);
  return failures == 0;
}

}  // namespace

std::vector<Test>& tests() {
  static std::vector<Test> list;
  return list;
}

void fail(const std::string& text) {
  if (++failures <= kMostShown) std::printf("  %s\n", text.c_str());
}

void report(const char* file, int line, const std::string& text) {
  fail(std::string(file) + ":" + std::to_string(line) + ": " + text);
}

uint64_t seed() {
  return chosen_seed;
}

int work(int usual) {
  return usual * chosen_work;
}

}  // namespace harness

int main(int argc, char** argv) {
  using namespace harness;
  const Call call = read(argc, argv);
  int ran = 0, failed = 0;
  for (const Test& test : tests()) {
    const bool asked = test.when == When::kAlways || *call.part;
    if (!std::strstr(test.name, call.part)) continue;
    if (call.list) std::printf("%s%s\n", test.name, test.when == When::kAlways ? "" : " (on request)");
    if (call.list || !asked) continue;
    ++ran;
    failed += !run(test);
  }
  if (call.list) return 0;
  std::printf("%d tests, %d failed\n", ran, failed);
  return failed || !ran ? 1 : 0;
}
