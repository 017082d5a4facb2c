// Histograms: PyTorch's own code finds and checks the edges; one MAP per dimension finds each element's bin, one
// SCATTER counts.
#include <ATen/TensorOperators.h>
#include <ATen/native/Histogram.h>
#include <ATen/ops/_histogramdd_bin_edges_native.h>
#include <ATen/ops/_histogramdd_bin_edges_ops.h>
#include <ATen/ops/_histogramdd_from_bin_cts_native.h>
#include <ATen/ops/_histogramdd_from_bin_cts_ops.h>
#include <ATen/ops/_histogramdd_from_bin_tensors_native.h>
#include <ATen/ops/_histogramdd_from_bin_tensors_ops.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/histc_native.h>
#include <ATen/ops/histc_ops.h>
#include <ATen/ops/histogram_native.h>
#include <ATen/ops/histogram_ops.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::histogram_cpp {
namespace {

using at::Tensor;

// bin = bin * n + place. Elements outside the edges, and those outside in an earlier dimension, have bin -1. With
// `search` the place is already known, from the edges; else they are evenly spaced and it is a division, after which
// `local` compares with the neighbours.
constexpr const char* kBinFront = R"(
formula bins(bin: i64, x, place: i64, first, last, edges; n: i64, start: bool)
each:
  %inside = x >= first and x <= last
)";
constexpr const char* kBinSearched = "  %p = place - 1\n";
constexpr const char* kBinDivided = R"(
  %guess = i64((x - first) * number(n) / (last - first))
  %p = min(max(%guess, 0), n)
)";
// The last edge that is not above x, out of the three around the guess.
constexpr const char* kBinLocal = R"(
  %to = min(%p + 1, n)
  %low = where(load_at(edges, %p) <= x, %p, max(%p - 1, 0))
  %p = where(load_at(edges, %to) <= x, %to, %low)
)";
constexpr const char* kBinEnd = R"(
  %base = where(start, 0, bin)
  bin = where(%base >= 0 and %inside, fma(%base, n, min(%p, n - 1)), -1)
)";

ProgramFamily f_bins;

TypedProgram k_count(R"(
formula count(hist, bin: i64, weight)
each:
  store_at(hist, weight, bin, add, mask bin >= 0)
)");

enum class Bins { kSearch, kLinear, kLinearLocal };

void histogram(Bins how, const Tensor& self, const std::optional<Tensor>& weight, bool density, Tensor& hist,
               const at::TensorList& edges) {
  constexpr const char* label = "aten::histogram";
  const npu_dtype compute = compute_dtype(numeric_dtype(self.scalar_type(), label));
  if (!is_float(compute)) {
    throw Unsupported(label);  // for PyTorch's own sentence
  }
  hist.zero_();
  const int64_t dims = self.size(-1);
  const Tensor points = self.reshape({-1, dims});
  const int64_t count = points.size(0);
  if (count > 0 && hist.numel() > 0) {
    const Tensor bin = make_empty({count}, {}, self.options().dtype(at::kLong));
    for (int64_t d = 0; d < dims; ++d) {
      const Tensor x = points.select(1, d), edge = edges[d].contiguous();
      const Tensor place = how == Bins::kSearch ? at::searchsorted(edge, x.contiguous(), false, true) : bin;
      Nest(NPU_MAP, label, {count})
          .with(bin)
          .with(x)
          .with(place)
          .with(edge, {0})
          .with(edge, {0}, edge.numel() - 1)
          .with(edge, {0})
          .integer(edge.numel() - 1)
          .integer(d == 0)
          .run(f_bins.get(static_cast<int64_t>(how), compute, [&] {
            std::string text = kBinFront;
            text += how == Bins::kSearch ? kBinSearched : kBinDivided;
            if (how == Bins::kLinearLocal) text += kBinLocal;
            return text + kBinEnd;
          }));
    }
    // Counts of 16-bit floats would stop growing, and a strided result has no flat index.
    const auto wide = at::isReducedFloatingType(hist.scalar_type()) ? at::kFloat : hist.scalar_type();
    const bool direct = hist.is_contiguous() && wide == hist.scalar_type();
    const Tensor sum = direct ? hist : at::zeros(hist.sizes(), hist.options().dtype(wide));
    const Tensor weights = weight ? weight->reshape({-1}) : at::ones({1}, sum.options()).expand({count});
    Nest(NPU_SCATTER, label, {count})
        .with(sum, {0})
        .with(bin)
        .with(weights)
        .run(k_count.of(compute_dtype(storage_dtype(sum.scalar_type()))));
    if (!direct) {
      hist.copy_(sum);
    }
  }
  if (density) {
    hist.div_(hist.sum());
    for (int64_t d = 0; d < dims; ++d) {
      at::DimVector shape(dims, 1);
      shape[d] = -1;
      hist.div_(edges[d].diff().reshape(shape));
    }
  }
}

