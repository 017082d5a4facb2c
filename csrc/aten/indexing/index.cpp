// Indexing with tensors. PyTorch's own code broadcasts the index tensors, turns masks into positions and builds an
// iterator in which the indexed tensor has stride 0 in the indexed dimensions; here the address is the sum of index
// times stride. An index out of range raises IndexError at the next synchronisation.
#include <ATen/ExpandUtils.h>
#include <ATen/native/IndexKernel.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/ops/_index_put_impl_native.h>
#include <ATen/ops/_index_put_impl_ops.h>
#include <ATen/ops/index_copy_native.h>
#include <ATen/ops/index_copy_ops.h>
#include <ATen/ops/index_fill_native.h>
#include <ATen/ops/index_fill_ops.h>
#include <ATen/ops/index_meta.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/put_native.h>
#include <ATen/ops/put_ops.h>
#include <ATen/ops/take_native.h>
#include <ATen/ops/take_ops.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::index_cpp {
namespace {

// The sum of the wrapped and checked indices i0, i1, ... times their strides.
std::string offset(int64_t count) {
  return per_dimension(count, "check_index(i{d}, size{d}, wrap, check) * stride{d}", " + ");
}

std::string header(const std::string& name, const std::string& operands, int64_t count) {
  return "formula " + name + "(" + operands + per_dimension(count, ", i{d}: i64") + "; " +
         per_dimension(count, "size{d}: i64, stride{d}: i64", ", ") + ")\neach:\n";
}

// Sizes and strides come in bytes from PyTorch.
void add_geometry(Nest& nest, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t element_size) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    nest.integer(sizes[d]).integer(strides[d] / element_size);
  }
}

ProgramFamily f_index;
ProgramFamily f_index_put;
ProgramFamily f_index_add;

// Operands: out, the indexed tensor, indices.
void launch_index(at::TensorIteratorBase& iter, at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (iter.numel() == 0) {
    return;
  }
  constexpr const char* label = "aten::index";
  const int64_t count = static_cast<int64_t>(sizes.size());
  if (count == 0 || count > 8 || count != iter.ntensors() - 2) {
    throw Unsupported(label);
  }
  for_each_part(iter.dtype(0), false, [&](Part part) {
    Nest nest(NPU_MAP, label, iter, part);
    add_geometry(nest, sizes, strides, iter.element_size(1) / (part == Part::kWhole ? 1 : 2));
    nest.run(f_index.get(count, compute_dtype(moving_dtype(iter.dtype(0), part, label)), [&] {
      return header("index", "out, x", count) + "  out = load_at(x, " + offset(count) + ")\n";
    }));
  });
}

// Operands: the indexed tensor, values, indices.
void launch_index_put(at::TensorIterator& iter, at::IntArrayRef sizes, at::IntArrayRef strides, bool accumulate) {
  if (iter.numel() == 0) {
    return;
  }
  constexpr const char* label = "aten::index_put_";
  const int64_t count = static_cast<int64_t>(sizes.size());
  const c10::ScalarType type = iter.dtype(0);
  if (count == 0 || count > 8 || count != iter.ntensors() - 2 ||
      (accumulate && storage_dtype(c10::toRealValueType(type)) == NPU_DTYPE_NONE)) {
    throw Unsupported(label);
  }
  for_each_part(type, accumulate, [&](Part part) {
    Nest nest(NPU_SCATTER, label, iter, part);
    add_geometry(nest, sizes, strides, iter.element_size(0) / (part == Part::kWhole ? 1 : 2));
    const npu_dtype compute = compute_dtype(moving_dtype(type, part, label));
    const char* mode = !accumulate ? "set" : compute == NPU_BOOL ? "max" : "add";
    nest.run((accumulate ? f_index_add : f_index_put).get(count, compute, [&] {
      return header("index_put", "x, values", count) + "  store_at(x, values, " + offset(count) + ", " + mode + ")\n";
    }));
  });
}

// What PyTorch's AdvancedIndex is, which the wheel does not export: the indexed tensor as the iterator wants it, with
// the index tensors shaped to match.
struct Indexed {
  Indexed(const at::Tensor& self, const std::vector<at::Tensor>& indices) {
    int64_t before = 0, after = 0, count = 0;
    at::IntArrayRef shape;
    for (size_t dim = 0; dim < indices.size(); ++dim) {
      if (!indices[dim].defined()) {
        ++(count == 0 ? before : after);
        continue;
      }
      ++count;
      shape = indices[dim].sizes();
      sizes.push_back(self.size(dim));
      strides.push_back(self.stride(dim) * self.element_size());
    }
    TORCH_CHECK_INDEX(std::find(sizes.begin(), sizes.end(), 0) == sizes.end() ||
                          std::find(shape.begin(), shape.end(), 0) != shape.end(),
                      "index is out of bounds for dimension with size 0");
    at::DimVector new_sizes(self.sizes()), new_strides(self.strides());
    new_sizes.erase(new_sizes.begin() + before, new_sizes.begin() + before + count);
    new_strides.erase(new_strides.begin() + before, new_strides.begin() + before + count);
    new_sizes.insert(new_sizes.begin() + before, shape.begin(), shape.end());
    new_strides.insert(new_strides.begin() + before, shape.size(), 0);
    target = self.as_strided(new_sizes, new_strides);
    for (const at::Tensor& index : indices) {
      if (!index.defined()) continue;
      at::DimVector view(before, 1);
      view.append(index.sizes().begin(), index.sizes().end());
      view.resize(view.size() + after, 1);
      tensors.push_back(index.reshape(view));
    }
  }
  at::Tensor target;
  std::vector<at::Tensor> tensors;
  at::DimVector sizes, strides;
};

