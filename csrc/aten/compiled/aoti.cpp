// The C interface of models compiled ahead of time (csrc/aoti/torch_npu_aoti.h), and what loads them.
#include "csrc/aoti/torch_npu_aoti.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/aten/compiled/compiled.h"
#include "csrc/core/device/device.h"
#include "csrc/core/device/stream.h"
#include "csrc/core/launch/launch.h"
#include "csrc/core/memory/allocator.h"
#include "csrc/core/memory/staging.h"

struct torch_npu_kernel {
  torch_npu::CompiledKernel kernel;
};

struct torch_npu_guard {
  c10::DeviceIndex before;
  std::optional<c10::Stream> stream_before;
};

namespace torch_npu {
namespace {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

// 0, or 1 with the sentence kept.
template <typename F>
int32_t guarded(const F& run) noexcept {
  try {
    run();
    return 0;
  } catch (const c10::Error& error) {
    last_error() = error.what_without_backtrace();
  } catch (const std::exception& error) {
    last_error() = error.what();
  }
  return 1;
}

at::Tensor& tensor_of(AtenTensorOpaque* handle) {
  return *reinterpret_cast<at::Tensor*>(handle);
}

CompiledKernel::Number number_of(const torch_npu_number& number) {
  CompiledKernel::Number out;
  out.value.i = number.value;
  out.argument = number.from - 1;
  return out;
}

std::vector<CompiledKernel::Number> numbers_of(const torch_npu_number* numbers, int count) {
  std::vector<CompiledKernel::Number> out;
  for (int k = 0; k < count; ++k) out.push_back(number_of(numbers[k]));
  return out;
}

CompiledKernel::Spec spec_of(const torch_npu_kernel_spec& given) {
  constexpr size_t kFirst = offsetof(torch_npu_kernel_spec, geometry_count);  // its size when there was no conv
  TORCH_CHECK(given.struct_size >= kFirst, "expected a kernel of ", kFirst, " bytes or more, got ", given.struct_size,
              ": the model was compiled for an older torch_npu; compile it again");
  CompiledKernel::Spec spec;
  spec.name = given.name;
  spec.kind = CompiledKernel::kind_of(given.kind);
  spec.inner_rank = given.inner_rank;
  spec.tensors = given.tensors;
  spec.numbers = given.numbers;
  spec.sizes = numbers_of(given.sizes, given.size_count);
  spec.params = numbers_of(given.params, given.param_count);
  spec.program = given.program;
  spec.k = number_of(given.k);
  if (given.struct_size > kFirst) spec.geometry = numbers_of(given.geometry, given.geometry_count);
  for (int k = 0; k < given.operand_count; ++k) {
    const torch_npu_operand& operand = given.operands[k];
    spec.operands.push_back({operand.tensor, number_of(operand.offset), numbers_of(operand.strides, given.size_count)});
  }
  return spec;
}

// The runner that torch's package loader makes for the device key "npu". Weights are allocated and freed on the device
// of the model, whatever the caller's device is.
class Keeper {
 public:
  explicit Keeper(const std::string& device) : index_(c10::Device(device).index()) {
    if (index_ >= 0) before_ = exchange_current_device(index_);
  }
  ~Keeper() { leave(); }

 protected:
  void enter() {
    if (index_ >= 0) before_ = exchange_current_device(index_);
  }
  void leave() {
    if (before_ >= 0) exchange_current_device(before_);
    before_ = -1;
  }

 private:
  c10::DeviceIndex index_;
  c10::DeviceIndex before_ = -1;
};

// "npu:1" by the name that a model's library takes: see aoti_include/npu.h.
std::string name_in_library(const std::string& device) {
  TORCH_CHECK_VALUE(device.rfind("npu", 0) == 0, "expected npu or npu:<index> for this model, got ", device);
  return "cuda" + device.substr(3);
}

class Runner : private Keeper, public torch::inductor::AOTIModelContainerRunner {
 public:
  Runner(const std::string& library, size_t models, const std::string& device, const std::string& folder, bool single)
      : Keeper(device), AOTIModelContainerRunner(library, models, name_in_library(device), folder, single) {
    leave();
  }
  ~Runner() override { enter(); }  // Keeper's destructor, after the model's, leaves

 protected:
  // Before 2.13 what the model's library throws is printed there, and the caller learns that a call failed.
  std::vector<at::Tensor> run_impl(std::vector<AtenTensorHandle>& inputs, void* stream) override {
    last_error().clear();
    try {
      return AOTIModelContainerRunner::run_impl(inputs, stream);
    } catch (const std::exception& error) {
      const std::string& sentence = last_error();
      TORCH_CHECK(sentence.empty() || std::string_view(error.what()).find(sentence) != std::string_view::npos,
                  sentence);
      throw;
    }
  }
};

const torch::inductor::RegisterAOTIModelRunner registered(
    "npu",
    [](const std::string& library, size_t models, const std::string& device, const std::string& folder,
       bool single) -> std::unique_ptr<torch::inductor::AOTIModelContainerRunner> {
      return std::make_unique<Runner>(library, models, device, folder, single);
    });

}  // namespace
}  // namespace torch_npu

using namespace torch_npu;

const char* torch_npu_last_error() {
  return last_error().c_str();
}

int32_t torch_npu_kernel_create(const torch_npu_kernel_spec* spec, torch_npu_kernel** out) {
  return guarded([&] { *out = new torch_npu_kernel{CompiledKernel(spec_of(*spec))}; });
}

int32_t torch_npu_kernel_run(const torch_npu_kernel* kernel, AtenTensorOpaque* const* tensors, const int64_t* numbers) {
  static_assert(sizeof(npu_scalar) == sizeof(int64_t));
  return guarded([&] {
    kernel->kernel.run(reinterpret_cast<const at::Tensor* const*>(tensors),
                       reinterpret_cast<const npu_scalar*>(numbers));
  });
}