void launch_histogram(const Tensor& self, const std::optional<Tensor>& weight, bool density, Tensor& hist,
                      const at::TensorList& edges) {
  histogram(Bins::kSearch, self, weight, density, hist, edges);
}
void launch_histogram_linear(const Tensor& self, const std::optional<Tensor>& weight, bool density, Tensor& hist,
                             const at::TensorList& edges, bool local) {
  histogram(local ? Bins::kLinearLocal : Bins::kLinear, self, weight, density, hist, edges);
}
void launch_outer_edges(const Tensor& input, const int64_t count, std::vector<double>& left,
                        std::vector<double>& right) {
  const auto [low, high] = at::aminmax(input, 0);
  const Tensor lows = low.to(at::kDouble).cpu(), highs = high.to(at::kDouble).cpu();
  for (int64_t d = 0; d < count; ++d) {
    left[d] = lows[d].item<double>();
    right[d] = highs[d].item<double>();
  }
}

TypedProgram k_bincount(R"(
formula bincount(index: i64, counts, weight)
each:
  store_at(counts, weight, index, add)
)");

// The number of bins is the greatest value: the host waits for it, as on cuda.
Tensor bincount(const Tensor& self, const std::optional<Tensor>& weights_, int64_t minlength) {
  constexpr const char* label = "aten::bincount";
  const Tensor weights = given(weights_);
  check_same_device(label, {&self, &weights});
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  if (!c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    throw Unsupported(label);  // for PyTorch's own sentence
  }
  if (self.dim() == 1 && self.numel() == 0) {
    return at::zeros({minlength}, self.options().dtype(at::kLong));
  }
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  const auto [low, high] = at::aminmax(self);
  TORCH_CHECK(low.item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!weights.defined() || (weights.dim() == 1 && weights.size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const auto type = !weights.defined() ? at::kLong : weights.scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  const Tensor out = at::zeros({std::max(high.item<int64_t>() + 1, minlength)}, self.options().dtype(type));
  const Tensor each = weights.defined() ? weights : at::ones({1}, out.options()).expand(self.sizes());
  Nest(NPU_SCATTER, label, self.sizes())
      .with(self)
      .with(out, {0})
      .with(each)
      .run(k_bincount.of(compute_dtype(storage_dtype(type))));
  return out;
}

using Range = std::optional<c10::ArrayRef<double>>;
using Weight = const std::optional<Tensor>&;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::histc, at::native::histogram_histc>(m);
  register_native<ops::histc_out, at::native::histogram_histc_out>(m);
  register_native<ops::histogram_bins_tensor,
                  static_cast<std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, Weight, bool)>(
                      at::native::histogram)>(m);
  register_native<ops::histogram_bins_tensor_out,
                  static_cast<std::tuple<Tensor&, Tensor&> (*)(const Tensor&, const Tensor&, Weight, bool, Tensor&,
                                                               Tensor&)>(at::native::histogram_out)>(m);
  register_native<ops::histogram_bin_ct, static_cast<std::tuple<Tensor, Tensor> (*)(
                                             const Tensor&, int64_t, Range, Weight, bool)>(at::native::histogram)>(m);
  register_native<ops::histogram_bin_ct_out,
                  static_cast<std::tuple<Tensor&, Tensor&> (*)(const Tensor&, int64_t, Range, Weight, bool, Tensor&,
                                                               Tensor&)>(at::native::histogram_out)>(m);
  register_native<ops::_histogramdd_bin_edges, at::native::histogramdd_bin_edges>(m);
  register_native<ops::_histogramdd_from_bin_cts, static_cast<Tensor (*)(const Tensor&, at::IntArrayRef, Range, Weight,
                                                                         bool)>(at::native::_histogramdd)>(m);
  register_native<ops::_histogramdd_from_bin_tensors,
                  static_cast<Tensor (*)(const Tensor&, at::TensorList, Weight, bool)>(at::native::_histogramdd)>(m);
  register_native<ops::bincount, bincount>(m);
}

}  // namespace
}  // namespace torch_npu::histogram_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_stub, &torch_npu::histogram_cpp::launch_histogram)
REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_linear_stub, &torch_npu::histogram_cpp::launch_histogram_linear)
REGISTER_PRIVATEUSE1_DISPATCH(histogram_select_outer_bin_edges_stub, &torch_npu::histogram_cpp::launch_outer_edges)
}  // namespace at::native
