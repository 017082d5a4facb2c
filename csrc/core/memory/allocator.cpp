#include "csrc/core/memory/allocator.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "csrc/core/device/internal.h"
#include "csrc/core/device/stream.h"
#include "csrc/core/device/thread_state.h"
#include "csrc/core/launch/launch.h"
#include "csrc/core/memory/caching/core.h"
#include "csrc/core/memory/memory_history.h"
#include "csrc/core/memory/oom.h"
#include "csrc/core/memory/quarantine.h"
#include "csrc/core/memory/sanitizer_calls.h"

namespace torch_npu {
namespace {

using caching::Block;
using caching::CachingCore;

// One cache per opened device, for the life of the process: tensors may be freed after every static is gone.
std::array<CachingCore*, kMaxDevices> g_cores{};
std::array<std::atomic<double>, kMaxDevices> g_fractions{};  // 1 + the fraction; 0: never set

// PyTorch refuses keys of PYTORCH_ALLOC_CONF that it does not know, but only where a backend has registered a parser
// for keys of its own. This one has none; a build with CUDA has registered its parser by now.
template <class Shared>
bool refuse_unknown_keys() {
  if constexpr (requires { Shared::getConfigParserHook(); }) {
    if (!Shared::getConfigParserHook()) Shared::registerDeviceConfigParserHook([](const std::string&) {}, {});
  }
  return true;
}
[[maybe_unused]] const bool g_unknown_keys_refused =
    refuse_unknown_keys<c10::CachingAllocator::AcceleratorAllocatorConfig>();

caching::Config read_config() {
  using Shared = c10::CachingAllocator::AcceleratorAllocatorConfig;
  caching::Config config;
  config.max_split_size = Shared::max_split_size();
  config.max_non_split_rounding = Shared::max_non_split_rounding_size();
  config.large_segment = Shared::large_segment_size();
  config.garbage_collection_threshold = Shared::garbage_collection_threshold();
  config.expandable_segments = Shared::use_expandable_segments();
  return config;
}

double fraction_of(c10::DeviceIndex index) {
  const double kept = g_fractions[index].load();
  return kept > 0 ? kept - 1 : 1;
}

void apply_fraction(const Device& device) {
  const double fraction = fraction_of(device.index), total = static_cast<double>(device.properties.total_memory);
  // A limit of 0 is none, so nothing at all is a limit of one byte.
  g_cores[device.index]->set_limit(fraction < 1 ? std::max<uint64_t>(static_cast<uint64_t>(fraction * total), 1) : 0);
}

c10::Device npu(int index) {
  return c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index));
}

[[gnu::noinline]] void report(const Block* block, int64_t change) {
  CachingCore& core = *block->pool->core;
  const auto [allocated, reserved] = core.allocated_and_reserved();
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(block->addr), change, allocated, reserved, npu(core.tag()));
}

[[noreturn, gnu::noinline]] void fail(c10::DeviceIndex index, const caching::OutOfMemory& why) {
  if (why.status != NPU_ERROR_MEMORY) {
    // The driver's text was taken when the call failed; error_text may since have changed.
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, static_cast<int32_t>(why.status),
                                "npu:" + std::to_string(index) + " (" + opened_device(index).driver +
                                    "): allocating memory failed: " + why.driver_text);
  }
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(why.requested), why.allocated, why.reserved, npu(index));
  throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                              describe_out_of_memory(opened_device(index), why));
}

[[gnu::noinline]] void tell_of_free(const Block& block) {
  const auto device = static_cast<c10::DeviceIndex>(block.pool->core->tag());
  if (history::is_on()) {
    const history::Scope scope;
    history::freed(device, block.addr, block.requested, block.pool->stream, !block.uses.empty());
  }
  if (sanitizer::is_on()) {
    sanitizer::Freed freed{block.addr, block.pool->stream, block.pool->is_private, {}};
    for (const caching::StreamUse& use : block.uses) freed.passed.push_back(use.stream);
    sanitizer::freed(device, freed);
  }
}

void give_back(Block* block) {
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    const auto size = static_cast<int64_t>(block->size);
    const npu_addr addr = block->addr;
    CachingCore& core = *block->pool->core;
    core.free(block);
    const auto [allocated, reserved] = core.allocated_and_reserved();
    c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(addr), -size, allocated, reserved, npu(core.tag()));
    return;
  }
  block->pool->core->free(block);
}

void delete_block(void* context) {
  if (is_in_bad_fork()) [[unlikely]] {
    return;  // the parent's memory
  }
  auto* block = static_cast<Block*>(context);
  if (memory_watch()) [[unlikely]] {
    tell_of_free(*block);
    if (sanitizer::is_on()) {
      for (Block* done : quarantine(block)) give_back(done);
      return;
    }
  }
  give_back(block);
}

