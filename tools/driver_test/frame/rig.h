// An opened driver with one device and one stream, and the contract's functions with their result checked.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "tools/driver_test/frame/suite.h"

namespace driver_test {

using Bytes = std::vector<uint8_t>;

class Rig {
 public:
  explicit Rig(Context& context, uint32_t index = 0);
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  Context& context;
  const npu_driver& d;
  npu_instance* instance = nullptr;
  npu_device* device = nullptr;
  npu_stream* stream = nullptr;
  npu_properties properties{};

  std::string text() const;  // error_text, never null
  void ok(npu_status status, const char* what) const;
  // The call must fail with one of `allowed`, with a text, and the device must still copy correctly.
  void refused(npu_status status, const char* what, std::vector<npu_status> allowed) const;
  // Also: the text names this address in hexadecimal.
  void names(const char* what, npu_addr addr) const;

  npu_addr alloc(uint64_t size) const;
  void free(npu_addr addr) const;
  npu_stream* new_stream(int32_t priority = 0) const;
  npu_event* new_event(uint32_t flags = 0) const;
  void* new_host(uint64_t size) const;
  uint64_t free_memory() const;

  void upload(npu_addr to, const void* from, uint64_t size, npu_stream* on = nullptr) const;
  void upload(npu_addr to, const Bytes& from) const { upload(to, from.data(), from.size()); }
  Bytes download(npu_addr from, uint64_t size, npu_stream* on = nullptr) const;
  void sync(npu_stream* on = nullptr) const;
  // Writes a pattern and reads it back: the device works.
  void still_works() const;

  bool has(npu_command_kind kind) const { return properties.commands >> kind & 1; }
};

Bytes pattern(uint64_t size, uint64_t seed);
void expect_equal(const Bytes& got, const Bytes& want, const std::string& what);

}  // namespace driver_test