void torch_npu_kernel_delete(torch_npu_kernel* kernel) {
  delete kernel;
}

int32_t torch_npu_guard_create(void* stream, int32_t device, torch_npu_guard** out) {
  return guarded([&] {
    const auto index = static_cast<c10::DeviceIndex>(device);
    auto guard = std::make_unique<torch_npu_guard>();
    if (stream) {
      const c10::Stream wanted = stream_of_handle(index, static_cast<npu_stream*>(stream));
      TORCH_CHECK(stream_handle(wanted) == stream, "expected the native handle of a stream of npu:", device, ", got ",
                  stream);
      guard->stream_before = current_stream(index);
      set_current_stream(wanted);
    }
    guard->before = exchange_current_device(index);
    *out = guard.release();
  });
}

void torch_npu_guard_delete(torch_npu_guard* guard) {
  if (!guard) return;
  exchange_current_device(guard->before);
  if (guard->stream_before) set_current_stream(*guard->stream_before);
  delete guard;
}

int32_t torch_npu_check_input(AtenTensorOpaque* handle, const char* name, int32_t device_type, int32_t device,
                              int32_t dtype, int64_t rank) {
  return guarded([&] {
    const at::Tensor& tensor = tensor_of(handle);
    c10::Device expected(static_cast<c10::DeviceType>(device_type));
    if (!expected.is_cpu()) expected.set_index(static_cast<c10::DeviceIndex>(device));
    TORCH_CHECK_VALUE(tensor.device() == expected, "input ", name, ": expected a tensor on ", expected, ", got one on ",
                      tensor.device());
    TORCH_CHECK_TYPE(tensor.scalar_type() == static_cast<c10::ScalarType>(dtype), "input ", name, ": expected ",
                     static_cast<c10::ScalarType>(dtype), ", got ", tensor.scalar_type());
    TORCH_CHECK_VALUE(tensor.dim() == rank, "input ", name, ": expected ", rank, " dimensions, got ", tensor.sizes());
  });
}

int32_t torch_npu_check_layout(AtenTensorOpaque* handle, const char* name, int64_t rank, const int64_t* sizes,
                               const int64_t* strides) {
  return guarded([&] {
    const at::Tensor& tensor = tensor_of(handle);
    const c10::IntArrayRef expected(sizes, static_cast<size_t>(rank));
    TORCH_CHECK_VALUE(tensor.sizes() == expected, "input ", name, ": expected sizes ", expected, ", got ",
                      tensor.sizes());
    if (tensor.numel() == 0) return;
    for (int64_t d = 0; d < rank; ++d) {
      TORCH_CHECK_VALUE(sizes[d] == 1 || tensor.stride(d) == strides[d], "input ", name, ": expected strides ",
                        c10::IntArrayRef(strides, static_cast<size_t>(rank)), " as when the model was compiled, got ",
                        tensor.strides(), ": give it a contiguous copy");
    }
  });
}

int32_t torch_npu_check_range(const char* name, int64_t dim, int64_t size, int64_t lower, int64_t upper) {
  return guarded([&] {
    TORCH_CHECK_VALUE(size >= lower, "input ", name, ": expected a size of at least ", lower, " in dimension ", dim,
                      ", got ", size);
    TORCH_CHECK_VALUE(upper < 0 || size <= upper, "input ", name, ": expected a size of at most ", upper,
                      " in dimension ", dim, ", got ", size);
  });
}

int32_t torch_npu_memory_alloc(uint64_t size, void** out) {
  return guarded([&] { *out = raw_alloc(size); });
}

int32_t torch_npu_memory_free(void* memory) {
  return guarded([&] {
    const c10::DeviceIndex device = device_of_pointer(memory);
    if (memory && device >= 0) raw_delete(memory, device);
  });
}

int32_t torch_npu_memory_copy(void* to, const void* from, uint64_t size, int32_t from_host) {
  return guarded([&] {
    const c10::DeviceIndex target = device_of_pointer(to);
    TORCH_CHECK(target >= 0, "expected npu memory for the weights of a model, got ", to);
    const c10::DeviceIndex source = from_host ? c10::DeviceIndex{-1} : device_of_pointer(from);
    if (source < 0) {
      write_bytes(target, address_of(to), from, size);
    } else if (source == target) {
      Device& on = device(target);
      copy_on_stream(on, current_stream_handle(target), address_of(to), address_of(from), size, "copying weights");
      synchronize_stream(current_stream(target));
    } else {
      std::vector<char> bytes(size);
      read_bytes(source, bytes.data(), address_of(from), size);
      write_bytes(target, address_of(to), bytes.data(), size);
    }
  });
}

int32_t torch_npu_device_get(int32_t* out) {
  *out = current_device();
  return 0;
}

int32_t torch_npu_device_set(int32_t device) {
  return guarded([&] { set_current_device(static_cast<c10::DeviceIndex>(device)); });
}

int32_t torch_npu_device_synchronize() {
  return guarded([&] { synchronize_device(current_device()); });
}

int32_t aoti_torch_npu_view_dtype(AtenTensorOpaque* tensor, int32_t dtype, AtenTensorOpaque** out) {
  return guarded([&] {
    const auto type = static_cast<c10::ScalarType>(dtype);
    *out = reinterpret_cast<AtenTensorOpaque*>(new at::Tensor(tensor_of(tensor).view(type)));
  });
}

int32_t aoti_torch_npu_randint_low_out(AtenTensorOpaque* out, int64_t low, int64_t high, const int64_t* sizes,
                                       int64_t rank) {
  return guarded([&] { at::randint_out(tensor_of(out), low, high, {sizes, static_cast<size_t>(rank)}); });
}
