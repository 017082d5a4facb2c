// Random ops on the CPU that follow the npu's generator.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include <mutex>
#include <optional>

namespace torch_npu {

// A CPU generator whose stream is a function of the npu generator's seed and offset, and advances the offset: the same
// npu seed gives the same numbers, and two calls differ. An undefined `npu` means the default one of `device`.
at::Generator cpu_generator_for(const std::optional<at::Generator>& npu, c10::Device device);

// For ops that take no generator and draw from the CPU's default one: that generator is exchanged for the time of the
// call and put back. Such calls of ours exclude each other; a CPU op drawing from the default generator in another
// thread at that moment would see the exchanged one, which PyTorch offers no way to prevent.
class DefaultGeneratorSwap {
 public:
  explicit DefaultGeneratorSwap(const at::Generator& temporary);
  ~DefaultGeneratorSwap();
  DefaultGeneratorSwap(const DefaultGeneratorSwap&) = delete;
  DefaultGeneratorSwap& operator=(const DefaultGeneratorSwap&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
  at::CPUGeneratorImpl* cpu_;
  c10::intrusive_ptr<at::CPUGeneratorImpl> saved_;
};

}  // namespace torch_npu
