#include "tests/cpp/legalise/making_driver.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/legalise/describe.h"
#include "support/program/validate.h"
#include "support/reference/reference.h"

namespace legalise_test {
namespace {

using npu::Program;
using npu::legalise::Bound;
using npu::legalise::Draft;
using npu::legalise::Script;

// Blocks far apart, each of the bytes that were asked for, so that a stray access meets nothing.
class Blocks {
 public:
  npu_addr add(uint64_t bytes) {
    const npu_addr addr = next_;
    next_ += (bytes + 0x1fff) & ~uint64_t{0xfff};
    // What nobody wrote is a NaN in every float type and no small number. The word in which an allocation ends belongs to
    // it, as it does on every device whose allocations are multiples of its alignment.
    blocks_[addr].assign((bytes + 7) & ~uint64_t{7}, 0xff);
    return addr;
  }
  void remove(npu_addr addr) { blocks_.erase(addr); }
  void* at(npu_addr addr, uint64_t size) {
    auto block = blocks_.upper_bound(addr);
    if (block == blocks_.begin()) return nullptr;
    --block;
    const uint64_t offset = addr - block->first;
    return offset + size <= block->second.size() ? block->second.data() + offset : nullptr;
  }

 private:
  npu_addr next_ = 0x100000;
  std::map<npu_addr, std::vector<unsigned char>> blocks_;
};

struct Driver {
  Make make;
  Blocks memory;
  std::string problem;         // of the last call that failed
  npu_status failed = NPU_OK;  // of work that was accepted
  static Driver& get() {
    static Driver driver;
    return driver;
  }
};

npu_status say(npu_status status, std::string why) {
  Driver::get().problem = std::move(why);
  return status;
}

// Sets `failed` as a driver's asynchronous failure does.
npu_status run_draft(const Draft& draft, const npu_command& refused, const std::vector<npu_addr>& scratch) {
  Driver& driver = Driver::get();
  const Bound given(draft, refused, scratch);
  npu_program_desc desc{};
  if (draft.program) desc = draft.program->desc();
  std::string error;
  const auto translate = [&](npu_addr addr, uint64_t size, bool) { return driver.memory.at(addr, size); };
  const npu_status status = npu::run_reference(given.command, draft.program ? &desc : nullptr, translate, &error);
  if (status == NPU_OK) return status;
  std::string text = error + "\n  in the draft " + describe(draft);
  if (draft.program) text += "\n" + npu::to_text(desc);
  return say(status, std::move(text));
}

// More than the contract allows a program: no command yet, but another rule's work.
bool beyond_limits(const Draft& draft) {
  if (!draft.program) return false;
  const std::string broken = npu::validate(draft.program->desc());
  const bool limits = broken.find("at most") != std::string::npos || broken.find("live") != std::string::npos;
  return limits;
}

npu_status submit(npu_stream*, const npu_command* command) {
  Driver& driver = Driver::get();
  const auto* program = reinterpret_cast<const Program*>(command->program);
  const Draft refused =
      npu::legalise::draft_of(*command, program ? std::make_shared<const Program>(*program) : nullptr);
  std::vector<uint64_t> bytes;
  const std::vector<uint32_t> aliases = npu::legalise::aliases_of(*command);
  Script script(bytes, aliases);
  if (!driver.make(refused, script)) return say(NPU_UNSUPPORTED, "expected a command that fits, got another");
  if (std::any_of(script.drafts.begin(), script.drafts.end(), beyond_limits))
    return say(NPU_UNSUPPORTED, "expected drafts within the contract's limits, got a longer one");
  std::vector<npu_addr> scratch;
  for (const uint64_t size : bytes) scratch.push_back(driver.memory.add(size));
  npu_status status = NPU_OK;
  for (const Draft& draft : script.drafts)
    if (status == NPU_OK) status = run_draft(draft, *command, scratch);
  for (const npu_addr addr : scratch) driver.memory.remove(addr);
  if (status == NPU_ERROR_INVALID) return status;  // the draft itself is wrong
  driver.failed = status;
  return NPU_OK;
}

npu_status program_create(npu_device*, const npu_program_desc* desc, npu_program** out) {
  *out = reinterpret_cast<npu_program*>(new Program(Program::copy_of(*desc)));
  return NPU_OK;
}
void program_destroy(npu_program* program) {
  delete reinterpret_cast<Program*>(program);
}

npu_status synchronize(npu_stream*) {
  return std::exchange(Driver::get().failed, NPU_OK);
}
npu_status memory_alloc(npu_device*, uint64_t size, npu_addr* out) {
  *out = Driver::get().memory.add(size);
  return NPU_OK;
}
npu_status memory_free(npu_device*, npu_addr addr) {
  Driver::get().memory.remove(addr);
  return NPU_OK;
}
npu_status copy_to_device(npu_stream*, npu_addr to, const void* from, uint64_t size, uint32_t) {
  std::memcpy(Driver::get().memory.at(to, size), from, size);
  return NPU_OK;
}
npu_status copy_to_host(npu_stream*, void* to, npu_addr from, uint64_t size, uint32_t) {
  std::memcpy(to, Driver::get().memory.at(from, size), size);
  return NPU_OK;
}

// Handles that nobody looks into.
template <class Handle>
Handle* some() {
  static char place;
  return reinterpret_cast<Handle*>(&place);
}

npu_driver table() {
  npu_driver d{};
  d.abi_major = NPU_ABI_MAJOR;
  d.abi_minor = NPU_ABI_MINOR;
  d.struct_size = sizeof d;
  d.name = "making";
  d.version = "1";
  d.error_text = [] { return Driver::get().problem.c_str(); };
  d.open = [](const char*, npu_instance** out) { return *out = some<npu_instance>(), NPU_OK; };
  d.close = [](npu_instance*) {};
  d.device_open = [](npu_instance*, uint32_t, npu_device** out) { return *out = some<npu_device>(), NPU_OK; };
  d.device_close = [](npu_device*) {};
  d.device_properties = [](npu_device*, npu_properties* out) {
    out->commands = (1u << NPU_COMMAND_COUNT) - 1;
    return NPU_OK;
  };
  d.stream_create = [](npu_device*, int32_t, npu_stream** out) { return *out = some<npu_stream>(), NPU_OK; };
  d.stream_destroy = [](npu_stream*) {};
  d.stream_synchronize = synchronize;
  d.memory_alloc = memory_alloc;
  d.memory_free = memory_free;
  d.copy_to_device = copy_to_device;
  d.copy_to_host = copy_to_host;
  d.program_create = program_create;
  d.program_destroy = program_destroy;
  d.supports = [](npu_device*, const npu_command*) { return NPU_OK; };
  d.submit = submit;
  return d;
}

}  // namespace

const npu_driver* making_driver(Make make) {
  static const npu_driver driver = table();
  Driver::get().make = std::move(make);
  return &driver;
}

}  // namespace legalise_test
