// The tokens of the text form (docs/isa.md, "Text form").
#pragma once
#include <charconv>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "support/program/program.h"

namespace npu {

// Words and punctuation of the current line.
struct Lexer {
  std::string_view rest;  // of the current line
  int line = 0;

  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("line " + std::to_string(line) + ": " + what);
  }
  [[noreturn]] void expected(const std::string& what) {
    skip();
    fail("expected " + what + ", got " + (rest.empty() ? "the end of the line" : "'" + std::string(rest) + "'"));
  }

  void skip() {
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r')) rest.remove_prefix(1);
  }
  bool accept(std::string_view token) {
    skip();
    if (rest.substr(0, token.size()) != token) return false;
    rest.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) expected("'" + std::string(token) + "'");
  }
  std::string_view peek_word() {
    skip();
    size_t n = 0;
    while (n < rest.size() && !std::strchr(" \t\r,:()@;=%\"", rest[n]) && rest.substr(n, 2) != "->") ++n;
    return rest.substr(0, n);
  }
  std::string_view word(const char* what) {
    std::string_view found = peek_word();
    if (found.empty()) expected(what);
    rest.remove_prefix(found.size());
    return found;
  }
  bool accept_word(std::string_view token) {
    if (peek_word() != token) return false;
    rest.remove_prefix(token.size());
    return true;
  }
  uint64_t unsigned_number(const char* what, uint64_t most) {
    std::string_view text = peek_word();
    uint64_t number = 0;
    int base = text.substr(0, 2) == "0x" ? 16 : 10;
    std::string_view digits = base == 16 ? text.substr(2) : text;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || number > most) expected(what);
    rest.remove_prefix(text.size());
    return number;
  }
  uint32_t small_number(const char* what) { return static_cast<uint32_t>(unsigned_number(what, 0xffff)); }
  int dtype() {
    std::string_view text = peek_word();
    for (int i = 0; i < NPU_DTYPE_COUNT; ++i)
      if (text == dtype_name(i)) {
        rest.remove_prefix(text.size());
        return i;
      }
    expected("a type");
  }
};

}  // namespace npu
