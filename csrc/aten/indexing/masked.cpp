// Ops whose result has as many elements as a mask has ones. A SCAN numbers the ones, a SCATTER or MAP moves elements to
// or from those numbers. The size of the result has to be known on the host, so they wait for the device, as on cuda.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/masked_scatter_ops.h>
#include <ATen/ops/masked_select_ops.h>
#include <ATen/ops/min.h>
#include <ATen/ops/nonzero_ops.h>
#include <ATen/ops/nonzero_static_ops.h>
#include <ATen/ops/repeat_interleave_ops.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/zeros.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::masked_cpp {
namespace {

TypedProgram k_running_sum(R"(
formula running_sum(x, out)
each:
  %s = scan(sum, i64(x))
each:
  out = %s
)");

TypedProgram k_running_count(R"(
formula running_count(x, out): bool
each:
  %s = scan(sum, i64(x))
each:
  out = %s
)");

// The number of ones so far, the element included, in row-major order. `x` is contiguous.
at::Tensor running(const at::Tensor& x, DeviceProgram& program, const char* label) {
  at::Tensor out = at::empty(x.sizes(), x.options().dtype(at::kLong));
  Nest(NPU_SCAN, label, {x.numel()}, 1).with(x, {1}).with(out, {1}).run(program);
  return out;
}

at::Tensor running_count(const at::Tensor& mask, const char* label) {
  numeric_dtype(mask.scalar_type(), label);
  return running(mask, k_running_count.of(NPU_I64), label);
}

int64_t last(const at::Tensor& running) {
  return running.numel() == 0 ? 0 : running.view(-1)[-1].item<int64_t>();
}

ProgramFamily f_nonzero;

// Row k of `out` becomes the coordinates of one number k.
void store_coordinates(const at::Tensor& out, const at::Tensor& x, const at::Tensor& number, const char* label) {
  const int64_t rank = x.dim();
  if (rank == 0 || x.numel() == 0 || out.numel() == 0) {
    return;
  }
  const at::DimVector none(rank, 0);
  Nest(NPU_SCATTER, label, x.sizes())
      .with(x)
      .with(number)
      .with(out, none)
      .integer(out.stride(0))
      .integer(out.stride(1))
      .integer(out.size(0))
      .run(f_nonzero.get(rank, NPU_I64, [&] {
        std::string text = R"(
formula nonzero(x: bool, number: i64, out; row: i64, column: i64, rows: i64)
each:
  %use = x and number <= rows
  %at = (number - 1) * row
)";
        for (int64_t d = 0; d < rank; ++d) {
          text +=
              replace_all("  store_at(out, index({d}), fma({d}, column, %at), mask %use)\n", "{d}", std::to_string(d));
        }
        return text;
      }));
}

// Columns lie behind each other, as on the CPU and in the strides that torch.compile expects; an out= of the right size
// keeps its own.
void resize_columns(const at::Tensor& out, int64_t rows, int64_t columns) {
  if (at::native::resize_output(out, {rows, columns})) {
    out.as_strided_({rows, columns}, {1, rows});
  }
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  constexpr const char* label = "aten::nonzero";
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got scalar type", out.scalar_type());
  check_same_device(label, {&self, &out});
  if (self.dim() > NPU_MAX_RANK) {
    throw Unsupported(label);
  }
  const at::Tensor x = self.is_complex() ? truth(self).contiguous() : self.contiguous();
  const at::Tensor number = running_count(x, label);
  resize_columns(out, last(number), x.dim());
  store_coordinates(out, x, number, label);
  return out;
}

at::Tensor nonzero(const at::Tensor& self) {
  at::Tensor out = at::empty({0}, self.options().dtype(at::kLong));
  return nonzero_out(self, out);
}

at::Tensor& nonzero_static_out(const at::Tensor& self, int64_t size, int64_t fill_value, at::Tensor& out) {
  constexpr const char* label = "aten::nonzero_static";
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  if (self.dim() > NPU_MAX_RANK) {
    throw Unsupported(label);
  }
  const at::Tensor x = self.is_complex() ? truth(self).contiguous() : self.contiguous();
  const at::Tensor number = running_count(x, label);
  resize_columns(out, size, x.dim());
  out.fill_(fill_value);
  store_coordinates(out, x, number, label);
  return out;
}

at::Tensor nonzero_static(const at::Tensor& self, int64_t size, int64_t fill_value) {
  at::Tensor out = at::empty({0}, self.options().dtype(at::kLong));
  return nonzero_static_out(self, size, fill_value, out);
}

