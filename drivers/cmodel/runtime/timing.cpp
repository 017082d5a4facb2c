#include "drivers/cmodel/runtime/timing.h"

#include <cstdio>
#include <stdexcept>
#include <vector>

#include "drivers/cmodel/runtime/device.h"
#include "support/driver/json_text.h"
#include "support/program/program.h"

namespace cmodel {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

struct Sum {
  uint64_t count = 0;
  npu::Cycles cycles;
  double macs = 0, bytes = 0;
  void add(const npu::Work& work, const npu::Cycles& c, uint64_t times) {
    const double n = static_cast<double>(times);
    count += times;
    cycles.matrix += n * c.matrix;
    cycles.vector += n * c.vector;
    cycles.memory += n * c.memory;
    cycles.launch += n * c.launch;
    cycles.total += n * c.total;
    macs += n * static_cast<double>(work.batch) * static_cast<double>(work.m) * static_cast<double>(work.n) *
            static_cast<double>(work.k);
    bytes += n * static_cast<double>(work.bytes);
  }
  std::string json() const {
    return "\"count\": " + std::to_string(count) + ", \"cycles\": " + number(cycles.total) +
           ", \"matrix\": " + number(cycles.matrix) + ", \"vector\": " + number(cycles.vector) +
           ", \"memory\": " + number(cycles.memory) + ", \"launch\": " + number(cycles.launch) +
           ", \"macs\": " + number(macs) + ", \"bytes\": " + number(bytes) + ", \"bound\": \"" + cycles.bound() + "\"";
  }
};

}  // namespace

double Timing::add(const char* label, const npu::Work& work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++counts_[{label ? label : "", work}];
  }
  return npu::predict(chip_, work).total * 1e3 / chip_.clock_mhz;
}

void Timing::restart() {
  std::lock_guard<std::mutex> lock(mutex_);
  counts_.clear();
}

std::string Timing::report(const npu::Chip& chip) {
  Sum all;
  std::map<std::pair<std::string, std::string>, Sum> rows;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, count] : counts_) {
      const npu::Cycles cycles = npu::predict(chip, key.second);
      const bool transfer = key.second.kind == npu::Work::kTransfer;
      all.add(key.second, cycles, count);
      rows[{key.first, transfer ? "transfer" : npu::command_name(key.second.kind)}].add(key.second, cycles, count);
    }
  }
  std::string out = "{\"chip\": " + npu::json_text(chip.name) + ", \"clock_mhz\": " + number(chip.clock_mhz) + ", " +
                    all.json() + ", \"rows\": [";
  bool first = true;
  for (const auto& [key, sum] : rows) {
    out += (first ? "" : ", ") + ("{\"op\": " + npu::json_text(key.first) + ", \"kind\": \"" + key.second + "\", ") +
           sum.json() + "}";
    first = false;
  }
  return out + "]}";
}

}  // namespace cmodel

// For torch_npu.whatif: not part of the contract. The work of the first open instance that has a chip, on the chip that
// `text` describes (null: its own). Null: no such instance, or a text that is wrong; then npu_timing_error says how.
namespace {
thread_local std::string t_report, t_wrong;
}
extern "C" __attribute__((visibility("default"))) const char* npu_timing_report(const char* text) {
  cmodel::Timing* timing = cmodel::open_timing();
  if (!timing) return t_wrong = "expected the C model with the option chip=FILE, got it without", nullptr;
  try {
    t_report = timing->report(text ? npu::parse_chip(text) : timing->chip());
    return t_report.c_str();
  } catch (const std::invalid_argument& why) {
    t_wrong = why.what();
    return nullptr;
  }
}
extern "C" __attribute__((visibility("default"))) const char* npu_timing_error() {
  return t_wrong.c_str();
}
extern "C" __attribute__((visibility("default"))) void npu_timing_restart() {
  if (cmodel::Timing* timing = cmodel::open_timing()) timing->restart();
}
