#include "drivers/fpga/xdma.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "npu_hw.h"

namespace fpga {
namespace {

constexpr uint64_t kPage = 4096, kBounce = 1 << 20;

// All of it, in as many calls as the file likes.
template <class Call>
void whole(const File& file, const char* what, Call call, void* memory, uint64_t size, uint64_t offset) {
  auto* bytes = static_cast<char*>(memory);
  for (uint64_t done = 0; done < size;) {
    const ssize_t n = call(file.fd(), bytes + done, size - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENODATA;
    if (n <= 0) throw lost(file.path(), what);
    done += static_cast<uint64_t>(n);
  }
}

}  // namespace

Xdma::Xdma(CardOptions options) : Card(std::move(options)), bounce_(std::aligned_alloc(kPage, kBounce), std::free) {
  if (!bounce_) throw std::bad_alloc();
  open();
}

void Xdma::open() {
  user_.open(options_.path + "_user", O_RDWR);
  user_.lock();
  to_card_.open(options_.path + "_h2c_0", O_WRONLY);
  from_card_.open(options_.path + "_c2h_0", O_RDONLY);
  events_.open(options_.path + "_events_0", O_RDONLY);
  while (take_event(0)) continue;  // of those who were here before
  // The option says how much memory there is; the card knows.
  char last[npu_hw::LINE_BYTES];
  try {
    read_memory(last, options_.memory - sizeof last, sizeof last);
  } catch (const rtl::BoardLost& why) {
    throw rtl::BoardLost("expected " + std::to_string(options_.memory >> 20) +
                         " MiB of memory on the card (option memory=), but: " + why.what());
  }
}

void Xdma::close() {
  for (File* file : {&user_, &to_card_, &from_card_, &events_}) file->close();
}

uint32_t Xdma::read_register(uint32_t offset) {
  uint32_t value = 0;
  whole(user_, "give a register", pread, &value, sizeof value, offset);
  return checked(offset, value);
}

void Xdma::write_register(uint32_t offset, uint32_t value) {
  whole(user_, "take a register", pwrite, &value, sizeof value, offset);
}

void Xdma::read_memory(void* to, uint64_t from, uint64_t size) {
  for (uint64_t done = 0; done < size;) {
    const uint64_t piece = std::min(size - done, kBounce);
    whole(from_card_, "give memory", pread, bounce_.get(), piece, from + done);
    std::memcpy(static_cast<char*>(to) + done, bounce_.get(), piece);
    done += piece;
  }
}

void Xdma::write_memory(uint64_t to, const void* from, uint64_t size) {
  for (uint64_t done = 0; done < size;) {
    const uint64_t piece = std::min(size - done, kBounce);
    std::memcpy(bounce_.get(), static_cast<const char*>(from) + done, piece);
    whole(to_card_, "take memory", pwrite, bounce_.get(), piece, to + done);
    done += piece;
  }
}

bool Xdma::take_event(int milliseconds) {
  pollfd wanted = {events_.fd(), POLLIN, 0};
  const int ready = poll(&wanted, 1, milliseconds);
  if (ready < 0 && errno != EINTR) throw lost(events_.path(), "be polled");
  if (ready <= 0) return false;
  uint32_t count;
  const ssize_t n = read(events_.fd(), &count, sizeof count);
  if (n < 0 && errno == EINTR) return false;
  if (n != sizeof count) throw lost(events_.path(), "give an event");
  return true;
}

// An event may be older than the last doorbell: the registers decide.
bool Xdma::wait_for_interrupt() {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::milliseconds(options_.timeout);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    const bool event = take_event(static_cast<int>(std::max<int64_t>(left, 0)));
    if (event && read_register(npu_hw::REG_IRQ_STATUS) != 0) return true;
    if (left <= 0) return false;
  }
}

}  // namespace fpga
