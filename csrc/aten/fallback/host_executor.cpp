#include "csrc/aten/fallback/host_executor.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "csrc/core/memory/spare.h"
#include "csrc/core/memory/staging_memory.h"
#include "npu/program.h"
#include "support/loading/driver_library.h"
#include "support/program/accesses.h"
#include "support/program/program.h"
#include "support/reference/reference.h"

namespace torch_npu {
namespace {

// Do the points of the first `rank` dimensions have all bytes of the piece?
bool covers(const npu_command& command, const npu_operand& operand, int rank, const DevicePiece& piece) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int d = 0; d < rank; ++d) {
    if (command.size[d] == 0) return false;
    if (command.size[d] > 1 && operand.stride[d] != 0) dims.emplace_back(operand.stride[d], command.size[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t count = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != count) return false;
    count *= size;
  }
  return operand.addr == piece.begin && static_cast<uint64_t>(count) * npu::dtype_size(operand.dtype) >= piece.size;
}

struct Use {
  bool read = false, written = false;
};

// What the command needs of each piece, and what it changes.
std::vector<Use> uses_of(const HostRun& run) {
  const npu_command& command = run.command;
  std::vector<Use> uses(run.pieces.size());
  std::vector<char> stored(command.operand_count), loaded(command.operand_count), filled(run.pieces.size());
  const auto piece = [&](uint32_t operand) { return run.piece_of[operand]; };
  for (const npu::Access& access : npu::accesses_of(command, run.program)) {
    const npu_operand& operand = command.operands[access.operand];
    if (!access.write || access.meets) loaded[access.operand] = true;
    if (!access.write) continue;
    stored[access.operand] = true;
    const size_t to = piece(access.operand);
    if (to >= uses.size()) continue;  // of no bytes
    uses[to].written = true;
    const bool plain = !access.computed && !access.masked;
    if (plain && covers(command, operand, access.rank, run.pieces[to])) filled[to] = true;
  }
  for (uint32_t k = 0; k < command.operand_count; ++k) {
    const bool only_stored = stored[k] && !loaded[k];
    if (piece(k) < uses.size() && !(only_stored && filled[piece(k)])) uses[piece(k)].read = true;
  }
  return uses;
}

// One stream of the second driver's first device. Lives as long as the process.
class SecondDriver {
 public:
  static SecondDriver* get() {
    static SecondDriver* found = open();
    return found;
  }

