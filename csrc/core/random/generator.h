// Random numbers: Philox with a seed and an offset, as on cuda. The numbers themselves are made by programs on the
// device; the generator hands out disjoint parts of the sequence.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <utility>

namespace torch_npu {

// Shared by generators that graphsafe_set_state made one.
struct PhiloxState : c10::intrusive_ptr_target {
  uint64_t seed = c10::default_rng_seed_val;
  uint64_t offset = 0;  // always a multiple of 4: one Philox round makes four numbers
};

class NPUGeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit NPUGeneratorImpl(c10::DeviceIndex device);
  NPUGeneratorImpl(c10::DeviceIndex device, c10::intrusive_ptr<PhiloxState> state);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  // {seed, offset} for a kernel that draws up to `increment` numbers in each of its sequences; moves the offset on.
  // The caller holds mutex_.
  std::pair<uint64_t, uint64_t> philox_engine_inputs(uint64_t increment);

 private:
  NPUGeneratorImpl* clone_impl() const override;
  c10::intrusive_ptr<PhiloxState> state_;
};

// device -1 is the current device. Opens no device.
const at::Generator& default_generator(c10::DeviceIndex device = -1);
at::Generator new_generator(c10::DeviceIndex device = -1);

// Locks the generator (the default one of the device if `generator` is empty) and draws.
std::pair<uint64_t, uint64_t> draw_philox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                                          uint64_t increment);

// The same numbers again, for a backward pass: what a forward pass drew in a graph (graph_random.h) is known here.
std::pair<uint64_t, uint64_t> drawn_philox(uint64_t seed, uint64_t offset, c10::DeviceIndex device);

}  // namespace torch_npu
