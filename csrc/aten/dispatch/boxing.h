// The arguments of a kernel, off a stack of IValues and onto one. PyTorch compiles this for every kernel anew; here a
// signature is a list of types, each type knows its two ways (boxing.cpp), and two loops do the rest.
#pragma once
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <type_traits>

namespace torch_npu {

// Room for one argument taken off a stack, with what it refers to (the numbers of an ArrayRef).
struct Slot {
  void* argument;
  void (*destroy)(void* storage) = nullptr;
  alignas(16) std::byte storage[96];

  template <class T>
  T get() const {
    return static_cast<T>(*static_cast<std::remove_reference_t<T>*>(argument));
  }
};

// The two ways of arguments of type T, const T& and T&. boxing.cpp lists the types that there are; another one is a
// missing symbol.
template <class T>
struct Argument {
  static void unbox(c10::IValue& value, Slot& slot);
  static c10::IValue box(const void* argument);
};

struct ArgumentType {
  void (*unbox)(c10::IValue& value, Slot& slot);
  c10::IValue (*box)(const void* argument);
};

// Of a signature; the last one is null.
template <class... Args>
constexpr ArgumentType kArgumentTypes[] = {
    {&Argument<std::remove_cvref_t<Args>>::unbox, &Argument<std::remove_cvref_t<Args>>::box}..., {nullptr, nullptr}};

// The last arguments of a stack, as long as this lives and the stack is not changed.
class Unboxed {
 public:
  Unboxed(const ArgumentType* types, Slot* slots, c10::IValue* values);
  ~Unboxed();
  Unboxed(const Unboxed&) = delete;

 private:
  Slot* slots_;
  size_t count_ = 0;
};

void box(const ArgumentType* types, const void* const* arguments, torch::jit::Stack& stack);

}  // namespace torch_npu