// PyTorch asks devices for this variant when it accumulates. A SCATTER combines equal indices itself: nothing is
// sorted.
void launch_index_put_sorted(at::Tensor& self, const c10::List<std::optional<at::Tensor>>& list,
                             const at::Tensor& value, bool accumulate, bool) {
  TORCH_CHECK_INDEX(static_cast<int64_t>(list.size()) <= self.dim(), "too many indices for tensor of dimension ",
                    self.dim(), " (got ", list.size(), ")");
  at::native::checkIndexTensorTypes(list, /*allow_int=*/true);
  auto indices = at::expand_outplace(at::native::expandTensors(self, list, /*ensure_same_device=*/true));
  indices.resize(self.dim());
  at::Tensor base = self;
  if (!at::native::hasContiguousSubspace(indices)) {
    std::tie(base, indices) = at::native::transposeToFront(self, indices);
  }
  for (at::Tensor& index : indices) {
    if (index.defined() && index.device() != self.device()) index = index.to(self.device());
  }
  const Indexed info(base, indices);
  TORCH_CHECK(at::is_expandable_to(value.sizes(), info.target.sizes()), "shape mismatch: value tensor of shape ",
              value.sizes(), " cannot be broadcast to indexing result of shape ", info.target.sizes());
  TORCH_CHECK(value.scalar_type() == self.scalar_type(),
              "Index put requires the source and destination dtypes match, got ", self.scalar_type(),
              " for the destination and ", value.scalar_type(), " for the source.");
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).resize_outputs(false).check_all_same_dtype(false);
  config.add_output(info.target).add_const_input(value);
  for (const at::Tensor& index : info.tensors) {
    config.add_const_input(index);
  }
  at::TensorIterator iter = config.build();
  launch_index_put(iter, info.sizes, info.strides, accumulate);
}

struct Index : at::meta::structured_index_Tensor {
  explicit Index(const at::Tensor* given) : is_out(given != nullptr), output(given ? *given : at::Tensor()) {}
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options NPU_NAMES_DECL) override {
    if (is_out) {
      resize_out(output, sizes, strides, options);
    } else {
      output = make_empty(sizes, strides, options);
    }
    at::meta::structured_index_Tensor::set_output_raw_strided(index, sizes, strides, options NPU_NAMES);
  }
  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options NPU_NAMES_DECL) override {
    set_output_raw_strided(index, sizes, strides, options NPU_NAMES);
  }
  const at::Tensor& maybe_get_output(int64_t) override { return output; }
  bool is_out;
  at::Tensor output;
};

at::Tensor index(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  Index op(nullptr);
  const auto geometry = op.meta(self, at::IOptTensorListRef(indices));
  launch_index(op, geometry.sizes, geometry.strides);
  return std::move(op.output);
}

at::Tensor& index_out(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices, at::Tensor& out) {
  Index op(&out);
  const auto geometry = op.meta(self, at::IOptTensorListRef(indices));
  launch_index(op, geometry.sizes, geometry.strides);
  return out;
}

TypedProgram k_index_fill(R"(
formula index_fill(x, index: i64; size: i64, stride: i64, value)
each:
  %c = check_index(index, size, wrap, check)
  store_at(x, value, %c * stride)
)");

void launch_index_fill(at::TensorIterator& iter, int64_t, int64_t size, int64_t stride, const at::Scalar& value) {
  if (iter.numel() == 0) {
    return;
  }
  constexpr const char* label = "aten::index_fill_";
  for_each_part(iter.dtype(0), true, [&](Part part) {
    const bool split = part != Part::kWhole;
    const npu_dtype compute = compute_dtype(split ? part_dtype(iter.dtype(0)) : numeric_dtype(iter.dtype(0), label));
    npu_scalar bits;
    if (split) {
      const auto number = value.toComplexDouble();
      bits.f = part == Part::kReal ? number.real() : number.imag();
    } else if (compute == NPU_BOOL) {
      bits.i = value.toBool();
    } else {
      bits = scalar_param(value, compute);
    }
    Nest(NPU_SCATTER, label, iter, part)
        .integer(size)
        .integer(split ? 2 * stride : stride)
        .scalar(bits)
        .run(k_index_fill.of(compute));
  });
}

TypedProgram k_index_copy(R"(
formula index_copy(x, index: i64, source; size: i64, stride: i64)
each:
  %c = check_index(index, size, check)
  store_at(x, source, %c * stride)
)");

