#include "tools/driver_test/frame/rig.h"

namespace driver_test {

Rig::Rig(Context& c, uint32_t index) : context(c), d(*c.driver) {
  ok(d.open(c.options.c_str(), &instance), "open");
  npu_status status = d.device_open(instance, index, &device);
  if (status != NPU_OK) {
    std::string why = text();
    d.close(instance);
    fail("device_open(", index, ") failed: ", status_name(status), ": ", why);
  }
  properties.struct_size = sizeof properties;
  d.device_properties(device, &properties);
  ok(d.stream_create(device, 0, &stream), "stream_create");
}

Rig::~Rig() {
  if (stream) d.stream_destroy(stream);
  if (device) d.device_close(device);  // frees what a failed test has left
  if (instance) d.close(instance);
}

std::string Rig::text() const {
  const char* line = d.error_text();
  return line ? line : "(error_text is null)";
}

void Rig::ok(npu_status status, const char* what) const {
  if (status != NPU_OK) fail(what, ": expected NPU_OK, got ", status_name(status), ": ", text());
}

void Rig::refused(npu_status status, const char* what, std::vector<npu_status> allowed) const {
  bool fits = false;
  std::string list;
  for (npu_status a : allowed) {
    fits |= a == status;
    list += say(list.empty() ? "" : " or ", status_name(a));
  }
  std::string line = text();
  expect(fits, what, ": expected ", list, ", got ", status_name(status), status == NPU_OK ? "" : ": " + line);
  expect(!line.empty(), what, ": ", status_name(status), " must leave a line in error_text, got an empty one");
  expect(line.find('\n') == std::string::npos, what, ": error_text must be one line, got '", line, "'");
}

void Rig::names(const char* what, npu_addr addr) const {
  std::string line = text();
  expect(line.find(hex(addr).substr(2)) != std::string::npos, what, ": error_text must name the address ", hex(addr),
         ", got '", line, "'");
}

npu_addr Rig::alloc(uint64_t size) const {
  npu_addr addr = 0;
  ok(d.memory_alloc(device, size, &addr), say("memory_alloc(", size, ")").c_str());
  expect(addr != 0, "memory_alloc(", size, ") gave address 0");
  return addr;
}

void Rig::free(npu_addr addr) const {
  ok(d.memory_free(device, addr), "memory_free");
}

npu_stream* Rig::new_stream(int32_t priority) const {
  npu_stream* made = nullptr;
  ok(d.stream_create(device, priority, &made), "stream_create");
  return made;
}

npu_event* Rig::new_event(uint32_t flags) const {
  npu_event* made = nullptr;
  ok(d.event_create(device, flags, &made), "event_create");
  return made;
}

void* Rig::new_host(uint64_t size) const {
  void* made = nullptr;
  ok(d.host_alloc(device, size, &made), "host_alloc");
  return made;
}

uint64_t Rig::free_memory() const {
  uint64_t free_bytes = 0, total = 0;
  ok(d.memory_info(device, &free_bytes, &total), "memory_info");
  expect(free_bytes <= total, "memory_info: expected free <= total, got ", free_bytes, " of ", total);
  return free_bytes;
}

void Rig::upload(npu_addr to, const void* from, uint64_t size, npu_stream* on) const {
  ok(d.copy_to_device(on ? on : stream, to, from, size, 0), "copy_to_device");
}

Bytes Rig::download(npu_addr from, uint64_t size, npu_stream* on) const {
  Bytes out(size);
  ok(d.copy_to_host(on ? on : stream, out.data(), from, size, 0), "copy_to_host");
  return out;
}

void Rig::sync(npu_stream* on) const {
  ok(d.stream_synchronize(on ? on : stream), "stream_synchronize");
}

void Rig::still_works() const {
  npu_addr addr = alloc(1000);
  Bytes want = pattern(1000, 77);
  upload(addr, want);
  expect_equal(download(addr, 1000), want, "a copy after the failure");
  sync();
  free(addr);
}

Bytes pattern(uint64_t size, uint64_t seed) {
  Random random(seed);
  Bytes out(size);
  uint64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word = random.next();
    std::memcpy(&out[i], &word, 8);
  }
  for (; i < size; i++) out[i] = static_cast<uint8_t>(random.next());
  return out;
}

void expect_equal(const Bytes& got, const Bytes& want, const std::string& what) {
  expect(got.size() == want.size(), what, ": expected ", want.size(), " bytes, got ", got.size());
  if (got.empty() || std::memcmp(got.data(), want.data(), got.size()) == 0) return;
  for (size_t i = 0; i < got.size(); i++)
    expect(got[i] == want[i], what, ": byte ", i, " of ", got.size(), ": expected ", hex(want[i]), ", got ",
           hex(got[i]));
}

}  // namespace driver_test
