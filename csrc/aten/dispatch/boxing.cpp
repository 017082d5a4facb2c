#include "csrc/aten/dispatch/boxing.h"

#include <new>

namespace torch_npu {
namespace {

using c10::IValue;

// What PyTorch makes of an IValue for an argument of type T: T, or the owner of what T refers to.
template <class T>
using OwnerOf = std::decay_t<decltype(c10::impl::ivalue_to_arg<T, false>::call(std::declval<IValue&>()))>;

template <class T>
struct Held {
  OwnerOf<T> owner;
  T argument = owner;
  explicit Held(IValue& value) : owner(c10::impl::ivalue_to_arg<T, false>::call(value)) {}
};

}  // namespace

template <class T>
void Argument<T>::unbox(IValue& value, Slot& slot) {
  using Kept = Held<T>;
  static_assert(sizeof(Kept) <= sizeof(slot.storage));
  auto* kept = new (slot.storage) Kept(value);
  slot.argument = &kept->argument;
  if constexpr (!std::is_trivially_destructible_v<Kept>) {
    slot.destroy = [](void* storage) { static_cast<Kept*>(storage)->~Kept(); };
  }
}

template <>
void Argument<at::Tensor>::unbox(IValue& value, Slot& slot) {
  slot.argument = &value.toTensor();
}

template <class T>
IValue Argument<T>::box(const void* argument) {
  return IValue(*static_cast<const T*>(argument));
}

template struct Argument<at::Tensor>;
template struct Argument<std::optional<at::Tensor>>;
template struct Argument<at::TensorList>;
template struct Argument<at::ITensorListRef>;
template struct Argument<c10::List<std::optional<at::Tensor>>>;
template struct Argument<at::Scalar>;
template struct Argument<std::optional<at::Scalar>>;
template struct Argument<at::ArrayRef<at::Scalar>>;
template struct Argument<bool>;
template struct Argument<std::optional<bool>>;
template struct Argument<int64_t>;
template struct Argument<std::optional<int64_t>>;
template struct Argument<at::IntArrayRef>;
template struct Argument<at::OptionalIntArrayRef>;
template struct Argument<double>;
template struct Argument<std::optional<double>>;
template struct Argument<std::optional<at::ArrayRef<double>>>;
template struct Argument<std::string_view>;
template struct Argument<std::optional<std::string_view>>;
template struct Argument<at::ScalarType>;
template struct Argument<std::optional<at::ScalarType>>;
template struct Argument<std::optional<at::Layout>>;
template struct Argument<std::optional<at::Device>>;
template struct Argument<std::optional<at::MemoryFormat>>;
template struct Argument<std::optional<at::Generator>>;
template struct Argument<at::Storage>;
template struct Argument<at::Stream>;
template struct Argument<std::array<bool, 2>>;
template struct Argument<std::array<bool, 3>>;
template struct Argument<std::array<bool, 4>>;

Unboxed::Unboxed(const ArgumentType* types, Slot* slots, IValue* values) : slots_(slots) {
  try {
    for (; types[count_].unbox; ++count_) types[count_].unbox(values[count_], slots[count_]);
  } catch (...) {
    this->~Unboxed();
    throw;
  }
}

Unboxed::~Unboxed() {
  while (count_--) {
    if (slots_[count_].destroy) slots_[count_].destroy(slots_[count_].storage);
  }
}

void box(const ArgumentType* types, const void* const* arguments, torch::jit::Stack& stack) {
  for (; types->box; ++types, ++arguments) stack.push_back(types->box(*arguments));
}

}  // namespace torch_npu