void launch_index_copy(at::TensorIterator& iter, int64_t, int64_t size, int64_t stride) {
  if (iter.numel() == 0) {
    return;
  }
  constexpr const char* label = "aten::index_copy";
  for_each_part(iter.dtype(0), false, [&](Part part) {
    const npu_dtype compute = compute_dtype(moving_dtype(iter.dtype(0), part, label));
    Nest(NPU_SCATTER, label, iter, part)
        .integer(size)
        .integer(part == Part::kWhole ? stride : 2 * stride)
        .run(k_index_copy.of(compute));
  });
}

void launch_index_copy_structured(at::native::structured_index_copy_out& op, const at::Tensor& out,
                                  const at::Tensor& self, int64_t dim, const at::Tensor& index,
                                  const at::Tensor& source) {
  op.impl(self, at::maybe_wrap_dim(dim, self.dim()), index, source, out);
}

at::Tensor part_of(const at::Tensor& tensor, Part part) {
  return part == Part::kWhole ? tensor : part == Part::kReal ? real_part(tensor) : imag_part(tensor);
}

TypedProgram k_take(R"(
formula take(out, index: i64, x; size: i64, stride: i64)
each:
  %c = check_index(index, size, wrap, check)
  out = load_at(x, %c * stride)
)");

void launch_take(at::TensorIterator& iter, const at::TensorBase& base) {
  if (iter.numel() == 0) {
    return;
  }
  constexpr const char* label = "aten::take";
  const at::Tensor input = at::Tensor(base).contiguous();
  const at::DimVector none(iter.ndim(), 0);
  for_each_part(input.scalar_type(), false, [&](Part part) {
    const at::Tensor from = part_of(input, part);
    Nest(NPU_MAP, label, iter, part)
        .with(from, none)
        .integer(input.numel())
        .integer(part == Part::kWhole ? 1 : 2)
        .run(k_take.of(compute_dtype(opaque_dtype(from.scalar_type(), label))));
  });
}

// Operands: source, index, the target.
ProgramFamily f_put;

void launch_put(at::TensorIterator& iter, const at::TensorBase& base, bool accumulate) {
  if (iter.numel() == 0) {
    return;
  }
  constexpr const char* label = "aten::put_";
  const at::Tensor self(base);
  const at::Tensor target = self.contiguous();
  const at::DimVector none(iter.ndim(), 0);
  for_each_part(self.scalar_type(), accumulate, [&](Part part) {
    const at::Tensor to = part_of(target, part);
    const npu_dtype compute =
        compute_dtype(accumulate ? numeric_dtype(to.scalar_type(), label) : opaque_dtype(to.scalar_type(), label));
    const char* mode = !accumulate ? "set" : compute == NPU_BOOL ? "max" : "add";
    Nest(NPU_SCATTER, label, iter, part)
        .with(to, none)
        .integer(target.numel())
        .integer(part == Part::kWhole ? 1 : 2)
        .run(f_put.get(accumulate, compute, [&] {
          return std::string(R"(
formula put(source, index: i64, x; size: i64, stride: i64)
each:
  store_at(x, source, check_index(index, size, wrap, check) * stride, )") +
                 mode + ")\n";
        }));
  });
  if (!target.is_same(self)) {
    self.copy_(target);
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::index_Tensor, index>(m);
  register_native<at::_ops::index_Tensor_out, index_out>(m);
  register_native<at::_ops::_index_put_impl_, at::native::_index_put_impl_>(m);
  register_native<at::_ops::index_fill__int_Scalar,
                  static_cast<at::Tensor& (*)(at::Tensor&, int64_t, const at::Tensor&, const at::Scalar&)>(
                      at::native::index_fill_)>(m);
  register_native<at::_ops::index_fill__int_Tensor,
                  static_cast<at::Tensor& (*)(at::Tensor&, int64_t, const at::Tensor&, const at::Tensor&)>(
                      at::native::index_fill_)>(m);
  structured<at::native::structured_index_copy_out, launch_index_copy_structured>(m)
      .functional<at::_ops::index_copy>()
      .inplace<at::_ops::index_copy_>()
      .out<at::_ops::index_copy_out>();
  register_native<at::_ops::take, at::native::take>(m);
  register_native<at::_ops::take_out, at::native::take_out>(m);
  register_native<at::_ops::put_, at::native::put_>(m);
}

}  // namespace
}  // namespace torch_npu::index_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(index_stub, &torch_npu::index_cpp::launch_index)
REGISTER_PRIVATEUSE1_DISPATCH(index_put_stub, &torch_npu::index_cpp::launch_index_put)
REGISTER_PRIVATEUSE1_DISPATCH(index_put_with_sort_stub, &torch_npu::index_cpp::launch_index_put_sorted)
REGISTER_PRIVATEUSE1_DISPATCH(index_fill_stub, &torch_npu::index_cpp::launch_index_fill)
REGISTER_PRIVATEUSE1_DISPATCH(index_copy_stub, &torch_npu::index_cpp::launch_index_copy)
REGISTER_PRIVATEUSE1_DISPATCH(take_stub, &torch_npu::index_cpp::launch_take)
REGISTER_PRIVATEUSE1_DISPATCH(put_stub, &torch_npu::index_cpp::launch_put)
}  // namespace at::native
