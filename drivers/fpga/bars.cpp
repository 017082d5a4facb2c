#include "drivers/fpga/bars.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "npu_hw.h"

namespace fpga {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kRegisters = 4096;
constexpr uint32_t kProbe = 4;  // a bit of CONTROL that the NPU does not keep
constexpr int kSpins = 200;     // reads of the register before the processor is given to somebody else

void* map(const std::string& path, uint64_t size) {
  File file;
  file.open(path, O_RDWR | O_SYNC);
  struct stat facts{};
  if (fstat(file.fd(), &facts) != 0) throw lost(path, "say its size");
  if (S_ISREG(facts.st_mode) && static_cast<uint64_t>(facts.st_size) < size)
    throw rtl::BoardLost("expected " + std::to_string(size) + " bytes in " + path + ", got " +
                         std::to_string(facts.st_size));
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  if (memory == MAP_FAILED) throw lost(path, "be mapped");
  return memory;
}

// In aligned words of eight bytes where both sides allow it: every access is a transaction on the bus, and a card need
// not take others.
void copy(unsigned char* to, const unsigned char* from, uint64_t size) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 8 == 0; };
  uint64_t i = 0;
  if (aligned(to) && aligned(from))
    for (; i + 8 <= size; i += 8)
      *reinterpret_cast<volatile uint64_t*>(to + i) = *reinterpret_cast<const volatile uint64_t*>(from + i);
  for (; i < size; i++) *const_cast<volatile unsigned char*>(to + i) = from[i];
}

}  // namespace

Bars::Bars(CardOptions options) : Card(std::move(options)) {
  open();
}

Bars::~Bars() {
  close();
}

void Bars::open() {
  owner_.open(options_.bar, O_RDWR);
  owner_.lock();
  registers_ = static_cast<volatile uint32_t*>(map(options_.bar, kRegisters));
  window_ = static_cast<unsigned char*>(map(options_.window, options_.memory));
}

void Bars::close() {
  if (registers_) munmap(const_cast<uint32_t*>(registers_), kRegisters);
  if (window_) munmap(window_, options_.memory);
  registers_ = nullptr;
  window_ = nullptr;
  owner_.close();
}

uint32_t Bars::read_register(uint32_t offset) {
  if (!registers_) throw rtl::BoardLost("expected " + options_.bar + " to be mapped, got nothing");
  return checked(offset, registers_[offset / 4]);
}

void Bars::write_register(uint32_t offset, uint32_t value) {
  if (!registers_) throw rtl::BoardLost("expected " + options_.bar + " to be mapped, got nothing");
  std::atomic_thread_fence(std::memory_order_seq_cst);  // memory that was written before is there before
  registers_[offset / 4] = value;
}

unsigned char* Bars::place(uint64_t addr, uint64_t size) const {
  if (!window_ || addr > options_.memory || size > options_.memory - addr)
    throw rtl::BoardLost("expected a copy inside of " + options_.window + ", got " + std::to_string(size) +
                         " bytes at " + std::to_string(addr));
  return window_ + addr;
}

void Bars::read_memory(void* to, uint64_t from, uint64_t size) {
  copy(static_cast<unsigned char*>(to), place(from, size), size);
}

void Bars::write_memory(uint64_t to, const void* from, uint64_t size) {
  copy(place(to, size), static_cast<const unsigned char*>(from), size);
}

// Copies through the window are posted: without this a clock read behind them tells when they were sent. A bit that the
// NPU does not keep is gone once the write, and all before it, have arrived.
void Bars::settle() {
  const auto until = Clock::now() + std::chrono::milliseconds(options_.timeout);
  write_register(npu_hw::REG_CONTROL, read_register(npu_hw::REG_CONTROL) | kProbe);
  while (read_register(npu_hw::REG_CONTROL) & kProbe)
    if (Clock::now() > until)
      throw rtl::BoardLost("expected the card to take a write within " + patience() + ", got the same word back");
}

bool Bars::wait_for_interrupt() {
  const auto until = Clock::now() + std::chrono::milliseconds(options_.timeout);
  for (int i = 0; !(read_register(npu_hw::REG_IRQ_STATUS) & (npu_hw::IRQ_DONE | npu_hw::IRQ_ERROR)); i++) {
    if (i < kSpins) continue;
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(i < 2 * kSpins ? 20 : 200));
  }
  return true;
}

}  // namespace fpga
