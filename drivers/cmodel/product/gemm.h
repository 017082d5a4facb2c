// Matrix product on one thread. float and double go to OpenBLAS where it lies beside the driver; integers, tiny
// products and machines without it use our own kernels. Safe to call from many threads at once.
#pragma once
#include <cstdint>

namespace cmodel::product {

// c[m, n] (+)= op(a)[m, k] * op(b)[k, n], row-major; op transposes where ta (tb) is set, and lda (ldb, ldc) is the
// distance between stored rows. Without `accumulate`, c is only written. Integers wrap.
template <class T>
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb,
          bool accumulate, T* c, int64_t ldc);

extern template void gemm<float>(bool, bool, int64_t, int64_t, int64_t, const float*, int64_t, const float*, int64_t,
                                 bool, float*, int64_t);
extern template void gemm<double>(bool, bool, int64_t, int64_t, int64_t, const double*, int64_t, const double*, int64_t,
                                  bool, double*, int64_t);
extern template void gemm<uint32_t>(bool, bool, int64_t, int64_t, int64_t, const uint32_t*, int64_t, const uint32_t*,
                                    int64_t, bool, uint32_t*, int64_t);
extern template void gemm<uint64_t>(bool, bool, int64_t, int64_t, int64_t, const uint64_t*, int64_t, const uint64_t*,
                                    int64_t, bool, uint64_t*, int64_t);

// Whether OpenBLAS was found. NPU_CMODEL_BLAS=own in the environment leaves it unused, for tests and comparisons.
bool have_openblas();

}  // namespace cmodel::product
