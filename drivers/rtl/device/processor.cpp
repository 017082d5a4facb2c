#include "drivers/rtl/device/processor.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>

using namespace npu_hw;

namespace rtl {
namespace {

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

const char* cause(uint32_t code) {
  switch (code) {
    case ERROR_OPCODE:
      return "an operation that it has";
    case ERROR_SIZE:
      return "sizes above 0";
    case ERROR_ALIGNMENT:
      return "aligned elements";
    case ERROR_STRIDE:
      return "a matrix with neighbouring elements";
    default:
      return "a known error code";
  }
}

// Whether it does soon. Anything that a register does takes it a few cycles.
template <class Condition>
bool becomes(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!condition())
    if (std::chrono::steady_clock::now() > until) return false;
  return true;
}

}  // namespace

// Whoever was here before may have left work behind.
Processor::Processor(std::unique_ptr<Board> board) : board_(std::move(board)) {
  check_identity();
  if (soft_reset()) return;
  const Failure failure = reset();
  if (failure.status != NPU_OK) throw BoardLost(failure.text);
}

void Processor::check_identity() {
  const uint32_t id = board_->read_register(REG_ID), version = board_->read_register(REG_VERSION);
  if (id != ID_VALUE || version != npu_hw::VERSION)
    throw BoardLost("expected an NPU " + hex(ID_VALUE) + " of version " + std::to_string(npu_hw::VERSION) + ", got " +
                    hex(id) + " of version " + std::to_string(version) +
                    ": load the bitstream that goes with this driver");
}

void Processor::start() {
  board_->write_register(REG_RING_LO, 0);
  board_->write_register(REG_RING_HI, 0);
  board_->write_register(REG_RING_SIZE, kRingLines);
  board_->write_register(REG_IRQ_ENABLE, IRQ_DONE | IRQ_ERROR);
  board_->write_register(REG_CONTROL, CONTROL_ENABLE);
  tail_ = 0;
  lost_ = false;
}

uint64_t Processor::counter(uint32_t low) {
  uint64_t high, value, again = board_->read_register(low + 4);
  do {  // until nothing was carried between the halves
    high = again;
    value = board_->read_register(low);
    again = board_->read_register(low + 4);
  } while (again != high);
  return before_reset_[(low - REG_CYCLES_LO) / 8] + (high << 32 | value);
}

bool Processor::soft_reset() {
  for (uint32_t i = 0; i < 5; i++) before_reset_[i] = counter(REG_CYCLES_LO + 8 * i);
  board_->write_register(REG_CONTROL, CONTROL_RESET);
  const bool done = becomes([&] {
    return board_->read_register(REG_CONTROL) == 0 && !(board_->read_register(REG_STATUS) & STATUS_RESETTING);
  });
  if (done) start();
  return done;
}

Failure Processor::lost(const std::string& why) {
  lost_ = true;
  return {NPU_ERROR_DEVICE_LOST, why};
}

Failure Processor::reset() try {
  if (!lost_ && soft_reset()) return {};
  board_->reset();
  check_identity();
  if (!soft_reset()) return lost("expected the NPU to come out of its reset, got one whose bus never becomes idle");
  return {};
} catch (const BoardLost& why) {
  return lost(why.what());
}

Failure Processor::why_stopped() {
  const uint32_t code = board_->read_register(REG_ERROR_CODE), tag = board_->read_register(REG_ERROR_TAG);
  const uint64_t addr = uint64_t{board_->read_register(REG_ERROR_HI)} << 32 | board_->read_register(REG_ERROR_LO);
  const std::string where = " in packet " + std::to_string(tag);
  lost_ = !soft_reset();
  if (code == ERROR_BUS) return {NPU_ERROR_ADDRESS, "expected memory at " + hex(addr) + ", got a bus error" + where};
  if (code == ERROR_CHECK)
    return {NPU_ERROR_INDEX,
            "expected nothing, got something found by a check at element " + std::to_string(addr) + where, tag, addr};
  return {NPU_ERROR_INTERNAL,
          std::string("the NPU expected ") + cause(code) + ", got error code " + std::to_string(code) + where};
}

Failure Processor::run_batch(Packet* packets, size_t count) {
  std::vector<unsigned char> lines;
  for (size_t i = 0; i < count; i++) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&packets[i]);
    lines.insert(lines.end(), bytes, bytes + packets[i].lines() * LINE_BYTES);
  }
  // The ring's end may lie within: at most two pieces.
  for (size_t done = 0; done < lines.size();) {
    const uint64_t at = uint64_t{tail_ % kRingLines} * LINE_BYTES;
    const uint64_t size = std::min<uint64_t>(lines.size() - done, kRingBytes - at);
    board_->write_memory(at, &lines[done], size);
    done += size;
    tail_ += static_cast<uint32_t>(size / LINE_BYTES);
  }
  board_->write_register(REG_TAIL, tail_);
  if (!board_->wait_for_interrupt()) {
    const uint32_t status = board_->read_register(REG_STATUS), tag = board_->read_register(REG_ERROR_TAG);
    lost_ = !soft_reset();
    return {lost_ ? NPU_ERROR_DEVICE_LOST : NPU_ERROR_TIMEOUT,
            "expected an interrupt, got none within " + board_->patience() +
                (status & STATUS_BUSY ? ", with packet " + std::to_string(tag) + " at work" : ", from an idle NPU") +
                (lost_ ? "; it does not come out of its reset: reset the device" : "")};
  }
  constexpr uint32_t known = IRQ_DONE | IRQ_ERROR;
  const uint32_t status = board_->read_register(REG_IRQ_STATUS) & known;
  board_->write_register(REG_IRQ_STATUS, status);
  if (status & IRQ_ERROR) return why_stopped();
  // Writes are posted: the next wait must not find this interrupt again.
  if (becomes([&] { return (board_->read_register(REG_IRQ_STATUS) & known) == 0; })) return {};
  return lost("expected the interrupt to be gone once it was taken, got it still: reset the device");
}

namespace {

const Failure kLost = {NPU_ERROR_DEVICE_LOST, "expected a working NPU, got one that was lost before: reset the device"};

}  // namespace

Failure Processor::run(std::vector<Packet>& packets) try {
  if (lost_) return kLost;
  constexpr size_t most = kRingLines / 2;
  for (size_t i = 0; i < packets.size(); i++) packets[i].tag = static_cast<uint32_t>(i);
  for (size_t first = 0; first < packets.size(); first += most) {
    const size_t count = std::min(most, packets.size() - first);
    packets[first + count - 1].flags |= FLAG_IRQ;
    Failure failure = run_batch(&packets[first], count);
    if (failure.status != NPU_OK) return failure;
  }
  return {};
} catch (const BoardLost& why) {
  return lost(why.what());
}

Failure Processor::read_memory(void* to, uint64_t from, uint64_t size) try {
  if (lost_) return kLost;
  board_->read_memory(to, from, size);
  return {};
} catch (const BoardLost& why) {
  return lost(why.what());
}

Failure Processor::write_memory(uint64_t to, const void* from, uint64_t size) try {
  if (lost_) return kLost;
  board_->write_memory(to, from, size);
  return {};
} catch (const BoardLost& why) {
  return lost(why.what());
}

}  // namespace rtl
