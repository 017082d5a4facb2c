// What both ways to reach a card share.
#pragma once
#include <string>

#include "drivers/rtl/board/board.h"

namespace fpga {

struct CardOptions {
  uint64_t memory = uint64_t{1} << 30;
  uint64_t timeout = 10000;  // milliseconds without an interrupt
  uint64_t clock = 200;      // MHz
  std::string path;          // XDMA: /dev/xdma0
  std::string bar, window;   // mapped: the BAR of the registers and the one of the memory
  std::string reset;         // a file that resets the card when "1" is written to it
};

class Card : public rtl::Board {
 public:
  explicit Card(CardOptions options) : options_(std::move(options)) {}
  std::string patience() const override { return std::to_string(options_.timeout) + " ms"; }
  uint64_t memory_size() const override { return options_.memory; }
  uint32_t clock_mhz() const override { return static_cast<uint32_t>(options_.clock); }
  void reset() override;

 protected:
  virtual void open() = 0;
  virtual void close() = 0;
  // A card that fell off the bus reads as all ones. No register but a counter's low half may, and then the identity
  // does not.
  uint32_t checked(uint32_t offset, uint32_t value);

  const CardOptions options_;
};

// A file that is closed with its owner; throws BoardLost.
class File {
 public:
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(); }
  void open(const std::string& path, int flags);
  void lock();  // throws if another process, or another device of this one, has it
  void close();
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

// "expected PATH to <what>, got <errno in words>"
rtl::BoardLost lost(const std::string& path, const std::string& what);

}  // namespace fpga
