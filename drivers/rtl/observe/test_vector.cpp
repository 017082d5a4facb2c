#include "drivers/rtl/observe/test_vector.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstring>

#include "drivers/rtl/device/processor.h"
#include "drivers/rtl/packet/packet_model.h"
#include "support/driver/json_text.h"

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

TestVector::TestVector(Board& board, const std::vector<Packet>& packets)
    : packets_(packets), memory_size_(board.memory_size()), loaded_(memory_size_ / LINE_BYTES) {
  void* memory =
      mmap(nullptr, memory_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    problem_ = "expected address space for a copy of device memory, got none";
    return;
  }
  model_ = static_cast<unsigned char*>(memory);
  for (const Packet& packet : packets) {
    const bool indexed = packet.opcode == OP_GATHER || packet.opcode == OP_SCATTER;
    for (int i = 0; i < 4; i++) {
      const Range range = reach(packet, i);
      // An operand that a packet does not have lies at 0, where the ring is.
      const bool immediate = i > 0 && (packet.flags & FLAG_IMM_A << (i - 1));
      const bool moved = indexed && i == (packet.opcode == OP_GATHER ? kA : kResult);
      if (!immediate && !moved && range.begin >= Processor::kRingBytes && range.end <= memory_size_)
        take(board, range.begin, range.end);
    }
    // Where these go is known when all packets before have run.
    for (uint64_t element : indexed ? moved_elements(packet, model_) : std::vector<uint64_t>()) {
      if (element >= memory_size_)
        problem_ = "expected elements in device memory, got one at " + std::to_string(element);
      else
        take(board, element / LINE_BYTES * LINE_BYTES, (element / LINE_BYTES + 1) * LINE_BYTES);
    }
    if (!problem_.empty()) return;
    run_packet(packet, model_);
  }
}

TestVector::~TestVector() {
  if (model_) munmap(model_, memory_size_);
}

// Lines that no packet has touched yet are as the board has them.
void TestVector::take(Board& board, uint64_t begin, uint64_t end) {
  for (uint64_t line = begin / LINE_BYTES; problem_.empty() && line < end / LINE_BYTES;) {
    uint64_t last = line;
    while (last < end / LINE_BYTES && !loaded_[last]) loaded_[last++] = true;
    if (last == line) {
      line++;
      continue;
    }
    const uint64_t size = (last - line) * LINE_BYTES;
    bytes_ += size;
    if (bytes_ > kMost) problem_ = "expected a command on at most 64 MiB, got more";
    std::vector<unsigned char>& now = before_[line * LINE_BYTES];
    if (problem_.empty()) {
      now.resize(size);
      board.read_memory(now.data(), line * LINE_BYTES, size);
      std::memcpy(model_ + line * LINE_BYTES, now.data(), size);
    }
    line = last;
  }
}

std::string TestVector::write(const std::string& path, const std::string& kind, const std::string& label) {
  if (!problem_.empty()) return problem_;
  std::string out =
      "{\n  \"kind\": " + npu::json_text(kind) + ",\n  \"label\": " + npu::json_text(label) + ",\n  \"packets\": [";
  for (const Packet& packet : packets_) {
    if (out.back() != '[') out += ",";
    out += "\n    \"";
    append_hex(&out, reinterpret_cast<const unsigned char*>(&packet), packet.lines() * LINE_BYTES);
    out += "\"";
  }
  out += "\n  ],\n  \"memory\": [";
  for (const auto& [address, bytes] : before_) append_area(&out, address, bytes.data(), bytes.size());
  out += "\n  ],\n  \"expected\": [";
  for (const auto& [address, bytes] : before_) append_area(&out, address, model_ + address, bytes.size());
  out += "\n  ]\n}\n";
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) return "expected a file that can be written, got " + path;
  const bool written = std::fwrite(out.data(), 1, out.size(), file) == out.size();
  return std::fclose(file) == 0 && written ? "" : "expected room for " + path + ", got a file that is cut off";
}

}  // namespace rtl
