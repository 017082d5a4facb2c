// A command as a test vector: its packets, the memory they touch before they run, and that memory afterwards as the
// model of packets says, so that a vector of a wrong NPU shows what is wrong.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "drivers/rtl/board/board.h"
#include "drivers/rtl/packet/packet.h"

namespace rtl {

class TestVector {
 public:
  // Before the packets run.
  TestVector(Board& board, const std::vector<Packet>& packets);
  ~TestVector();
  TestVector(const TestVector&) = delete;
  TestVector& operator=(const TestVector&) = delete;
  // Writes it as JSON. Returns what went wrong, or nothing.
  std::string write(const std::string& path, const std::string& kind, const std::string& label);

 private:
  void take(Board& board, uint64_t begin, uint64_t end);
  std::vector<Packet> packets_;
  std::map<uint64_t, std::vector<unsigned char>> before_;  // by address
  uint64_t memory_size_, bytes_ = 0;
  unsigned char* model_ = nullptr;  // all of device memory, of which only what is touched exists
  std::vector<bool> loaded_;        // by line
  std::string problem_;
};

}  // namespace rtl