[[gnu::noinline]] Block* allocate_watched(c10::DeviceIndex index, size_t size) {
  const history::Scope scope;
  const bool sanitizes = sanitizer::is_on();
  npu_stream* stream = current_handle(index);
  if (sanitizes) sanitizer::allocates(index, stream);
  caching::OutOfMemory why;
  const size_t wanted = size + (sanitizes ? sanitizer::kGap : 0);
  Block* block = g_cores[index]->allocate(stream, wanted, &why);
  if (!block && sanitizes) {
    empty_quarantine();
    block = g_cores[index]->allocate(stream, wanted, &why);
  }
  if (!block) {
    if (history::is_on()) history::out_of_memory(index, size, why.device_free, stream);
    fail(index, why);
  }
  if (history::is_on()) history::allocated(index, block->addr, size, stream);
  if (sanitizes) sanitizer::allocated(index, block->addr, size, stream, block->pool->is_private);
  return block;
}

Block* allocate_block(c10::DeviceIndex index, size_t size) {
  if (!is_opened(index)) [[unlikely]] {
    device(index);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, size < (uint64_t{1} << 60), "expected a tensor that fits into memory, got one of ",
                   size, " bytes");
  if (memory_watch()) [[unlikely]] {
    return allocate_watched(index, size);
  }
  caching::OutOfMemory why;
  Block* block = g_cores[index]->allocate(current_handle(index), size, &why);
  if (!block) [[unlikely]] {
    fail(index, why);
  }
  return block;
}

Block* block_of(const c10::DataPtr& data) {
  if (!data.get() || data.device().type() != c10::DeviceType::PrivateUse1) return nullptr;
  if (data.get_deleter() == &delete_block) return static_cast<Block*>(data.get_context());
  // Wrapped, as copy-on-write does, or not ours at all.
  const c10::DeviceIndex index = data.device().index();
  if (!is_opened(index)) return nullptr;
  return g_cores[index]->find(reinterpret_cast<npu_addr>(data.get()));
}

struct NPUAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t size) override {
    const c10::DeviceIndex index = tls_device;
    if (size == 0) return {nullptr, nullptr, &delete_block, npu(index)};
    Block* block = allocate_block(index, size);
    if (c10::memoryProfilingEnabled()) [[unlikely]] {
      report(block, static_cast<int64_t>(block->size));
    }
    return {reinterpret_cast<void*>(block->addr), block, &delete_block, npu(index)};
  }

  // The context is a block and not the address, because addresses of different devices may be equal: c10's raw
  // interface, which knows only addresses, is therefore not offered. See raw_alloc.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return data.get_deleter() == &delete_block; }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    if (count == 0) return;
    const c10::DeviceIndex index = device_of_pointer(dest);
    TORCH_CHECK(index >= 0, "expected npu memory as the destination of a copy, got another pointer");
    const Device& target = opened_device(index);
    npu_stream* stream = current_handle(index);
    const auto from = reinterpret_cast<npu_addr>(src);
    Block* source = g_cores[index]->find(from);
    TORCH_CHECK(source, "expected source and destination of a copy on one device, got a source that is not on npu:",
                static_cast<int>(index));
    g_cores[index]->record_stream(source, {target.api, target.handle, stream});
    copy_on_stream(target, stream, reinterpret_cast<npu_addr>(dest), from, count, "copying device memory");
  }

  bool initialized() override {
    return std::any_of(g_cores.begin(), g_cores.end(), [](const CachingCore* core) { return core; });
  }
  void emptyCache(c10::MempoolId_t) override { empty_cache(); }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override { record_stream(data, stream); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override;
  void resetAccumulatedStats(c10::DeviceIndex index) override { reset_accumulated_memory_stats(index); }
  void resetPeakStats(c10::DeviceIndex index) override { reset_peak_memory_stats(index); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override { return memory_info(index); }
};

c10::CachingDeviceAllocator::DeviceStats NPUAllocator::getDeviceStats(c10::DeviceIndex index) {
  const caching::Stats from = memory_stats(index);
  c10::CachingDeviceAllocator::DeviceStats to;
  const auto one = [](const caching::Stat& stat) {
    c10::CachingAllocator::Stat out;
    out.current = stat.current;
    out.peak = stat.peak;
    out.allocated = stat.allocated;
    out.freed = stat.freed;
    return out;
  };
  const auto all = [&](const caching::StatGroup& group) {
    return c10::CachingAllocator::StatArray{one(group.of[0]), one(group.of[1]), one(group.of[2])};
  };
  to.allocation = all(from.allocation);
  to.segment = all(from.segment);
  to.active = all(from.active);
  to.inactive_split = all(from.inactive_split);
  to.allocated_bytes = all(from.allocated_bytes);
  to.reserved_bytes = all(from.reserved_bytes);
  to.active_bytes = all(from.active_bytes);
  to.inactive_split_bytes = all(from.inactive_split_bytes);
  to.requested_bytes = all(from.requested_bytes);
  to.oversize_allocations = one(from.oversize_allocations);
  to.oversize_segments = one(from.oversize_segments);
  to.num_alloc_retries = from.num_alloc_retries;
  to.num_ooms = from.num_ooms;
  to.num_sync_all_streams = from.num_sync_all_streams;
  to.num_device_alloc = from.num_device_alloc;
  to.num_device_free = from.num_device_free;
  to.max_split_size = static_cast<int64_t>(read_config().max_split_size);
  return to;
}

NPUAllocator& allocator() {
  static auto* allocator = new NPUAllocator;
  return *allocator;
}

void check_index(c10::DeviceIndex index) {
  require_devices();
  TORCH_CHECK(index >= 0 && index < device_count(), "expected an npu device index from 0 to ", device_count() - 1,
              ", got ", static_cast<int>(index));
}

}  // namespace

