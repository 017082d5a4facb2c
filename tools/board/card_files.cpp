#include "tools/board/card_files.h"

#include <cerrno>
#include <cstring>

namespace {

constexpr uint64_t kBar = 4096, kRegisters = 256;

bool one_register(uint64_t offset, uint32_t size) {
  return size == 4 && offset % 4 == 0 && offset < kBar;
}

}  // namespace

CardFiles::CardFiles(rtl::Simulation& npu, const std::string& prefix) : npu_(npu) {
  files_ = {{prefix + "_user", kBar, 0600},
            {prefix + "_h2c_0", npu.memory_size(), 0200},
            {prefix + "_c2h_0", npu.memory_size(), 0400},
            {prefix + "_events_0", 0, 0400},
            {prefix + "_reset", 0, 0200}};
}

int CardFiles::read(size_t file, uint64_t offset, uint32_t size, char* to) {
  switch (file) {
    case kUser: {
      if (!one_register(offset, size)) return -EPROTO;
      const uint32_t value = offset < kRegisters ? npu_.read_register(static_cast<uint32_t>(offset)) : UINT32_MAX;
      std::memcpy(to, &value, sizeof value);
      return sizeof value;
    }
    case kFromCard:
      if (offset > npu_.memory_size() || size > npu_.memory_size() - offset) return -EIO;
      npu_.read_memory(to, offset, size);
      return static_cast<int>(size);
    case kEvents:
      if (size < sizeof events_) return -EPROTO;
      if (events_ == 0) return kLater;
      std::memcpy(to, &events_, sizeof events_);
      events_ = 0;
      return sizeof events_;
    default:
      return -EINVAL;
  }
}

int CardFiles::write(size_t file, uint64_t offset, const char* from, uint32_t size) {
  switch (file) {
    case kUser: {
      if (!one_register(offset, size)) return -EPROTO;
      uint32_t value;
      std::memcpy(&value, from, sizeof value);
      if (offset < kRegisters) npu_.write_register(static_cast<uint32_t>(offset), value);
      return sizeof value;
    }
    case kToCard:
      if (offset > npu_.memory_size() || size > npu_.memory_size() - offset) return -EIO;
      npu_.write_memory(offset, from, size);
      return static_cast<int>(size);
    case kReset:
      npu_.reset();
      return static_cast<int>(size);
    default:
      return -EINVAL;
  }
}

bool CardFiles::notice_interrupt() {
  const bool high = npu_.interrupt(), rose = high && !was_high_;
  was_high_ = high;
  events_ += rose;
  return rose;
}
