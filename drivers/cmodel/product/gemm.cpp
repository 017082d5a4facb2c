#include "drivers/cmodel/product/gemm.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "drivers/cmodel/product/kernels/kernels.h"
#include "drivers/cmodel/product/pack.h"
#include "drivers/cmodel/product/tuning.h"

namespace cmodel::product {
namespace {

// cblas constants, fixed by its ABI.
enum { kRowMajor = 101, kNoTrans = 111, kTrans = 112 };
template <class T>
using CblasGemm = void (*)(int order, int ta, int tb, int m, int n, int k, T alpha, const T* a, int lda, const T* b,
                           int ldb, T beta, T* c, int ldc);

struct OpenBlas {
  CblasGemm<float> sgemm = nullptr;
  CblasGemm<double> dgemm = nullptr;
};

OpenBlas load_openblas() {
  OpenBlas blas;
  const char* choice = std::getenv("NPU_CMODEL_BLAS");
  if (choice && !std::strcmp(choice, "own")) return blas;
  Dl_info self{};
  if (!dladdr(reinterpret_cast<void*>(&load_openblas), &self) || !self.dli_fname) return blas;
  std::string path = self.dli_fname;
  const size_t slash = path.rfind('/');
  path = (slash == std::string::npos ? std::string(".") : path.substr(0, slash)) + "/libopenblas_npu.so";
  // Local: PyTorch's own BLAS has symbols of the same names.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library) {
    auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "scipy_openblas_set_num_threads"));
    auto sgemm = reinterpret_cast<CblasGemm<float>>(dlsym(library, "scipy_cblas_sgemm"));
    auto dgemm = reinterpret_cast<CblasGemm<double>>(dlsym(library, "scipy_cblas_dgemm"));
    if (set_threads && sgemm && dgemm) {
      set_threads(1);  // our pool splits the work; idle OpenBLAS threads spin on cores that others need
      blas.sgemm = sgemm;
      blas.dgemm = dgemm;
      return blas;
    }
  }
  std::fprintf(stderr,
               "npu cmodel: expected OpenBLAS at %s, got %s; matrix products will be slow. "
               "To get it: pip install scipy-openblas32, then build again\n",
               path.c_str(), library ? "a library without scipy_cblas_sgemm" : "none");
  return blas;
}

const OpenBlas& openblas() {
  static const OpenBlas blas = load_openblas();
  return blas;
}

template <class T>
CblasGemm<T> vendor_gemm() {
  return nullptr;
}
template <>
CblasGemm<float> vendor_gemm<float>() {
  return openblas().sgemm;
}
template <>
CblasGemm<double> vendor_gemm<double>() {
  return openblas().dgemm;
}

// a[rows, k] into strips of `strip` rows, each stored k-major and zero padded: what the register tile reads in order.
template <class T>
void pack_strips(const T* a, int64_t row, int64_t col, int64_t rows, int64_t k, int64_t strip, T* out) {
  for (int64_t start = 0; start < rows; start += strip, a += strip * row, out += strip * k) {
    const int64_t n = std::min(strip, rows - start);
    if (row == 1 && n == strip) {
      for (int64_t p = 0; p < k; ++p) std::memcpy(out + p * strip, a + p * col, strip * sizeof(T));
      continue;
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t p = 0; p < k; ++p) out[p * strip + i] = a[i * row + p * col];
    }
    for (int64_t i = n; i < strip; ++i) {
      for (int64_t p = 0; p < k; ++p) out[p * strip + i] = 0;
    }
  }
}

template <class T>
void own_gemm(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t b_row,
              int64_t b_col, bool accumulate, T* c, int64_t ldc) {
  constexpr int64_t kRows = kPanelRows, kDepth = kPanelDepth, kCols = kPanelCols;
  const Kernels<T>& kernel = kernels<T>();
  const int64_t strip = kernel.micro_cols;
  Scratch a_space(sizeof(T) * kRows * std::min(k, kDepth));
  Scratch b_space(sizeof(T) * std::min(k, kDepth) * (std::min(n, kCols) + strip));
  T* a_pack = a_space.as<T>();
  T* b_pack = b_space.as<T>();
  for (int64_t n0 = 0; n0 < n; n0 += kCols) {
    const int64_t nb = std::min(kCols, n - n0);
    for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
      const int64_t kb = std::min(kDepth, k - k0);
      pack_strips(b + k0 * b_row + n0 * b_col, b_col, b_row, nb, kb, strip, b_pack);
      for (int64_t m0 = 0; m0 < m; m0 += kRows) {
        const int64_t mb = std::min(kRows, m - m0);
        pack_strips(a + m0 * a_row + k0 * a_col, a_row, a_col, mb, kb, int64_t(kMicroRows), a_pack);
        for (int64_t j = 0; j < nb; j += strip) {
          for (int64_t i = 0; i < mb; i += kMicroRows) {
            kernel.micro(kb, a_pack + i * kb, b_pack + j * kb, c + (m0 + i) * ldc + n0 + j, ldc,
                         std::min<int64_t>(kMicroRows, mb - i), std::min(strip, nb - j), accumulate || k0 > 0);
          }
        }
      }
    }
  }
}

}  // namespace

bool have_openblas() {
  return openblas().sgemm != nullptr;
}

template <class T>
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb,
          bool accumulate, T* c, int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    for (int64_t i = 0; i < m && !accumulate; ++i) std::fill_n(c + i * ldc, n, T(0));
    return;
  }
  const int64_t a_row = ta ? 1 : lda, a_col = ta ? lda : 1;
  // Below this a call to a BLAS costs more than the product.
  if (m * n <= kTinyResults && m * n * k <= kTinyWork && (!tb || n * k <= kTinyResults)) {
    T dense[kTinyResults];
    if (tb && n > 1) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t p = 0; p < k; ++p) dense[p * n + j] = b[j * ldb + p];
      }
      b = dense;
      ldb = n;
    } else if (tb) {
      ldb = 1;
    }
    kernels<T>().small(m, n, k, a, a_row, a_col, b, ldb, c, ldc, accumulate);
    return;
  }
  if (CblasGemm<T> vendor = vendor_gemm<T>(); vendor && std::max({m, n, k, lda, ldb, ldc}) <= INT_MAX) {
    vendor(kRowMajor, ta ? kTrans : kNoTrans, tb ? kTrans : kNoTrans, int(m), int(n), int(k), T(1), a, int(lda), b,
           int(ldb), T(accumulate), c, int(ldc));
    return;
  }
  own_gemm(m, n, k, a, a_row, a_col, b, tb ? int64_t(1) : ldb, tb ? ldb : int64_t(1), accumulate, c, ldc);
}

template void gemm<float>(bool, bool, int64_t, int64_t, int64_t, const float*, int64_t, const float*, int64_t, bool,
                          float*, int64_t);
template void gemm<double>(bool, bool, int64_t, int64_t, int64_t, const double*, int64_t, const double*, int64_t, bool,
                           double*, int64_t);
template void gemm<uint32_t>(bool, bool, int64_t, int64_t, int64_t, const uint32_t*, int64_t, const uint32_t*, int64_t,
                             bool, uint32_t*, int64_t);
template void gemm<uint64_t>(bool, bool, int64_t, int64_t, int64_t, const uint64_t*, int64_t, const uint64_t*, int64_t,
                             bool, uint64_t*, int64_t);

}  // namespace cmodel::product
