// Convolutions that are products: kernels of one point.
#pragma once
#include <cstdint>
#include <optional>

#include "drivers/cmodel/conv/conv.h"

namespace cmodel::conv {

// Why a convolution of this shape is not a product worth making; nullptr: it is one.
const char* refuses_pointwise(const Shape& shape);

// The distance between neighbouring points where z, y and x together walk memory evenly, or nowhere.
std::optional<int64_t> point_stride(const Tensor& tensor, const int64_t* size);

}  // namespace cmodel::conv