void open_memory(Device& device) {
  g_cores[device.index] =
      new CachingCore(device.api, device.handle, device.properties.alignment, device.index, &read_config);
  g_cores[device.index]->on_pending_done(&history::free_completed);
  apply_fraction(device);
}

c10::DeviceAllocator* device_allocator() {
  return &allocator();
}

npu_addr allocate_scratch(c10::DeviceIndex index, uint64_t size) {
  return allocate_block(index, size)->addr;
}

void free_scratch(c10::DeviceIndex index, npu_addr addr) {
  delete_block(g_cores[index]->find(addr));
}

void* raw_alloc(size_t size) {
  return size == 0 ? nullptr : reinterpret_cast<void*>(allocate_block(tls_device, size)->addr);
}

void raw_delete(void* ptr, c10::DeviceIndex index) {
  if (!ptr || is_in_bad_fork()) return;
  Block* block = is_opened(index) ? g_cores[index]->find(reinterpret_cast<npu_addr>(ptr)) : nullptr;
  TORCH_CHECK(block && block->addr == reinterpret_cast<npu_addr>(ptr),
              "expected an address from raw_alloc on npu:", static_cast<int>(index), ", got another one");
  delete_block(block);
}

void record_stream(const c10::DataPtr& data, c10::Stream stream) {
  Block* block = block_of(data);
  if (!block) return;
  npu_stream* handle = stream_handle(stream);
  const Device& device = opened_device(stream.device_index());
  block->pool->core->record_stream(block, {device.api, device.handle, handle});
}

c10::DeviceIndex device_of_pointer(const void* ptr) noexcept {
  const auto addr = reinterpret_cast<npu_addr>(ptr);
  const auto has = [&](c10::DeviceIndex index) { return is_opened(index) && g_cores[index]->find(addr); };
  if (has(tls_device)) return tls_device;
  for (c10::DeviceIndex index = 0; index < kMaxDevices; ++index) {
    if (has(index)) return index;
  }
  return -1;
}

bool is_cached_memory(c10::DeviceIndex index, npu_addr addr) noexcept {
  return is_opened(index) && g_cores[index]->has_segment_at(addr);
}

caching::Stats memory_stats(c10::DeviceIndex index) {
  check_index(index);
  return is_opened(index) ? g_cores[index]->stats() : caching::Stats{};
}

void reset_peak_memory_stats(c10::DeviceIndex index) {
  check_index(index);
  if (is_opened(index)) g_cores[index]->reset_peak_stats();
}

void reset_accumulated_memory_stats(c10::DeviceIndex index) {
  check_index(index);
  if (is_opened(index)) g_cores[index]->reset_accumulated_stats();
}

std::vector<caching::SegmentInfo> memory_snapshot(c10::DeviceIndex index) {
  check_index(index);
  return is_opened(index) ? g_cores[index]->snapshot() : std::vector<caching::SegmentInfo>{};
}

void empty_cache() {
  const history::Scope scope;
  if (sanitizer::is_on()) empty_quarantine();
  for (c10::DeviceIndex index = 0; index < kMaxDevices; ++index) {
    if (is_opened(index)) g_cores[index]->empty_cache();
  }
}

void begin_pool(c10::DeviceIndex index, caching::PoolId id, npu_stream* stream) {
  g_cores[index]->begin_pool(id, stream);
}

void end_pool(c10::DeviceIndex index, npu_stream* stream) {
  g_cores[index]->end_pool(stream);
}

void release_pool(c10::DeviceIndex index, caching::PoolId id) {
  g_cores[index]->release_pool(id);
}

CachingCore& cache_of(c10::DeviceIndex index) {
  device(index);
  return *g_cores[index];
}

std::pair<uint64_t, uint64_t> memory_info(c10::DeviceIndex index) {
  const Device& target = device(index);
  uint64_t free_bytes = 0, total_bytes = 0;
  check(target, target.api->memory_info(target.handle, &free_bytes, &total_bytes), "asking for free memory");
  return {free_bytes, total_bytes};
}

void set_memory_fraction(double fraction, c10::DeviceIndex index) {
  TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1, "expected a memory fraction from 0 to 1, got ", fraction);
  check_index(index);
  g_fractions[index] = 1 + fraction;
  if (is_opened(index)) apply_fraction(opened_device(index));
}

double memory_fraction(c10::DeviceIndex index) {
  check_index(index);
  return fraction_of(index);
}

}  // namespace torch_npu

namespace {
const bool registered = (c10::SetAllocator(c10::DeviceType::PrivateUse1, torch_npu::device_allocator()), true);
}
