#include "drivers/rtl/test_vector.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "drivers/rtl/packet_model.h"
#include "drivers/rtl/processor.h"

using namespace npu_hw;

namespace rtl {
namespace {

constexpr uint64_t kMost = 64 << 20;  // bytes of memory in a vector

struct Range {
  uint64_t begin, end;
};

// From the first byte of an operand to its last, in whole lines.
Range reach(const Packet& packet, int operand) {
  int64_t low = 0, high = type_width(packet.type(operand));
  for (int d = 0; d < 4; d++) {
    const int64_t far = int64_t{packet.size[d] - 1} * packet.stride[operand][d];
    (far < 0 ? low : high) += far;
  }
  const uint64_t begin = packet.addr[operand] + static_cast<uint64_t>(low);
  const uint64_t end = packet.addr[operand] + static_cast<uint64_t>(high);
  return {begin / LINE_BYTES * LINE_BYTES, (end + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES};
}

void append_hex(std::string* out, const unsigned char* bytes, size_t size) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < size; i++) {
    *out += digits[bytes[i] >> 4];
    *out += digits[bytes[i] & 15];
  }
}

void append_area(std::string* out, uint64_t address, const unsigned char* bytes, size_t size) {
  if (out->back() != '[') *out += ",";
  *out += "\n    {\"address\": " + std::to_string(address) + ", \"bytes\": \"";
  append_hex(out, bytes, size);
  *out += "\"}";
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + '"';
}

TestVector::TestVector(Board& board, const std::vector<Packet>& packets)
    : packets_(packets), memory_size_(board.memory_size()) {
  std::vector<Range> ranges;
  for (const Packet& packet : packets) {
    if (packet.opcode > OP_GEMM) problem_ = "expected packets whose addresses are known beforehand, got a gather";
    for (int i = 0; i < 4; i++) {
      const Range range = reach(packet, i);
      // An operand that a packet does not have lies at 0, where the ring is.
      const bool immediate = i > 0 && (packet.flags & FLAG_IMM_A << (i - 1));
      if (!immediate && range.begin >= Processor::kRingBytes && range.end <= memory_size_) ranges.push_back(range);
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> merged;
  for (const Range& range : ranges)
    if (!merged.empty() && range.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, range.end);
    else
      merged.push_back(range);
  uint64_t bytes = 0;
  for (const Range& range : merged) bytes += range.end - range.begin;
  if (bytes > kMost) problem_ = "expected a command on at most 64 MiB, got " + std::to_string(bytes >> 20) + " MiB";
  if (!problem_.empty()) return;
  for (const Range& range : merged) {
    std::vector<unsigned char>& now = before_[range.begin];
    now.resize(range.end - range.begin);
    board.read_memory(now.data(), range.begin, now.size());
  }
}

std::string TestVector::write(const std::string& path, const std::string& kind, const std::string& label) {
  if (!problem_.empty()) return problem_;
  void* memory =
      mmap(nullptr, memory_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return "expected address space for a copy of device memory, got none";
  auto* model = static_cast<unsigned char*>(memory);
  for (const auto& [address, bytes] : before_) std::memcpy(model + address, bytes.data(), bytes.size());
  std::string out = "{\n  \"kind\": " + quoted(kind) + ",\n  \"label\": " + quoted(label) + ",\n  \"packets\": [";
  for (const Packet& packet : packets_) {
    run_packet(packet, model);
    if (out.back() != '[') out += ",";
    out += "\n    \"";
    append_hex(&out, reinterpret_cast<const unsigned char*>(&packet), packet.lines() * LINE_BYTES);
    out += "\"";
  }
  out += "\n  ],\n  \"memory\": [";
  for (const auto& [address, bytes] : before_) append_area(&out, address, bytes.data(), bytes.size());
  out += "\n  ],\n  \"expected\": [";
  for (const auto& [address, bytes] : before_) append_area(&out, address, model + address, bytes.size());
  out += "\n  ]\n}\n";
  munmap(memory, memory_size_);
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) return "expected a file that can be written, got " + path;
  const bool written = std::fwrite(out.data(), 1, out.size(), file) == out.size();
  return std::fclose(file) == 0 && written ? "" : "expected room for " + path + ", got a file that is cut off";
}

}  // namespace rtl