TypedProgram k_masked_select(R"(
formula masked_select(x, mask: bool, number: i64, out)
each:
  store_at(out, x, number - 1, mask mask)
)");

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  constexpr const char* label = "aten::masked_select";
  TORCH_CHECK(mask.scalar_type() == at::kByte || mask.scalar_type() == at::kBool,
              "masked_select: expected BoolTensor or ByteTensor for mask");
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  check_same_device(label, {&self, &mask, &out});
  if (too_wide(self)) {
    at::Tensor pairs = at::empty({0}, parts(self).options());
    masked_select_out(parts(self), for_parts(mask), pairs);
    at::native::resize_output(out, {pairs.numel() / 2});
    return out.copy_(at::view_as_complex(pairs.view({-1, 2})));
  }
  const npu_dtype type = opaque_dtype(self.scalar_type(), label);
  auto [m, x] = at::expand_outplace(mask, self);
  if (x->dim() > NPU_MAX_RANK) {
    throw Unsupported(label);
  }
  const at::Tensor ones = m->contiguous();
  const at::Tensor number = running_count(ones, label);
  at::native::resize_output(out, {last(number)});
  if (out.numel() == 0) {
    return out;
  }
  const at::Tensor target = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
  const at::DimVector none(x->dim(), 0);
  Nest(NPU_SCATTER, label, x->sizes())
      .with(*x)
      .with(ones)
      .with(number)
      .with(target, none)
      .run(k_masked_select.of(compute_dtype(type)));
  if (!target.is_same(out)) {
    out.copy_(target);
  }
  return out;
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  at::Tensor out = at::empty({0}, self.options());
  return masked_select_out(self, mask, out);
}

TypedProgram k_masked_scatter(R"(
formula masked_scatter(out, mask: bool, number: i64, source; size: i64)
each:
  %c = check_index(number - 1, size, check, mask mask)
  out = load_at(source, %c, mask mask), mask mask
)");

at::Tensor& masked_scatter_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  constexpr const char* label = "aten::masked_scatter_";
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter_: expected self and source to have same dtypes but got ", self.scalar_type(), " and ",
              source.scalar_type());
  TORCH_CHECK(self.device().type() == at::kPrivateUse1, "device type of self (", self.device().type(),
              ") is not supported");
  TORCH_CHECK(mask.dtype() == at::ScalarType::Bool,
              "masked_scatter_ only supports boolean masks, but got mask with "
              "dtype ",
              mask.dtype());
  check_same_device(label, {&self, &mask, &source});
  if (too_wide(self)) {
    at::Tensor pairs = parts(self);
    masked_scatter_(pairs, for_parts(mask), parts(source));
    return self;
  }
  const npu_dtype type = opaque_dtype(self.scalar_type(), label);
  if (self.dim() > NPU_MAX_RANK) {
    throw Unsupported(label);
  }
  const at::Tensor ones = at::expand_inplace(self, mask, label)->contiguous();
  const at::Tensor number = running_count(ones, label);
  const at::Tensor from = source.contiguous();
  if (self.numel() == 0) {
    return self;
  }
  const at::DimVector none(self.dim(), 0);
  Nest(NPU_MAP, label, self.sizes())
      .with(self)
      .with(ones)
      .with(number)
      .with(from, none)
      .integer(from.numel())
      .run(k_masked_scatter.of(compute_dtype(type)));
  return self;
}

// Where the copies of each element begin. A size that the caller gave is checked here, so that the host need not wait:
// no end may lie behind it, and the last one not before it.
TypedProgram k_repeat_starts(R"(
formula repeat_starts(repeats, end, out; size, last): i64
each:
  %end = check_index(end, size + 1, check)
  %full = check_index(size, %end + 1, check, mask index(0) == last)
  store_at(out, index(0), %end - repeats, mask repeats > 0)
)");

TypedProgram k_running_max(R"(
formula running_max(x, out)
each:
  %s = scan(max, x)
each:
  out = %s
)");

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  constexpr const char* label = "aten::repeat_interleave";
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  if (repeats.size(0) == 0) {
    return at::empty_like(repeats, at::MemoryFormat::Contiguous);
  }
  const at::Tensor counts = repeats.contiguous();
  const at::Tensor end = running(counts, k_running_sum.of(NPU_I64), label);
  const bool given = output_size.value_or(-1) >= 0;
  TORCH_CHECK(given || at::min(counts).item<int64_t>() >= 0, "repeats can not be negative");
  const int64_t total = given ? *output_size : last(end);
  at::Tensor starts = at::zeros({total}, repeats.options());
  at::Tensor out = at::empty({total}, repeats.options());
  if (total == 0) {
    return out;
  }
  Nest(NPU_SCATTER, label, counts.sizes())
      .with(counts)
      .with(end)
      .with(starts, {0})
      .integer(total)
      .integer(counts.size(0) - 1)
      .run(k_repeat_starts.of(NPU_I64));
  Nest(NPU_SCAN, label, {total}, 1).with(starts).with(out).run(k_running_max.of(NPU_I64));
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::nonzero, nonzero>(m);
  register_native<at::_ops::nonzero_out, nonzero_out>(m);
  register_native<at::_ops::nonzero_static, nonzero_static>(m);
  register_native<at::_ops::nonzero_static_out, nonzero_static_out>(m);
  register_native<at::_ops::masked_select, masked_select>(m);
  register_native<at::_ops::masked_select_out, masked_select_out>(m);
  register_native<at::_ops::masked_scatter_, masked_scatter_>(m);
  register_native<at::_ops::repeat_interleave_Tensor, repeat_interleave>(m);
}

}  // namespace
}  // namespace torch_npu::masked_cpp
