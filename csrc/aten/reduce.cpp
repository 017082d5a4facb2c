// Reductions, one REDUCE each. The input is converted on load, so no cast of it is ever written to memory.
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/sum_meta.h>
#include <ATen/ops/sum_ops.h>

#include "csrc/aten/map.h"
#include "csrc/aten/structured.h"

namespace torch_npu {
namespace {

TypedKernel k_sum(R"(
program sum(out, x)
each:
  %x = load x : $t
  %s = fold sum %x
row:
  store out, %s
)");

at::TensorIterator reduction(const at::Tensor& out, const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim) {
  const auto mask = at::native::make_dim_mask(dim, self.dim());
  const at::Tensor viewed = at::native::review_reduce_result(out, self.dim(), mask, keepdim);
  return at::TensorIteratorConfig()
      .set_check_mem_overlap(false)
      .add_owned_output(viewed)
      .add_owned_const_input(self)
      .resize_outputs(false)
      .is_reduction(true)
      .check_all_same_dtype(false)
      .build();
}

void launch_sum(at::meta::structured_sum_dim_IntList&, const at::Tensor& out, const at::Tensor& self,
                at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType>) {
  const npu_dtype type = storage_dtype(out.scalar_type());
  // A complex, or a float that an integer sum would have to truncate first, element by element.
  if (type == NPU_DTYPE_NONE || (self.is_floating_point() && !is_float(type)) || self.is_complex()) {
    throw Unsupported("aten::sum");
  }
  if (self.numel() == 0) {
    out.zero_();
    return;
  }
  auto iter = reduction(out, self, dim, keepdim);
  launch_reduce(iter, k_sum.of(compute_dtype(type == NPU_BOOL ? NPU_I64 : type)), "aten::sum");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::meta::structured_sum_dim_IntList, launch_sum>(m)
      .functional<at::_ops::sum_dim_IntList>()
      .out<at::_ops::sum_IntList_out>();
}

}  // namespace
}  // namespace torch_npu
