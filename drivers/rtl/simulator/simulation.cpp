#include "drivers/rtl/simulator/simulation.h"

#include <sys/mman.h>
#include <verilated.h>
#include <verilated_vcd_c.h>

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>

#include "Vnpu_top.h"
#include "drivers/rtl/packet/packet.h"

namespace rtl {
namespace {

constexpr uint32_t kOkay = 0, kDecodeError = 3;
// Between two lines the NPU computes for some hundred cycles at most.
constexpr uint64_t kHung = 100000;

}  // namespace

struct Simulation::WriteData {
  unsigned char bytes[npu_hw::LINE_BYTES];
  uint64_t strobe;
};

Simulation::Simulation(const SimulationOptions& options)
    : options_(options), context_(std::make_unique<VerilatedContext>()), random_(options.stall) {
  const int sharing = options.memory_file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = mmap(nullptr, options.memory, PROT_READ | PROT_WRITE, sharing | MAP_NORESERVE, options.memory_file, 0);
  if (memory == MAP_FAILED)
    throw std::runtime_error("expected " + std::to_string(options.memory) + " bytes of host memory, got none");
  memory_ = static_cast<unsigned char*>(memory);
  top_ = std::make_unique<Vnpu_top>(context_.get());
  top_->s_bready = 1;
  top_->s_rready = 1;
  reset();
}

// What was on the bus is forgotten.
void Simulation::reset() {
  top_->rst = 1;
  for (int i = 0; i < 4; i++) tick();
  reads_.clear();
  write_addrs_.clear();
  write_data_.clear();
  write_answers_.clear();
  if (faulty(FaultKind::kHang) || faulty(FaultKind::kInterrupt)) doorbells_++;  // it was that one's
  top_->rst = 0;
  tick();
}

Simulation::~Simulation() {
  if (wave_ && wave_->isOpen()) wave_->close();
  top_->final();
  munmap(memory_, options_.memory);
}

bool Simulation::inside(uint64_t addr) const {
  return addr < options_.memory && options_.memory - addr >= npu_hw::LINE_BYTES;
}

// One cycle. Ready and valid of both sides are those before the edge.
void Simulation::tick() {
  ++now_;
  Vnpu_top& t = *top_;
  t.m_arready = !pause();
  t.m_awready = !pause();
  t.m_wready = !pause();
  t.m_rvalid = !reads_.empty() && reads_.front().due <= now_ && !pause() && !faulty(FaultKind::kHang);
  if (t.m_rvalid) {
    answer(reads_.front());
    reads_.pop_front();
  }
  t.m_bvalid = !write_answers_.empty() && write_answers_.front().due <= now_ && !pause();
  if (t.m_bvalid) {
    t.m_bresp = write_answers_.front().error ? kDecodeError : kOkay;
    write_answers_.pop_front();
  }
  if (t.m_arvalid && t.m_arready) {
    reads_.push_back({t.m_araddr, now_ + options_.latency, reads_since_doorbell_++});
    last_traffic_ = now_;
  }
  if (t.m_awvalid && t.m_awready) write_addrs_.push_back(t.m_awaddr);
  if (t.m_wvalid && t.m_wready) {
    write_data_.emplace_back();
    std::memcpy(write_data_.back().bytes, &t.m_wdata, npu_hw::LINE_BYTES);
    write_data_.back().strobe = t.m_wstrb;
  }
  while (!write_addrs_.empty() && !write_data_.empty()) {
    const uint64_t addr = write_addrs_.front();
    const WriteData& data = write_data_.front();
    if (inside(addr)) {
      if (data.strobe == ~uint64_t{0})
        std::memcpy(memory_ + addr, data.bytes, npu_hw::LINE_BYTES);
      else
        for (uint64_t i = 0; i < npu_hw::LINE_BYTES; i++)
          if (data.strobe >> i & 1) memory_[addr + i] = data.bytes[i];
    }
    write_answers_.push_back({now_ + options_.latency / 2, !inside(addr)});
    write_addrs_.pop_front();
    write_data_.pop_front();
    last_traffic_ = now_;
  }
  t.clk = 1;
  t.eval();
  dump(0);
  t.clk = 0;
  t.eval();
  dump(1);
}

// A cycle is 5 ns long, as the reported time has it.
void Simulation::dump(uint64_t half) {
  if (wave_ && wave_->isOpen()) wave_->dump(now_ * 5000 + half * 2500);
}

bool Simulation::trace(const std::string& file) {
  if (!wave_) {
    context_->traceEverOn(true);
    wave_ = std::make_unique<VerilatedVcdC>();
    top_->trace(wave_.get(), 99);
    wave_->set_time_unit("1ns");
    wave_->set_time_resolution("1ps");
  }
  if (wave_->isOpen()) wave_->close();
  if (file.empty()) return true;
  wave_->open(file.c_str());
  return wave_->isOpen();
}

void Simulation::answer(const Read& read) {
  Vnpu_top& t = *top_;
  t.m_rresp = inside(read.addr) ? kOkay : kDecodeError;
  if (inside(read.addr)) std::memcpy(&t.m_rdata, memory_ + read.addr, npu_hw::LINE_BYTES);
  // The first two reads are a packet.
  auto* bytes = reinterpret_cast<unsigned char*>(&t.m_rdata);
  if (read.number == 0 && faulty(FaultKind::kPacket)) bytes[offsetof(Packet, opcode)] = 0x77;
  if (read.number == 0 && faulty(FaultKind::kAddress)) bytes[offsetof(Packet, addr[kResult]) + 4] = 0xff;
  if (read.number == 2 && faulty(FaultKind::kBus)) t.m_rresp = kDecodeError;
}

uint32_t Simulation::read_register(uint32_t offset) {
  top_->s_araddr = static_cast<uint8_t>(offset);
  top_->s_arvalid = 1;
  tick();  // the slave takes an address at once
  top_->s_arvalid = 0;
  const uint32_t value = top_->s_rdata;
  tick();
  return offset == npu_hw::REG_ID && options_.fault.kind == FaultKind::kId ? ~value : value;
}

void Simulation::write_register(uint32_t offset, uint32_t value) {
  if (offset == npu_hw::REG_TAIL) doorbells_++, reads_since_doorbell_ = 0, last_traffic_ = now_;
  if (offset == npu_hw::REG_CONTROL && (value & npu_hw::CONTROL_RESET) && faulty(FaultKind::kInterrupt)) doorbells_++;
  top_->s_awaddr = static_cast<uint8_t>(offset);
  top_->s_wdata = value;
  top_->s_awvalid = top_->s_wvalid = 1;
  tick();
  top_->s_awvalid = top_->s_wvalid = 0;
  tick();
}

void Simulation::check_range(uint64_t addr, uint64_t size) const {
  if (addr > options_.memory || size > options_.memory - addr)
    throw BoardLost("expected a copy inside " + std::to_string(options_.memory) + " bytes of device memory, got " +
                    std::to_string(size) + " bytes at " + std::to_string(addr));
}

void Simulation::read_memory(void* to, uint64_t from, uint64_t size) {
  check_range(from, size);
  std::memcpy(to, memory_ + from, size);
  copied_lines_ += (size + npu_hw::LINE_BYTES - 1) / npu_hw::LINE_BYTES;
}

void Simulation::write_memory(uint64_t to, const void* from, uint64_t size) {
  check_range(to, size);
  std::memcpy(memory_ + to, from, size);
  copied_lines_ += (size + npu_hw::LINE_BYTES - 1) / npu_hw::LINE_BYTES;
}

bool Simulation::interrupt() const {
  return top_->irq_pin && !faulty(FaultKind::kInterrupt);
}

bool Simulation::working() {
  if (now_ - last_traffic_ > kHung) return false;
  return read_register(npu_hw::REG_HEAD) != read_register(npu_hw::REG_TAIL);
}

void Simulation::advance(uint64_t cycles) {
  for (uint64_t i = 0; i < cycles && !interrupt(); i++) tick();
}

std::string Simulation::patience() const {
  return std::to_string(kHung) + " cycles without traffic";
}

bool Simulation::wait_for_interrupt() {
  last_traffic_ = now_;
  while (!interrupt()) {
    tick();
    if (now_ - last_traffic_ > kHung) return false;
  }
  return true;
}

}  // namespace rtl
