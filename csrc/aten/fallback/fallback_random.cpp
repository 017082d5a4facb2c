#include "csrc/aten/fallback/fallback_random.h"

#include <ATen/Context.h>

namespace torch_npu {
namespace {

std::mutex g_swap_mutex;

// Philox offsets count in words of four.
constexpr uint64_t kOffsetStep = 4;

// One step of splitmix64: neighbouring (seed, offset) pairs give unrelated seeds.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void assign(at::CPUGeneratorImpl& to, at::CPUGeneratorImpl& from) {
  to.set_engine(from.engine());
  to.set_next_float_normal_sample(from.next_float_normal_sample());
  to.set_next_double_normal_sample(from.next_double_normal_sample());
}

}  // namespace

at::Generator cpu_generator_for(const std::optional<at::Generator>& npu, c10::Device device) {
  at::Generator source = npu && npu->defined() ? *npu : at::globalContext().defaultGenerator(device);
  uint64_t seed = 0;
  uint64_t offset = 0;
  {
    std::lock_guard lock(source.mutex());
    seed = source.unsafeGetGeneratorImpl()->current_seed();
    offset = source.unsafeGetGeneratorImpl()->get_offset();
    source.unsafeGetGeneratorImpl()->set_offset(offset + kOffsetStep);
  }
  return at::make_generator<at::CPUGeneratorImpl>(mix(mix(seed) ^ offset));
}

DefaultGeneratorSwap::DefaultGeneratorSwap(const at::Generator& temporary)
    : lock_(g_swap_mutex),
      cpu_(at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator())),
      saved_(c10::make_intrusive<at::CPUGeneratorImpl>()) {
  std::lock_guard lock(cpu_->mutex_);
  assign(*saved_, *cpu_);
  assign(*cpu_, *at::check_generator<at::CPUGeneratorImpl>(temporary));
}

DefaultGeneratorSwap::~DefaultGeneratorSwap() {
  std::lock_guard lock(cpu_->mutex_);
  assign(*cpu_, *saved_);
}

}  // namespace torch_npu
