// The C model through its table, as a host sees it, for tests.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "npu/runtime.h"
#include "support/program/program.h"
#include "tests/cpp/harness/harness.h"

// The call succeeds; if not, its error text is shown.
#define OK(call)                                                                                                 \
  do {                                                                                                           \
    const npu_status status_ = (call);                                                                           \
    if (status_ != NPU_OK)                                                                                       \
      harness::report(__FILE__, __LINE__, #call ": " + std::to_string(status_) + ": " + driver()->error_text()); \
  } while (0)

const npu_driver* driver();  // loaded at the first call

inline bool error_has(std::string_view part) {
  const std::string text = driver()->error_text();
  if (text.find(part) != std::string::npos) return true;
  harness::fail("error text is \"" + text + "\"");
  return false;
}

// An open instance with all of its devices.
struct Rig {
  npu_instance* instance = nullptr;
  std::vector<npu_device*> devices;

  explicit Rig(const char* options) {
    OK(driver()->open(options, &instance));
    uint32_t count = 0;
    OK(driver()->device_count(instance, &count));
    devices.resize(count);
    for (uint32_t i = 0; i < count; ++i) OK(driver()->device_open(instance, i, &devices[i]));
  }
  ~Rig() {
    for (npu_device* device : devices) driver()->device_close(device);
    driver()->close(instance);
  }
  npu_device* device() const { return devices[0]; }

  npu_stream* stream(npu_device* on, int priority = 0) const {
    npu_stream* out = nullptr;
    OK(driver()->stream_create(on, priority, &out));
    return out;
  }
  npu_stream* stream() const { return stream(device()); }
  npu_event* event(npu_device* on, uint32_t flags = 0) const {
    npu_event* out = nullptr;
    OK(driver()->event_create(on, flags, &out));
    return out;
  }
  npu_addr alloc(npu_device* on, uint64_t size) const {
    npu_addr out = 0;
    OK(driver()->memory_alloc(on, size, &out));
    return out;
  }
  npu_addr alloc(uint64_t size) const { return alloc(device(), size); }
  npu_program* program(npu_device* on, const char* text) const {
    const npu::Program parsed = npu::parse(text);
    const npu_program_desc desc = parsed.desc();
    npu_program* out = nullptr;
    OK(driver()->program_create(on, &desc, &out));
    return out;
  }
  uint64_t used(npu_device* on) const {
    uint64_t free_bytes = 0, total = 0;
    OK(driver()->memory_info(on, &free_bytes, &total));
    return total - free_bytes;
  }
};

// A command over n contiguous elements.
struct Command {
  npu_command c{};
  npu_operand operands[10]{};
  npu_scalar params[4]{};

  Command(npu_command_kind kind, npu_program* program, int64_t n, const char* label) {
    c.struct_size = sizeof c;
    c.kind = static_cast<uint8_t>(kind);
    c.rank = 1;
    c.size[0] = n;
    c.program = program;
    c.label = label;
  }
  Command& memory(npu_addr addr, npu_dtype dtype, int64_t stride = 1) {
    npu_operand& operand = operands[c.operand_count++];
    operand.addr = addr;
    operand.dtype = static_cast<uint8_t>(dtype);
    operand.stride[0] = stride;
    return *this;
  }
  Command& immediate(uint64_t bits, npu_dtype dtype) {
    memory(bits, dtype, 0).operands[c.operand_count - 1].flags = NPU_OPERAND_IMMEDIATE;
    return *this;
  }
  Command& param(int64_t value) {
    params[c.param_count++].i = value;
    return *this;
  }
  npu_status submit(npu_stream* stream) {
    c.operands = operands;
    c.params = params;
    return driver()->submit(stream, &c);
  }
};

inline constexpr const char* kAdd =
    "program add(x, y, out)\neach:\n  %0 = load x : i32\n  %1 = load y : i32\n  %2 = add %0, %1\n  store out, %2\n";
inline constexpr const char* kPick =
    "program pick(table, index, out; rows)\neach:\n  %i = load index : i64\n  %n = param rows : i64\n"
    "  %r = check_index %i, %n, wrap, check\n  %v = load_at table, %r : i32\n  store out, %v\n";
