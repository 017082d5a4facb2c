#include "drivers/fpga/card.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "npu_hw.h"

namespace fpga {

rtl::BoardLost lost(const std::string& path, const std::string& what) {
  return rtl::BoardLost("expected " + path + " to " + what + ", got '" + std::strerror(errno) + "'");
}

void File::open(const std::string& path, int flags) {
  close();
  path_ = path;
  fd_ = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd_ < 0) throw lost(path, "open");
}

void File::lock() {
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK) throw rtl::BoardLost("expected " + path_ + " for one process, got it in use");
  throw lost(path_, "be locked");
}

void File::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

uint32_t Card::checked(uint32_t offset, uint32_t value) {
  if (value == UINT32_MAX && (offset == npu_hw::REG_ID || read_register(npu_hw::REG_ID) == UINT32_MAX))
    throw rtl::BoardLost("expected a card that answers, got all ones from its registers");
  return value;
}

// A card that came back, perhaps with another process or bitstream behind it, has new files.
void Card::reset() {
  close();
  if (!options_.reset.empty()) {
    File file;
    file.open(options_.reset, O_WRONLY);
    if (write(file.fd(), "1", 1) != 1) throw lost(options_.reset, "take a 1");
  }
  open();
}

}  // namespace fpga
