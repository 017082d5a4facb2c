// Numbers inside the kernels of a product, found as those of ../tuning.h ("gemv").
#pragma once
#include <cstdint>

namespace cmodel::product {

// One row or column times a matrix, y = A x.
constexpr int64_t kNearBytes = 16 << 10;  // of x: more, and it comes from beyond the first-level cache once per row
constexpr int64_t kSweepRows = 2048;      // of y: stay in the first-level cache while the matrix streams by

}  // namespace cmodel::product
