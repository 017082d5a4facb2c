// How a native op is registered, and what happens when the driver cannot run it.
//
//   TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
//     register_native<at::_ops::relu, relu_kernel>(m);
//   }
//
// The wrapper calls the kernel; if a command turns out to be unsupported by the device's driver, the op is computed by
// the CPU fallback instead, and counted there. A kernel must therefore not change its inputs before its last command
// was accepted.
//
// What PyTorch asks of a kernel is compiled once for each signature and not for each op: which function is called is
// data. That is what keeps the build short.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <tuple>

#include "csrc/aten/dispatch/boxing.h"
#include "csrc/core/launch/launch.h"

namespace torch_npu {

// csrc/aten/fallback/fallback.cpp: the boxed fallback of every op without a kernel.
void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

template <class T>
using no_symint = typename c10::maybe_keep_symint<false, T>::type;

// "aten::add" and "Tensor"; "" for an op without overloads. Both live for ever.
struct OpName {
  const char* name;
  const char* overload;
};

// From "aten::add.Tensor".
OpName op_name(const char* text);

void register_kernel(OpName op, c10::DispatchKey key, c10::KernelFunction kernel, c10::impl::CppSignature signature);
// Replaces the arguments on the stack by what the CPU has computed.
void run_fallback(OpName op, torch::jit::Stack& stack);

template <class T>
constexpr bool kHasReferences = std::is_reference_v<T>;
template <class... T>
constexpr bool kHasReferences<std::tuple<T...>> = (std::is_reference_v<T> && ...);

// Body: what is called, with Signature; a pointer to a function, or an object with data of its own.
template <class Body, class Signature>
class Kernel;

template <class Body, class R, class... Args>
class Kernel<Body, R(Args...)> final : public c10::OperatorKernel {
 public:
  Kernel(OpName op, Body body) : op_(op), body_(body) {}

  R operator()(Args... args) {
    try {
      return body_(std::forward<Args>(args)...);
    } catch (const Unsupported&) {
      return fall_back(args...);
    }
  }

 private:
  [[gnu::cold, gnu::noinline]] R fall_back(std::remove_reference_t<Args>&... args) {
    const void* addresses[] = {std::addressof(args)..., nullptr};
    torch::jit::Stack stack;
    box(kArgumentTypes<Args...>, addresses, stack);
    run_fallback(op_, stack);
    constexpr size_t kCount = sizeof...(Args);
    if constexpr (std::is_reference_v<R>) {
      // In place it is the first argument, otherwise the last.
      constexpr bool first = std::is_same_v<std::tuple_element_t<0, std::tuple<Args...>>, R>;
      return std::get<first ? 0 : kCount - 1>(std::tie(args...));
    } else if constexpr (kHasReferences<R>) {
      return last(std::tie(args...), std::make_index_sequence<std::tuple_size_v<R>>());
    } else if constexpr (!std::is_void_v<R>) {
      return c10::impl::PopResult<R>::call(stack);
    }
  }

  template <class Tuple, size_t... I>
  static R last(Tuple all, std::index_sequence<I...>) {
    return R(std::get<sizeof...(Args) - sizeof...(I) + I>(all)...);
  }

  OpName op_;
  Body body_;
};

// What lies on a stack for a result: the things themselves, where it is a reference or a tuple of references.
template <class T>
struct OnStack {
  using type = std::decay_t<T>;
};
template <class... Elements>
struct OnStack<std::tuple<Elements...>> {
  using type = std::tuple<std::decay_t<Elements>...>;
};

template <class T>
[[gnu::noinline]] void replace_arguments(torch::jit::Stack& stack, size_t count, T result) {
  torch::jit::drop(stack, count);
  c10::impl::push_outputs<T, false>::call(std::move(result), &stack);
}

}  // namespace torch_npu

// PyTorch's own does the same with code of its own for each signature.
template <class Body, class R, class... Args>
struct c10::impl::make_boxed_from_unboxed_functor<torch_npu::Kernel<Body, R(Args...)>, false> final {
  static void call(OperatorKernel* functor, const OperatorHandle&, DispatchKeySet, torch::jit::Stack* stack) {
    call(*static_cast<torch_npu::Kernel<Body, R(Args...)>*>(functor), *stack, std::index_sequence_for<Args...>());
  }

 private:
  template <size_t... I>
  static void call(torch_npu::Kernel<Body, R(Args...)>& kernel, torch::jit::Stack& stack, std::index_sequence<I...>) {
    constexpr size_t kCount = sizeof...(I);
    std::array<torch_npu::Slot, kCount> slots;
    torch_npu::Unboxed unboxed(torch_npu::kArgumentTypes<Args...>, slots.data(), stack.data() + stack.size() - kCount);
    if constexpr (std::is_void_v<R>) {
      kernel(slots[I].template get<Args>()...);
      torch::jit::drop(stack, kCount);
    } else {
      using Result = typename torch_npu::OnStack<R>::type;
      torch_npu::replace_arguments<Result>(stack, kCount, kernel(slots[I].template get<Args>()...));
    }
  }
};

namespace torch_npu {

template <class Signature, class Body>
[[gnu::cold]] void register_signature(OpName op, Body body, c10::DispatchKey key = c10::DispatchKey::PrivateUse1) {
  using OpKernel = Kernel<Body, Signature>;
  register_kernel(op, key,
                  c10::KernelFunction::makeFromUnboxedFunctor<false, OpKernel>(std::make_unique<OpKernel>(op, body)),
                  c10::impl::CppSignature::make<Signature>());
}

template <auto KernelFn, class Schema>
struct Adapted;
template <auto KernelFn, class R, class... Args>
struct Adapted<KernelFn, R(Args...)> {
  using Signature = R(no_symint<Args>...);
  static R call(no_symint<Args>... args) { return KernelFn(args...); }
  // A kernel may take its arguments otherwise than the schema says (a copy, a base class).
  static constexpr Signature* function() {
    if constexpr (std::is_same_v<decltype(KernelFn), Signature*>) {
      return KernelFn;
    } else {
      return call;
    }
  }
};

// The library says where: it must be aten's for PrivateUse1.
template <class Op, auto KernelFn>
void register_native(torch::Library&) {
  using Kernel = Adapted<KernelFn, typename Op::schema>;
  register_signature<typename Kernel::Signature>(
      {static_cast<const char*>(Op::name), static_cast<const char*>(Op::overload_name)}, Kernel::function());
}

// A kernel with the very types of the op's C++ call.
template <class R, class... Args>
void register_function(torch::Library&, const char* name, R (*kernel)(Args...)) {
  register_signature<R(Args...)>(op_name(name), kernel);
}

}  // namespace torch_npu
