#include <fstream>
#include <stdexcept>

#include "tests/cpp/support/command.h"

namespace harness {

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
