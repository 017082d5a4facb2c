#include "drivers/cmodel/runtime/options.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>

#include "support/loading/spec.h"

namespace cmodel {
namespace {

constexpr const char* kKeys =
    "devices=N, memory=SIZE, base=ADDRESS, regions=NAME@ADDRESS+SIZE/..., mode=fast|exact, threads=N, inline_ns=N, "
    "chip=FILE; "
    "SIZE may end in K, M, G or T";
constexpr uint64_t kMinMemory = 1 << 20;
constexpr uint64_t kMaxMemory = uint64_t{1} << 42;  // leaves room for ranges below the next device

bool number(std::string_view text, uint64_t* out) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), *out, hex ? 16 : 10);
  return bad == std::errc() && end == text.data() + text.size();
}

bool bytes(std::string_view text, uint64_t* out) {
  int shift = 0;
  if (!text.empty()) {
    switch (text.back()) {
      case 'K':
      case 'k':
        shift = 10;
        break;
      case 'M':
      case 'm':
        shift = 20;
        break;
      case 'G':
      case 'g':
        shift = 30;
        break;
      case 'T':
      case 't':
        shift = 40;
        break;
      default:
        break;
    }
  }
  if (shift) text.remove_suffix(1);
  if (!number(text, out) || *out > (UINT64_MAX >> shift)) return false;
  *out <<= shift;
  return *out >= kMinMemory && *out <= kMaxMemory;
}

// What this process may use: the machine's memory, or the limit of its control group.
uint64_t host_memory() {
  uint64_t total = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    uint64_t limit = 0;
    if (file >> limit && limit > 0) total = std::min(total, limit);
  }
  return total;
}

bool parse_regions(std::string_view text, std::vector<RegionOptions>* out) {
  while (!text.empty()) {
    const size_t slash = text.find('/');
    const std::string_view item = text.substr(0, slash);
    const size_t at = item.find('@'), plus = item.find('+');
    if (at == std::string_view::npos || plus == std::string_view::npos || at == 0 || plus < at) return false;
    RegionOptions region;
    region.name = item.substr(0, at);
    if (!number(item.substr(at + 1, plus - at - 1), &region.base) || !bytes(item.substr(plus + 1), &region.size))
      return false;
    out->push_back(std::move(region));
    if (slash == std::string_view::npos) break;
    text.remove_prefix(slash + 1);
  }
  return !out->empty() && out->size() <= 8;
}

bool check_regions(const Options& options, std::string* error) {
  uint64_t low = UINT64_MAX, high = 0;
  for (size_t i = 0; i < options.regions.size(); ++i) {
    const RegionOptions& a = options.regions[i];
    if (a.base == 0 || a.base % (64 << 10) != 0 || a.base > UINT64_MAX / 2) {
      *error = "expected a memory base that is a multiple of 64K between 64K and 2^63, got that of region " + a.name;
      return false;
    }
    low = std::min(low, a.base);
    high = std::max(high, a.base + a.size);
    for (size_t j = 0; j < i; ++j) {
      const RegionOptions& b = options.regions[j];
      if (a.base < b.base + b.size && b.base < a.base + a.size) {
        *error = "expected memory regions apart from each other, got " + b.name + " and " + a.name + " overlapping";
        return false;
      }
    }
  }
  if (high - low > kMaxMemory) {
    *error = "expected all regions of a device within 4T of addresses, got more; choose nearer bases";
    return false;
  }
  return true;
}

// What memory= and base= say, or nothing.
struct PlainMemory {
  uint64_t size = 0, base = kDefaultBase;
  bool given = false;
};

// What values the option may have; null: there is no such option. *good: this is one of them.
const char* set_option(std::string_view key, std::string_view value, Options* out, PlainMemory* plain, bool* good) {
  uint64_t n = 0;
  if (key == "devices") {
    *good = number(value, &n) && n >= 1 && n <= 64;
    out->devices = static_cast<uint32_t>(n);
    return "1 to 64";
  }
  if (key == "memory" || key == "base") {
    plain->given = true;
    *good = key == "memory" ? bytes(value, &plain->size) : number(value, &plain->base);
    return key == "memory" ? "1M to 4T" : "an address";
  }
  if (key == "regions") {
    *good = parse_regions(value, &out->regions);
    return "NAME@ADDRESS+SIZE, several with /";
  }
  if (key == "mode") {
    *good = value == "fast" || value == "exact";
    out->exact = value == "exact";
    return "fast or exact";
  }
  if (key == "threads") {
    *good = number(value, &n) && n >= 1 && n <= 256;
    out->threads = static_cast<int>(n);
    return "1 to 256";
  }
  if (key == "inline_ns") {
    *good = number(value, &n) && n <= 1'000'000'000;
    out->inline_ns = static_cast<int64_t>(n);
    return "0 to 1000000000";
  }
  if (key == "chip") {
    *good = !value.empty();
    const bool brackets = value.starts_with('[') && value.ends_with(']');
    out->chip = brackets ? value.substr(1, value.size() - 2) : value;
    return "a file";
  }
  return nullptr;
}

}  // namespace

bool parse_options(const char* text, Options* out, std::string* error) {
  PlainMemory plain;
  std::vector<std::string> parts;
  try {
    parts = npu::split_outside_brackets(text ? text : "", ':');
  } catch (const std::invalid_argument& wrong) {
    *error = wrong.what();
    return false;
  }
  for (const std::string_view item : parts) {
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
    bool good = false;
    const char* wanted = set_option(key, value, out, &plain, &good);
    if (!wanted) {
      *error = "expected an option of the C model (" + std::string(kKeys) + "), got \"" + std::string(item) + "\"";
      return false;
    }
    if (!good) {
      *error = "expected " + std::string(wanted) + " for option " + std::string(key) + " of the C model, got \"" +
               std::string(value) + "\"";
      return false;
    }
  }
  if (!out->regions.empty() && plain.given) {
    *error = "expected either regions= or memory= and base= in the options of the C model, got both";
    return false;
  }
  if (out->regions.empty()) {
    if (plain.size == 0) plain.size = std::clamp(host_memory() / 2 & ~uint64_t{(2 << 20) - 1}, kMinMemory, kMaxMemory);
    out->regions.push_back({"dram", plain.base, plain.size});
  }
  return check_regions(*out, error);
}

}  // namespace cmodel
