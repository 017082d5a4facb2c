// Reductions that answer with positions: the first of equals, and a NaN before every number.
#include <ATen/ops/aminmax_meta.h>
#include <ATen/ops/aminmax_ops.h>
#include <ATen/ops/argmax_meta.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/argmin_meta.h>
#include <ATen/ops/argmin_ops.h>
#include <ATen/ops/max_meta.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/min_meta.h>
#include <ATen/ops/min_ops.h>

#include "csrc/aten/dispatch/reduction.h"
#include "csrc/aten/dispatch/structured_pair.h"

namespace torch_npu::argreduce_cpp {
namespace {

using at::Tensor;

#define NPU_ARG(name, kind)                                                                \
  "program " name "(out, x)\neach:\n  %x = load x : $t\n  %i = index 7\n  %f = fold " kind \
  " %x, %i\nrow:\n  %at = get %f, 1\n  store out, %at\n"
#define NPU_VALUE_AND_ARG(name, kind)                                                                    \
  "program " name "(values, positions, x)\neach:\n  %x = load x : $t\n  %i = index 7\n  %f = fold " kind \
  " %x, %i\nrow:\n  %v = get %f, 0\n  %at = get %f, 1\n  store values, %v\n  store positions, %at\n"

TypedProgram k_argmax(NPU_ARG("argmax", "argmax"));
TypedProgram k_argmin(NPU_ARG("argmin", "argmin"));
TypedProgram k_max_dim(NPU_VALUE_AND_ARG("max_dim", "argmax"));
TypedProgram k_min_dim(NPU_VALUE_AND_ARG("min_dim", "argmin"));

TypedProgram k_aminmax(R"(
formula aminmax(min, max, x)
each:
  %a = fold(min, x)
  %b = fold(max, x)
row:
  min = %a
  max = %b
)");

template <TypedProgram& program>
void launch_arg(at::impl::MetaBase&, const Tensor& out, const Tensor& self, std::optional<int64_t> dim, bool) {
  const char* label = &program == &k_argmax ? "aten::argmax" : "aten::argmin";
  DeviceProgram& typed = program.of(compute_type(self, label));
  if (dim) {
    return Rows(label, self.sizes(), one_dim(self, *dim)).indexed().reduced(out).add(self).reduce(typed);
  }
  const Tensor flat = self.reshape({-1});
  Rows(label, flat.sizes(), 1).indexed().scalar(out).add(flat).reduce(typed);
}

template <TypedProgram& program>
void launch_value_and_arg(const Tensor& value, const Tensor& position, const Tensor& self, int64_t dim, bool) {
  const char* label = &program == &k_max_dim ? "aten::max" : "aten::min";
  Rows(label, self.sizes(), one_dim(self, dim))
      .indexed()
      .reduced(value)
      .reduced(position)
      .add(self)
      .reduce(program.of(compute_type(self, label)));
}

void launch_aminmax(const Tensor& min, const Tensor& max, const Tensor& self, std::optional<int64_t> dim, bool) {
  const DimMask mask = dim ? one_dim(self, *dim) : DimMask().flip();
  Rows rows("aten::aminmax", self.sizes(), mask);
  if (dim) {
    rows.reduced(min).reduced(max);
  } else {
    rows.scalar(min).scalar(max);
  }
  rows.add(self).reduce(k_aminmax.of(compute_type(self, "aten::aminmax")));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  structured<at::meta::structured_argmax, launch_arg<k_argmax>>(m).functional<ops::argmax>().out<ops::argmax_out>();
  structured<at::meta::structured_argmin, launch_arg<k_argmin>>(m).functional<ops::argmin>().out<ops::argmin_out>();
  structured_pair<at::meta::structured_max_dim, launch_value_and_arg<k_max_dim>>(m)
      .functional<ops::max_dim>()
      .out<ops::max_dim_max>();
  structured_pair<at::meta::structured_min_dim, launch_value_and_arg<k_min_dim>>(m)
      .functional<ops::min_dim>()
      .out<ops::min_dim_min>();
  structured_pair<at::meta::structured_aminmax, launch_aminmax>(m).functional<ops::aminmax>().out<ops::aminmax_out>();
}

}  // namespace
}  // namespace torch_npu::argreduce_cpp
