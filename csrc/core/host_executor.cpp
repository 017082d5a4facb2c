#include "csrc/core/host_executor.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <stdexcept>

#include "npu/program.h"
#include "support/driver_library.h"
#include "support/reference.h"

namespace torch_npu {
namespace {

constexpr uint64_t kMostSpare = uint64_t{1} << 28;  // bytes, on either side

struct SpareMemory {
  std::mutex mutex;
  std::multimap<uint64_t, std::unique_ptr<char[]>> blocks;  // by size
  uint64_t bytes = 0;
};

SpareMemory& spare_memory() {
  static auto* spare = new SpareMemory;
  return *spare;
}

HostImage* image_of(std::vector<HostImage>& images, npu_addr addr, uint64_t size) {
  for (HostImage& image : images)
    if (addr >= image.begin && addr - image.begin + size <= image.size) return &image;
  return nullptr;
}

// One stream of the second driver's first device. Lives as long as the process.
class SecondDriver {
 public:
  static SecondDriver* get() {
    static SecondDriver* found = open();
    return found;
  }

  npu_status run(const npu_command& command, const npu_program_desc* program, std::vector<HostImage>& images,
                 const std::vector<size_t>& owner, std::string* error) {
    std::lock_guard lock(mutex_);
    npu_command here = command;
    if (program) {
      here.program = program_of(*program);
      if (!here.program) return NPU_UNSUPPORTED;
    }
    Copies copies(*this, images);
    npu_status status = copies.bring();
    if (status != NPU_OK) return fail(status, error);
    std::vector<npu_operand> operands(command.operands, command.operands + command.operand_count);
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k].flags & NPU_OPERAND_IMMEDIATE) continue;
      if (owner[k] >= images.size()) return NPU_UNSUPPORTED;
      operands[k].addr += copies.addr[owner[k]] - images[owner[k]].begin;
    }
    here.operands = operands.data();
    status = api_->submit(stream_, &here);
    if (status == NPU_OK) status = api_->stream_synchronize(stream_);
    if (status != NPU_OK) return fail(status, error);
    mark_written(command, program, images, owner);
    status = copies.take_back();
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

  static void mark_written(const npu_command& command, const npu_program_desc* program, std::vector<HostImage>& images,
                           const std::vector<size_t>& owner) {
    const auto mark = [&](uint32_t operand) { images[owner[operand]].written = true; };
    if (!program) return mark(command.kind == NPU_MATMUL || command.kind == NPU_CONV ? 2 : 0);
    for (uint32_t k = 0; k < program->instr_count; ++k) {
      const npu_instr& in = program->instrs[k];
      if (in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT) mark(in.imm);
    }
  }

  // The images in the second driver's memory.
  struct Copies {
    Copies(SecondDriver& owner, std::vector<HostImage>& images) : owner(owner), images(images) {}
    ~Copies() {
      owner.api_->stream_synchronize(owner.stream_);  // after a failure copies may still be under way
      for (size_t k = 0; k < addr.size(); ++k) owner.give_back(images[k].size, addr[k]);
    }
    npu_status bring() {
      for (const HostImage& image : images) {
        npu_addr a = 0;
        npu_status status = owner.take(image.size, &a);
        if (status != NPU_OK) return status;
        addr.push_back(a);
        status = owner.api_->copy_to_device(owner.stream_, a, image.bytes.get(), image.size, 0);
        if (status != NPU_OK) return status;
      }
      return NPU_OK;
    }
    npu_status take_back() {
      for (size_t k = 0; k < images.size(); ++k) {
        if (!images[k].written) continue;
        npu_status status = owner.api_->copy_to_host(owner.stream_, images[k].bytes.get(), addr[k], images[k].size, 0);
        if (status != NPU_OK) return status;
      }
      return owner.api_->stream_synchronize(owner.stream_);
    }
    SecondDriver& owner;
    std::vector<HostImage>& images;
    std::vector<npu_addr> addr;
  };

  // Memory that was given back serves the next command: fresh pages cost more than the copies.
  npu_status take(uint64_t size, npu_addr* addr) {
    const auto found = spare_.find(size);
    if (found == spare_.end()) return api_->memory_alloc(device_, size, addr);
    *addr = found->second;
    spare_.erase(found);
    spare_bytes_ -= size;
    return NPU_OK;
  }
  void give_back(uint64_t size, npu_addr addr) {
    spare_.emplace(size, addr);
    spare_bytes_ += size;
    while (spare_bytes_ > kMostSpare) {
      const auto largest = std::prev(spare_.end());
      api_->memory_free(device_, largest->second);
      spare_bytes_ -= largest->first;
      spare_.erase(largest);
    }
  }

  std::multimap<uint64_t, npu_addr> spare_;  // by size
  uint64_t spare_bytes_ = 0;
  const npu_driver* api_;
  npu_device* device_;
  npu_stream* stream_;
  std::mutex mutex_;
  std::map<const npu_instr*, npu_program*> programs_;  // null: refused
};

}  // namespace

std::unique_ptr<char[]> take_host_memory(uint64_t size) {
  SpareMemory& spare = spare_memory();
  {
    std::lock_guard lock(spare.mutex);
    if (const auto found = spare.blocks.find(size); found != spare.blocks.end()) {
      spare.bytes -= size;
      return std::move(spare.blocks.extract(found).mapped());
    }
  }
  return std::unique_ptr<char[]>(new char[size]);
}

void give_back_host_memory(std::vector<HostImage>& images) {
  SpareMemory& spare = spare_memory();
  std::lock_guard lock(spare.mutex);
  for (HostImage& image : images) {
    if (spare.bytes + image.size > kMostSpare) continue;
    spare.bytes += image.size;
    spare.blocks.emplace(image.size, std::move(image.bytes));
  }
  images.clear();
}

npu_status run_on_host(const npu_command& command, const npu_program_desc* program, std::vector<HostImage>& images,
                       const std::vector<size_t>& owner, std::string* error) {
  npu_command plain = command;
  plain.program = nullptr;
  plain.choice = 0;  // was the other driver's
  if (SecondDriver* driver = SecondDriver::get()) {
    const npu_status status = driver->run(plain, program, images, owner, error);
    if (status != NPU_UNSUPPORTED && status != NPU_ERROR_MEMORY) return status;
  }
  const auto translate = [&](npu_addr addr, uint64_t size, bool write) -> void* {
    HostImage* image = image_of(images, addr, size);
    if (!image) return nullptr;
    image->written |= write;
    return image->bytes.get() + (addr - image->begin);
  };
  return npu::run_reference(plain, program, translate, error);
}

}  // namespace torch_npu
