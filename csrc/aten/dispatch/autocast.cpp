// torch.autocast("npu"): which ops run in lower precision, which in float32, which in the widest type of their
// arguments. The lists are PyTorch's, shared by all its devices.
#include <ATen/autocast_mode.h>

#include "csrc/aten/dispatch/registration.h"

namespace torch_npu {
namespace {

at::Tensor refuse_binary_cross_entropy(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                       int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: the gradient of a "
              "sigmoid output leaves the range of 16-bit floats. Use binary_cross_entropy_with_logits or "
              "BCEWithLogitsLoss on the logits instead, which are safe to autocast.");
}

}  // namespace
}  // namespace torch_npu

// The macros below name at::autocast's policies and at::'s types without qualification.
namespace at::autocast {
namespace {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

// What the macros register with.
struct Casts {
  template <class Signature>
  void impl(const char* name, Signature* kernel) {
    torch_npu::register_signature<Signature>(torch_npu::op_name(name), kernel, c10::DispatchKey::AutocastPrivateUse1);
  }
};

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, library) {
  Casts m;
#define NPU_KERNEL_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define NPU_KERNEL_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define NPU_KERNEL_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define NPU_KERNEL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(NPU_KERNEL_LOWER_PRECISION)
  AT_FORALL_FP32(NPU_KERNEL_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(NPU_KERNEL_SET_DTYPE)
  AT_FORALL_PROMOTE(NPU_KERNEL_PROMOTE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  library.impl("binary_cross_entropy", TORCH_FN(torch_npu::refuse_binary_cross_entropy));
}

}  // namespace
}  // namespace at::autocast
