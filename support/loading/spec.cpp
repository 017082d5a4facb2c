#include "support/loading/spec.h"

#include <stdexcept>

namespace npu {

std::vector<std::string> split_outside_brackets(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (char c : text) {
    depth += (c == '[') - (c == ']');
    if (depth < 0) break;
    if (c == separator && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  if (depth != 0) throw std::invalid_argument("expected brackets in pairs, got \"" + std::string(text) + "\"");
  return parts;
}

std::vector<std::pair<std::string, std::string>> parse_options(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> options;
  if (text.empty()) return options;
  for (const std::string& part : split_outside_brackets(text, ':')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0)
      throw std::invalid_argument("expected options key=value separated by colons, got \"" + part + "\"");
    std::string value = part.substr(equals + 1);
    if (value.size() > 1 && value.front() == '[' && value.back() == ']') value = value.substr(1, value.size() - 2);
    options.emplace_back(part.substr(0, equals), std::move(value));
  }
  return options;
}

}  // namespace npu
