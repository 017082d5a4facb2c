// key=value pairs separated by colons.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace rtl {

struct Option {
  const char* shown;  // "memory=16M..64G": the key, and for people what it takes
  std::variant<uint64_t*, std::string*> value;
  uint64_t least = 0, most = 0;  // of a number, which may end in K, M or G
};

// A value of text may hold colons, as PCI addresses do, unless a key follows. Throws std::invalid_argument.
void parse_options(const std::string& text, const std::vector<Option>& known);

}  // namespace rtl
