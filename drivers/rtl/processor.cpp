#include "drivers/rtl/processor.h"

#include <algorithm>
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

}  // namespace

Processor::Processor(std::unique_ptr<Board> board) : board_(std::move(board)) {
  const uint32_t id = board_->read_register(REG_ID), version = board_->read_register(REG_VERSION);
  if (id != ID_VALUE || version != npu_hw::VERSION)
    throw std::runtime_error("expected an NPU " + hex(ID_VALUE) + " of version " + std::to_string(npu_hw::VERSION) +
                             ", got " + hex(id) + " of version " + std::to_string(version));
  start();
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
  uint64_t high = board_->read_register(low + 4), value = board_->read_register(low);
  return before_reset_[(low - REG_CYCLES_LO) / 8] + (high << 32 | value);
}

void Processor::reset() {
  for (uint32_t i = 0; i < 5; i++) before_reset_[i] = counter(REG_CYCLES_LO + 8 * i);
  board_->write_register(REG_CONTROL, CONTROL_RESET);
  for (int tries = 0; board_->read_register(REG_STATUS) & STATUS_RESETTING; tries++)
    if (tries == 1000) {
      lost_ = true;
      return;
    }
  start();
}

Failure Processor::why_stopped() {
  const uint32_t code = board_->read_register(REG_ERROR_CODE), tag = board_->read_register(REG_ERROR_TAG);
  const uint64_t addr = uint64_t{board_->read_register(REG_ERROR_HI)} << 32 | board_->read_register(REG_ERROR_LO);
  const std::string where = " in packet " + std::to_string(tag);
  reset();
  if (code == ERROR_BUS) return {NPU_ERROR_ADDRESS, "expected memory at " + hex(addr) + ", got a bus error" + where};
  if (code == ERROR_CHECK)
    return {NPU_ERROR_INDEX,
            "expected nothing, got something found by a check at element " + std::to_string(addr) + where, tag, addr};
  return {NPU_ERROR_INTERNAL,
          std::string("the NPU expected ") + cause(code) + ", got error code " + std::to_string(code) + where};
}

Failure Processor::run_batch(Packet* packets, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&packets[i]);
    for (uint32_t line = 0; line < packets[i].lines(); line++) {
      const uint64_t slot = tail_++ % kRingLines;
      board_->write_memory(slot * LINE_BYTES, bytes + uint64_t{line} * LINE_BYTES, LINE_BYTES);
    }
  }
  board_->write_register(REG_TAIL, tail_);
  if (!board_->wait_for_interrupt()) {
    reset();
    return {lost_ ? NPU_ERROR_DEVICE_LOST : NPU_ERROR_TIMEOUT, "expected an interrupt, got nothing for a long time"};
  }
  const uint32_t status = board_->read_register(REG_IRQ_STATUS);
  board_->write_register(REG_IRQ_STATUS, status);
  return status & IRQ_ERROR ? why_stopped() : Failure{};
}

Failure Processor::run(std::vector<Packet>& packets) {
  if (lost_) return {NPU_ERROR_DEVICE_LOST, "expected a working NPU, got one that hangs: reset the device"};
  constexpr size_t most = kRingLines / 2;
  for (size_t i = 0; i < packets.size(); i++) packets[i].tag = static_cast<uint32_t>(i);
  for (size_t first = 0; first < packets.size(); first += most) {
    const size_t count = std::min(most, packets.size() - first);
    packets[first + count - 1].flags |= FLAG_IRQ;
    Failure failure = run_batch(&packets[first], count);
    if (failure.status != NPU_OK) return failure;
  }
  return {};
}

}  // namespace rtl
