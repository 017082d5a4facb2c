#include "csrc/core/random/generator.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstring>
#include <mutex>

#include "csrc/core/device/capture.h"
#include "csrc/core/device/device.h"
#include "csrc/core/device/thread_state.h"
#include "csrc/core/random/graph_random.h"

namespace torch_npu {
namespace {

// Seed, then offset: the layout of cuda's state, so that states can be saved and compared alike.
constexpr int64_t kStateBytes = 16;
constexpr int64_t kSeedBytes = 8;

c10::DeviceIndex checked(c10::DeviceIndex index) {
  if (index == -1) index = current_device();
  require_devices();
  TORCH_CHECK(index >= 0 && index < device_count(), "expected an npu device index from 0 to ", device_count() - 1,
              ", got ", static_cast<int>(index));
  return index;
}

}  // namespace

NPUGeneratorImpl::NPUGeneratorImpl(c10::DeviceIndex device)
    : NPUGeneratorImpl(device, c10::make_intrusive<PhiloxState>()) {}

NPUGeneratorImpl::NPUGeneratorImpl(c10::DeviceIndex device, c10::intrusive_ptr<PhiloxState> state)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::move(state)) {}

void NPUGeneratorImpl::set_current_seed(uint64_t seed) {
  state_->seed = seed;
  state_->offset = 0;
}

void NPUGeneratorImpl::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
  state_->offset = offset;
}

uint64_t NPUGeneratorImpl::get_offset() const {
  return state_->offset;
}

uint64_t NPUGeneratorImpl::current_seed() const {
  return state_->seed;
}

uint64_t NPUGeneratorImpl::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);
  set_current_seed(random);
  return random;
}

c10::intrusive_ptr<c10::TensorImpl> NPUGeneratorImpl::get_state() const {
  auto state = at::detail::empty_cpu({kStateBytes}, c10::ScalarType::Byte, std::nullopt, std::nullopt, std::nullopt,
                                     std::nullopt);
  auto* bytes = static_cast<uint8_t*>(state.unsafeGetTensorImpl()->mutable_data());
  std::memcpy(bytes, &state_->seed, kSeedBytes);
  std::memcpy(bytes + kSeedBytes, &state_->offset, kStateBytes - kSeedBytes);
  return state.getIntrusivePtr();
}

void NPUGeneratorImpl::set_state(const c10::TensorImpl& new_state) {
  at::detail::check_rng_state(new_state);
  const int64_t size = new_state.numel();
  TORCH_CHECK(size == kStateBytes || size == kSeedBytes, "expected a generator state of ", kStateBytes,
              " bytes (or a seed of ", kSeedBytes, "), got ", size);
  const auto* bytes = static_cast<const uint8_t*>(new_state.data());
  uint64_t seed = 0, offset = 0;
  std::memcpy(&seed, bytes, kSeedBytes);
  if (size == kStateBytes) std::memcpy(&offset, bytes + kSeedBytes, kStateBytes - kSeedBytes);
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
  state_->seed = seed;
  state_->offset = offset;
}

void NPUGeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) {
  auto* other = dynamic_cast<NPUGeneratorImpl*>(new_state.get());
  TORCH_CHECK(other, "expected an npu generator, got one of another device type");
  state_ = other->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> NPUGeneratorImpl::graphsafe_get_state() const {
  return c10::make_intrusive<NPUGeneratorImpl>(device().index(), state_);
}

std::pair<uint64_t, uint64_t> NPUGeneratorImpl::philox_engine_inputs(uint64_t increment) {
  const uint64_t offset = state_->offset;
  state_->offset += (increment + 3) / 4 * 4;
  return {state_->seed, offset};
}

NPUGeneratorImpl* NPUGeneratorImpl::clone_impl() const {
  auto state = c10::make_intrusive<PhiloxState>();
  state->seed = state_->seed;
  state->offset = state_->offset;
  return new NPUGeneratorImpl(device().index(), std::move(state));
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static std::array<std::once_flag, kMaxDevices> once;
  static auto* generators = new std::array<at::Generator, kMaxDevices>;  // never destroyed: tensors may outlive statics
  index = checked(index);
  std::call_once(once[index], [&] {
    (*generators)[index] = at::make_generator<NPUGeneratorImpl>(index);
    (*generators)[index].seed();
  });
  return (*generators)[index];
}

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<NPUGeneratorImpl>(checked(index));
}

std::pair<uint64_t, uint64_t> draw_philox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                                          uint64_t increment) {
  auto* source = at::get_generator_or_default<NPUGeneratorImpl>(generator, default_generator(device));
  if (any_capture()) {
    if (const auto stand_in = capture_philox(current_handle(device), source, increment)) return *stand_in;
  }
  std::lock_guard lock(source->mutex_);
  return source->philox_engine_inputs(increment);
}

std::pair<uint64_t, uint64_t> drawn_philox(uint64_t seed, uint64_t offset, c10::DeviceIndex device) {
  if (any_capture() && capture_of(current_handle(device))) return {seed, offset};  // replays fill them in
  return numbers_of(seed, offset);
}

}  // namespace torch_npu
