// Padding takes no part in a convolution (isa.md), but the kernels multiply its zeros. That shows only where the other
// factor is infinite or NaN: such results are NaN, and are computed again here without the terms that fall outside.
#include <cmath>
#include <type_traits>

#include "drivers/cmodel/conv/conv.h"
#include "drivers/cmodel/product/kernels/kernels.h"
#include "support/reference/value.h"

namespace cmodel::conv {
namespace {

template <class T>
T element(const Tensor& tensor, const int64_t* at) {
  const npu::Value value = npu::load_value(tensor.at(at[0], at[1], at[2], at[3], at[4]), tensor.dtype,
                                           std::is_same_v<T, float> ? NPU_F32 : NPU_F64);
  if constexpr (std::is_same_v<T, float>) {
    return value.f32;
  } else {
    return value.f64;
  }
}

// What `result` position and kernel position `tap` meet along one axis: the position in the tensor that the kernel
// slides over. False: none. `outside` notes a term that falls into the padding.
bool meets(const Shape& s, uint32_t mode, int d, int64_t result, int64_t tap, int64_t* position, bool* outside) {
  int64_t at = result * s.stride[d] - s.padding[d] + tap * s.dilation[d];
  if (mode == NPU_CONV_GRAD_INPUT) {
    at = result + s.padding[d] - tap * s.dilation[d];
    if (at % s.stride[d] != 0) return false;
    at /= s.stride[d];
  }
  *position = at;
  const bool inside = at >= 0 && at < (mode == NPU_CONV_GRAD_INPUT ? s.out_size[d] : s.in_size[d]);
  *outside |= !inside;
  return inside;
}

// Whether some term of a result falls into the padding.
bool reaches_padding(const Shape& s, uint32_t mode, const int64_t* at) {
  bool outside = false;
  for (int d = 0; d < 3; ++d) {
    const bool by_weight = mode == NPU_CONV_GRAD_WEIGHT;
    for (int64_t i = 0; i < (by_weight ? s.out_size[d] : s.kernel[d]); ++i) {
      int64_t position;
      meets(s, mode, d, by_weight ? i : at[2 + d], by_weight ? at[2 + d] : i, &position, &outside);
    }
  }
  return outside;
}

// The factor that meets zeros of the padding: weights, or the gradient where those are the result. Asked only when a
// result is NaN; from then on known.
template <class T>
bool factor_is_finite(const Context& context) {
  enum { kUnknown, kFinite, kNot };
  int known = context.finite_factor.load(std::memory_order_relaxed);
  if (known == kUnknown) {
    const Shape& s = context.shape;
    const bool by_weight = context.job.command.u.conv.mode == NPU_CONV_GRAD_WEIGHT;
    const Tensor factor = tensor_of(context.job.operands[by_weight ? 0 : 1], s.spatial_rank);
    const int64_t* inner = by_weight ? s.out_size : s.kernel;
    const int64_t outer[2] = {by_weight ? s.batch : s.groups * s.out_channels,
                              by_weight ? s.groups * s.out_channels : s.in_channels};
    known = kFinite;
    for (int64_t i = 0; i < outer[0] * outer[1] && known == kFinite; ++i) {
      for (int64_t p = 0; p < inner[0] * inner[1] * inner[2]; ++p) {
        const int64_t at[5] = {i / outer[1], i % outer[1], p / (inner[1] * inner[2]), p / inner[2] % inner[1],
                               p % inner[2]};
        if (!std::isfinite(element<T>(factor, at))) known = kNot;
      }
    }
    context.finite_factor.store(known, std::memory_order_relaxed);
  }
  return known == kFinite;
}

// One result from its terms inside. False: it is NaN even so.
template <class T>
bool compute(const Context& context, const int64_t* at, T* result) {
  const Shape& s = context.shape;
  const npu_conv& conv = context.job.command.u.conv;
  const Tensor first = tensor_of(context.job.operands[0], s.spatial_rank);
  const Tensor second = tensor_of(context.job.operands[1], s.spatial_rank);
  const bool by_weight = conv.mode == NPU_CONV_GRAD_WEIGHT;
  // The sum runs over kernel positions, or for the weight gradient over output positions.
  const int64_t* size = by_weight ? s.out_size : s.kernel;
  const int64_t results = conv.mode == NPU_CONV_GRAD_INPUT ? s.in_channels : s.out_channels;
  const int64_t group = by_weight ? at[0] / s.out_channels : at[1] / results;
  const int64_t outer = by_weight ? s.batch : conv.mode == NPU_CONV_FORWARD ? s.in_channels : s.out_channels;
  bool outside = false;  // known
  T sum = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t p = 0; p < size[0] * size[1] * size[2]; ++p) {
      const int64_t inner[3] = {p / (size[1] * size[2]), p / size[2] % size[1], p % size[2]};
      int64_t met[3] = {};
      bool inside = true;
      for (int d = 0; d < 3; ++d) {
        const int64_t position = by_weight ? inner[d] : at[2 + d], tap = by_weight ? at[2 + d] : inner[d];
        inside = meets(s, conv.mode, d, position, tap, &met[d], &outside) && inside;
      }
      if (!inside) continue;
      T a, b;
      if (by_weight) {
        const int64_t gradient[5] = {o, at[0], inner[0], inner[1], inner[2]};
        const int64_t input[5] = {o, group * s.in_channels + at[1], met[0], met[1], met[2]};
        a = element<T>(first, gradient);
        b = element<T>(second, input);
      } else {
        const bool forward = conv.mode == NPU_CONV_FORWARD;
        const int64_t source[5] = {at[0], group * outer + o, met[0], met[1], met[2]};
        const int64_t weight[5] = {forward ? at[1] : group * outer + o, forward ? o : at[1] % results, inner[0],
                                   inner[1], inner[2]};
        a = element<T>(first, source);
        b = element<T>(second, weight);
      }
      sum += a * b;
      if (std::isnan(sum)) return false;  // and stays so
    }
  }
  *result = sum;
  return true;
}

template <class T>
bool has_nan(const T* line, int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    return product::kernel_set().has_nan(line, count);
  } else {
    bool any = false;
    for (int64_t i = 0; i < count; ++i) any |= line[i] != line[i];
    return any;
  }
}

}  // namespace

template <class T>
void leave_out_padding(const Context& context, const Results& at, const Sums<T>& sums) {
  const int64_t length = (at.rows - 1) * sums.row_ld + at.cols;
  const bool dense = sums.channel_ld == length;  // then one look is enough for nearly all
  if (dense && !has_nan(sums.data, at.channels * length)) return;
  for (int64_t c = 0; c < at.channels; ++c) {
    // What lies between rows is looked at too, and does no harm.
    if (!has_nan(sums.data + c * sums.channel_ld, length)) continue;
    for (int64_t y = 0; y < at.rows; ++y) {
      T* line = sums.data + c * sums.channel_ld + y * sums.row_ld;
      if (!has_nan(line, at.cols)) continue;
      if (factor_is_finite<T>(context)) return;
      for (int64_t x = 0; x < at.cols; ++x) {
        const int64_t place[5] = {at.n, at.channel + c, at.z, at.y + y, at.x + x};
        T value;
        if (std::isnan(line[x]) && reaches_padding(context.shape, context.job.command.u.conv.mode, place) &&
            compute(context, place, &value)) {
          line[x] = value;
        }
      }
    }
  }
}

template void leave_out_padding<float>(const Context&, const Results&, const Sums<float>&);
template void leave_out_padding<double>(const Context&, const Results&, const Sums<double>&);

}  // namespace cmodel::conv
