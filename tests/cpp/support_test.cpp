// Runs the tests of support/. `npu-support-test [part of a name]`; the exit status is 1 if any check failed.
#include <cstdlib>
#include <exception>
#include <fstream>

#include "harness.h"

namespace harness {
namespace {
int failures = 0;
const char* running = "";
}  // namespace

std::vector<Test>& tests() {
  static std::vector<Test> list;
  return list;
}

void report(const char* file, int line, const std::string& text) {
  if (++failures <= 50) std::cerr << file << ":" << line << ": " << running << ": " << text << "\n";
}

std::string isa_page() {
  std::ifstream file(NPU_ISA_PAGE);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

npu::Program isa_program(const std::string& name) {
  const std::string page = isa_page();
  const std::string start = "```npu\n", header = "program " + name + "(";
  for (size_t at = page.find(start); at != std::string::npos; at = page.find(start, at + 1)) {
    const size_t from = at + start.size(), to = page.find("```", from);
    if (page.compare(from, header.size(), header) == 0) return npu::parse(page.substr(from, to - from));
  }
  throw std::runtime_error("expected an example named " + name + " in docs/isa.md");
}

}  // namespace harness

int main(int argc, char** argv) {
  using namespace harness;
  const std::string filter = argc > 1 ? argv[1] : "";
  int ran = 0;
  for (const Test& test : tests()) {
    if (std::string(test.name).find(filter) == std::string::npos) continue;
    running = test.name;
    ++ran;
    try {
      test.body();
    } catch (const std::exception& error) {
      report(__FILE__, __LINE__, std::string("unexpected exception: ") + error.what());
    }
  }
  std::cout << ran << " tests, " << failures << " failed checks\n";
  return failures || !ran ? 1 : 0;
}
