// How a native op is registered, and what happens when the driver cannot run it.
//
//   TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
//     register_native<at::_ops::relu, relu_kernel>(m);
//   }
//
// The wrapper calls the kernel; if a command turns out to be unsupported by the device's driver, the op is computed by
// the CPU fallback instead, and counted there. A kernel must therefore not change its inputs before its last command
// was accepted.
#pragma once
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <string>

#include "csrc/core/launch/launch.h"

namespace torch_npu {

// csrc/aten/fallback/fallback.cpp: the boxed fallback of every op without a kernel.
void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

template <class T>
using no_symint = typename c10::maybe_keep_symint<false, T>::type;

template <class Op, auto KernelFn, class Signature = typename Op::schema>
struct Native;

template <class Op, auto KernelFn, class R, class... Args>
struct Native<Op, KernelFn, R(Args...)> {
  static R call(no_symint<Args>... args) {
    try {
      return KernelFn(args...);
    } catch (const Unsupported&) {
      return at::native::call_fallback_fn<&cpu_fallback, Op>::call(args...);
    }
  }
};

// "aten::add.Tensor", from the declaration that PyTorch generates for the op.
template <class Op>
std::string op_name() {
  std::string name = static_cast<const char*>(Op::name);
  std::string overload = static_cast<const char*>(Op::overload_name);
  return overload.empty() ? name : name + "." + overload;
}

template <class Op, auto KernelFn>
void register_native(torch::Library& m) {
  m.impl(op_name<Op>().c_str(), TORCH_FN((Native<Op, KernelFn>::call)));
}

}  // namespace torch_npu
