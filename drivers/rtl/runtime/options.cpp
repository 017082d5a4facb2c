#include "drivers/rtl/runtime/options.h"

#include <cstdlib>
#include <stdexcept>

namespace rtl {
namespace {

bool parse_number(const std::string& text, uint64_t* out) {
  char* end = nullptr;
  *out = std::strtoull(text.c_str(), &end, 10);
  const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
  if (end == text.c_str() || end[shift != 0] || *out > UINT64_MAX >> shift) return false;
  *out <<= shift;
  return true;
}

std::string key_of(const std::string& pair) {
  const size_t equals = pair.find('=');
  return equals == std::string::npos ? "" : pair.substr(0, equals + 1);
}

bool assign(const Option& option, const std::string& value) {
  if (const auto* text = std::get_if<std::string*>(&option.value)) {
    **text = value;
    return !value.empty();
  }
  uint64_t number = 0;
  if (!parse_number(value, &number) || number < option.least || number > option.most) return false;
  *std::get<uint64_t*>(option.value) = number;
  return true;
}

// Pieces between colons; one that is no pair belongs to the text before it.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> pairs;
  for (size_t at = 0; at < text.size();) {
    const size_t colon = std::min(text.find(':', at), text.size());
    const std::string piece = text.substr(at, colon - at);
    if (!pairs.empty() && pairs.back().find('/') != std::string::npos && key_of(piece).empty())
      pairs.back() += ":" + piece;
    else
      pairs.push_back(piece);
    at = colon + 1;
  }
  return pairs;
}

}  // namespace

void parse_options(const std::string& text, const std::vector<Option>& known) {
  for (const std::string& pair : split(text)) {
    const std::string key = key_of(pair);
    bool fits = false;
    for (const Option& option : known)
      fits = fits || (!key.empty() && key_of(option.shown) == key && assign(option, pair.substr(key.size())));
    if (fits) continue;
    std::string all;
    for (size_t i = 0; i < known.size(); i++)
      all += (i == 0 ? "" : i + 1 < known.size() ? ", " : " or ") + std::string(known[i].shown);
    throw std::invalid_argument("expected " + all + ", got '" + pair + "'");
  }
}

}  // namespace rtl
