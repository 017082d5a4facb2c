#include "csrc/core/memory/staging_memory.h"

#include <c10/core/CPUAllocator.h>

#include <mutex>

#include "csrc/core/memory/spare.h"

namespace torch_npu {
namespace {

constexpr uint64_t kHeader = 64;  // has the size, and keeps the alignment of CPU tensors

class StagingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, c10::Device(c10::kCPU)};
    const uint64_t whole = kHeader + size;
    std::optional<char*> block;
    {
      std::lock_guard lock(mutex_);
      block = spare_.take(whole);
    }
    char* base = block ? *block : static_cast<char*>(c10::GetCPUAllocator()->raw_allocate(spare_.rounded(whole)));
    *reinterpret_cast<uint64_t*>(base) = whole;
    return {base + kHeader, base, &give_back, c10::Device(c10::kCPU)};
  }

  void copy_data(void* dst, const void* src, size_t size) const override { default_copy_data(dst, src, size); }

  static StagingAllocator& get() {
    static auto* allocator = new StagingAllocator;
    return *allocator;
  }

 private:
  static void give_back(void* context) {
    auto* base = static_cast<char*>(context);
    std::vector<char*> old;
    {
      std::lock_guard lock(get().mutex_);
      old = get().spare_.give_back(*reinterpret_cast<uint64_t*>(base), base);
    }
    for (char* block : old) c10::GetCPUAllocator()->raw_deallocate(block);
  }

  std::mutex mutex_;
  Spare<char*> spare_;
};

}  // namespace

c10::Allocator* staging_allocator() {
  return &StagingAllocator::get();
}

}  // namespace torch_npu
