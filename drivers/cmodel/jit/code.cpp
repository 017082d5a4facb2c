// Memory that holds code: written first, then made executable, never both at once.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "drivers/cmodel/jit/jit.h"
#include "drivers/cmodel/simd/isa_level.h"

namespace cmodel {

Code::Code(void* memory, size_t bytes) : memory_(memory), bytes_(bytes) {
  std::memcpy(&run_, &memory_, sizeof run_);
}

Code::~Code() {
  munmap(memory_, bytes_);
}

namespace {
std::atomic<bool> refused{false};
}

std::unique_ptr<Code> Code::make(const std::vector<uint8_t>& bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = (bytes.size() + page - 1) / page * page;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memcpy(memory, bytes.data(), bytes.size());
  if (mprotect(memory, size, PROT_READ | PROT_EXEC) != 0) {
    munmap(memory, size);
    refused = true;
    return nullptr;
  }
  return std::unique_ptr<Code>(new Code(memory, size));
}

bool can_compile() {
  static const bool can = [] {
    const char* wish = std::getenv("NPU_CMODEL_JIT");
    if ((wish && std::strcmp(wish, "off") == 0) || isa_level() == IsaLevel::kBase) return false;
    return Code::make({0xc3}) != nullptr;  // ret: does the system allow it?
  }();
  return can && !refused;
}

Variants::~Variants() {
  for (One* one = first_.load(std::memory_order_relaxed); one;) {
    One* const next = one->next;
    delete one;
    one = next;
  }
}

}  // namespace cmodel