  // Nothing: it was refused, and no memory of the device has changed.
  std::optional<npu_status> run(const HostRun& run, const std::vector<Use>& uses, std::string* error) {
    std::lock_guard lock(mutex_);
    npu_command here = run.command;
    if (run.program) {
      here.program = program_of(*run.program);
      if (!here.program) return std::nullopt;
    }
    Copies copies(*this, run, uses);
    npu_status status = copies.bring();
    if (status == NPU_ERROR_MEMORY) return std::nullopt;
    if (status != NPU_OK) return fail(status, error);
    std::vector<npu_operand> operands(here.operands, here.operands + here.operand_count);
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k].flags & NPU_OPERAND_IMMEDIATE) continue;
      const size_t piece = run.piece_of[k];
      if (piece >= run.pieces.size()) return std::nullopt;
      operands[k].addr += copies.addr[piece] - run.pieces[piece].begin;
    }
    here.operands = operands.data();
    status = api_->submit(stream_, &here);
    if (status == NPU_UNSUPPORTED || status == NPU_ERROR_MEMORY) return std::nullopt;
    if (status == NPU_OK) status = api_->stream_synchronize(stream_);
    if (status == NPU_OK) status = copies.take_back();
    return status == NPU_OK ? status : fail(status, error);
  }

 private:
  SecondDriver(const npu_driver* api, npu_device* device, npu_stream* stream)
      : api_(api), device_(device), stream_(stream) {}

  static SecondDriver* open() {
    const char* wish = std::getenv("TORCH_NPU_HOST_EXECUTOR");
    const std::string spec = wish && *wish ? wish : "cmodel";
    if (spec == "reference") return nullptr;
    if (npu::find_library(spec.substr(0, spec.find(':'))).empty() && !(wish && *wish)) return nullptr;  // not built
    npu::OpenedDriver driver;
    try {
      driver = npu::open_driver(spec);
    } catch (const std::runtime_error& error) {
      TORCH_CHECK(false, "TORCH_NPU_HOST_EXECUTOR: ", error.what());
    }
    npu_device* device = nullptr;
    npu_stream* stream = nullptr;
    TORCH_CHECK(driver.api->device_open(driver.instance, 0, &device) == NPU_OK &&
                    driver.api->stream_create(device, 0, &stream) == NPU_OK,
                "TORCH_NPU_HOST_EXECUTOR: driver \"", spec, "\": ", driver.api->error_text());
    return new SecondDriver(driver.api, device, stream);
  }

  npu_status fail(npu_status status, std::string* error) const {
    *error = api_->error_text();
    return status;
  }

  npu_program* program_of(const npu_program_desc& desc) {
    auto [at, fresh] = programs_.try_emplace(desc.instrs, nullptr);
    if (fresh && api_->program_create(device_, &desc, &at->second) != NPU_OK) at->second = nullptr;
    return at->second;
  }

  // The pieces in the second driver's memory.
  struct Copies {
    Copies(SecondDriver& owner, const HostRun& run, const std::vector<Use>& uses)
        : owner(owner), run(run), uses(uses), window(staging_allocator()->allocate(kWindow)) {}
    ~Copies() {
      owner.api_->stream_synchronize(owner.stream_);  // after a failure copies may still be under way
      for (size_t k = 0; k < addr.size(); ++k) owner.give_back(run.pieces[k].size, addr[k]);
    }
    npu_status bring() {
      for (size_t k = 0; k < run.pieces.size(); ++k) {
        npu_addr a = 0;
        npu_status status = owner.take(run.pieces[k].size, &a);
        if (status != NPU_OK) return status;
        addr.push_back(a);
        if (!uses[k].read) continue;
        status = by_windows(run.pieces[k], [&](uint64_t at, uint64_t size) {
          run.read(window.get(), run.pieces[k].begin + at, size);
          return owner.api_->copy_to_device(owner.stream_, a + at, window.get(), size, 0);
        });
        if (status != NPU_OK) return status;
      }
      return NPU_OK;
    }
    npu_status take_back() {
      for (size_t k = 0; k < run.pieces.size(); ++k) {
        if (!uses[k].written) continue;
        const npu_status status = by_windows(run.pieces[k], [&](uint64_t at, uint64_t size) {
          npu_status copied = owner.api_->copy_to_host(owner.stream_, window.get(), addr[k] + at, size, 0);
          if (copied == NPU_OK) copied = owner.api_->stream_synchronize(owner.stream_);
          if (copied == NPU_OK) run.write(run.pieces[k].begin + at, window.get(), size);
          return copied;
        });
        if (status != NPU_OK) return status;
      }
      return NPU_OK;
    }

    // What was copied on the way from one driver to the other is still in the cache when it is copied again.
    static constexpr uint64_t kWindow = 256 << 10;
    template <class F>
    static npu_status by_windows(const DevicePiece& piece, F copy) {
      for (uint64_t at = 0; at < piece.size; at += kWindow) {
        const npu_status status = copy(at, std::min(kWindow, piece.size - at));
        if (status != NPU_OK) return status;
      }
      return NPU_OK;
    }

    SecondDriver& owner;
    const HostRun& run;
    const std::vector<Use>& uses;
    c10::DataPtr window;
    std::vector<npu_addr> addr;
  };

  npu_status take(uint64_t size, npu_addr* addr) {
    if (const std::optional<npu_addr> spare = spare_.take(size)) {
      *addr = *spare;
      return NPU_OK;
    }
    npu_status status = api_->memory_alloc(device_, spare_.rounded(size), addr);
    if (status != NPU_ERROR_MEMORY) return status;
    free(spare_.take_all());
    return api_->memory_alloc(device_, spare_.rounded(size), addr);
  }
  void give_back(uint64_t size, npu_addr addr) { free(spare_.give_back(size, addr)); }
  void free(const std::vector<npu_addr>& blocks) {
    for (npu_addr block : blocks) api_->memory_free(device_, block);
  }

  Spare<npu_addr> spare_;
  const npu_driver* api_;
  npu_device* device_;
  npu_stream* stream_;
  std::mutex mutex_;
  std::map<const npu_instr*, npu_program*> programs_;  // null: refused
};

npu_status run_by_reference(const HostRun& run, const std::vector<Use>& uses, std::string* error) {
  std::vector<c10::DataPtr> images;
  for (size_t k = 0; k < run.pieces.size(); ++k) {
    images.push_back(staging_allocator()->allocate(run.pieces[k].size));
    if (uses[k].read) run.read(images[k].get(), run.pieces[k].begin, run.pieces[k].size);
  }
  const auto translate = [&](npu_addr addr, uint64_t size, bool) -> void* {
    for (size_t k = 0; k < images.size(); ++k) {
      const DevicePiece& piece = run.pieces[k];
      if (addr >= piece.begin && addr - piece.begin + size <= piece.size)
        return static_cast<char*>(images[k].get()) + (addr - piece.begin);
    }
    return nullptr;
  };
  const npu_status status = npu::run_reference(run.command, run.program, translate, error);
  for (size_t k = 0; status == NPU_OK && k < images.size(); ++k) {
    if (uses[k].written) run.write(run.pieces[k].begin, images[k].get(), run.pieces[k].size);
  }
  return status;
}

}  // namespace

npu_status run_on_host(const HostRun& run, std::string* error) {
  const std::vector<Use> uses = uses_of(run);
  if (SecondDriver* driver = SecondDriver::get()) {
    if (const std::optional<npu_status> status = driver->run(run, uses, error)) return *status;
  }
  return run_by_reference(run, uses, error);
}

}  // namespace torch_npu
