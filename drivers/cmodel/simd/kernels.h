// The engine's inner loops: one table per instruction set level, chosen once at run time. Every kernel works on dense
// arrays that fit the first cache; an argument may instead be one value for all elements (a set bit in `uniform`).
#pragma once
#include <cstdint>

#include "npu/program.h"

namespace cmodel {

// Compute types in table order. BOOL values are bytes, where anything but 0 is true.
enum TypeClass : uint8_t { kBool = 0, kI32 = 1, kI64 = 2, kU64 = 3, kF32 = 4, kF64 = 5, kTypeClasses = 6 };

constexpr TypeClass type_class(int dtype) {
  switch (dtype) {
    case NPU_I32:
      return kI32;
    case NPU_I64:
      return kI64;
    case NPU_U64:
      return kU64;
    case NPU_F32:
      return kF32;
    case NPU_F64:
      return kF64;
    default:
      return kBool;
  }
}

// out[i] = op(a[i], b[i], c[i]); bit 0, 1, 2 of `uniform`: a, b, c is one value. `out` may be exactly a, b or c.
using Kernel = void (*)(void* out, const void* a, const void* b, const void* c, int64_t n, unsigned uniform);
using Convert = void (*)(void* out, const void* in, int64_t n);
// One value from n of them, n >= 1.
using Fold = void (*)(void* out, const void* in, int64_t n);
// into[i] = fold of into[i] and rows of in[i], `stride` elements apart.
using FoldRows = void (*)(void* into, const void* in, int64_t stride, int64_t rows, int64_t n);
// The greatest (least) value and the lowest index that goes with it; index[i] or, where null, first + i * step.
using ArgFold = void (*)(void* value, int64_t* at, const void* in, const int64_t* index, int64_t first, int64_t step,
                         int64_t n);
// Element-wise: (x, index) takes the place of (best, at) where it is the better extreme and the mask, if any, is set.
using ArgLanes = void (*)(void* best, int64_t* at, const void* x, const int64_t* index, const char* mask, int64_t n);
// Mean and sum of squared deviations of n values. `next`: n more that will be read soon, or null.
using Moments = void (*)(double* mean, double* m2, const void* in, int64_t n, const void* next);
// Element-wise Welford step: `count` includes the new values.
using WelfordLanes = void (*)(void* mean, void* m2, const void* in, int64_t n, double count);
// Copies between dense and strided memory, by element size. Strides in elements.
using Gather = void (*)(void* out, const void* in, int64_t stride, int64_t n);
using Scatter = void (*)(void* out, int64_t stride, const void* in, int64_t n);
// out[r * cols + c] = in[r + c * stride] (gather), out[r + c * stride] = in[r * cols + c] (scatter).
using Transpose = void (*)(void* out, const void* in, int64_t stride, int64_t rows, int64_t cols);
// Running value from *carry on; `carry` is updated.
using ScanRow = void (*)(void* out, const void* in, int64_t n, void* carry);
// The same for several rows side by side, so that one does not wait for the other.
constexpr int kScanRows = 4;
using ScanRows = void (*)(void* const* out, const void* const* in, int64_t n, uint64_t* carry);

// Elements first + c * stride + offset[c] (or offset[0] for all) of an operand whose valid ones are lowest ..
// lowest + span; where the mask is 0, `lowest`. False: some element is not valid.
using Addresses = bool (*)(int64_t* at, int64_t first, const int64_t* offset, bool one_offset, int64_t stride,
                           const char* mask, int64_t lowest, uint64_t span, int64_t n);
// out[c] = memory[at[c]], or 0 where the mask (if any) is 0.
using Pick = void (*)(void* out, const void* memory, const int64_t* at, const char* mask, int64_t n);
// out[r * cols + c] = memory[start[r] + offset[c]]; offsets first .. last are neighbours.
using PickRows = void (*)(void* out, const void* memory, const int64_t* start, int64_t rows, const int64_t* offset,
                          int64_t cols, int64_t first, int64_t last);
// check_index with one size for all. False: some index is out of range.
using CheckIndices = bool (*)(void* out, const void* index, const void* size, bool wraps, int64_t n);

struct Kernels {
  const char* name;
  // By instruction and the class of the first argument (for `where`: of the result). Null: no such instruction.
  Kernel op[NPU_OP_COUNT][kTypeClasses];
  Convert convert[NPU_DTYPE_COUNT][NPU_DTYPE_COUNT];
  Fold fold[NPU_FOLD_COUNT][kTypeClasses];
  FoldRows fold_rows[NPU_FOLD_COUNT][kTypeClasses];  // null: there is none
  ArgFold argmax[kTypeClasses];
  ArgFold argmin[kTypeClasses];
  ArgLanes argmax_lanes[kTypeClasses];
  ArgLanes argmin_lanes[kTypeClasses];
  Moments moments[kTypeClasses];
  WelfordLanes welford_lanes[kTypeClasses];
  ScanRow scan[NPU_FOLD_COUNT][kTypeClasses];
  ScanRows scan_rows[NPU_FOLD_COUNT][kTypeClasses];  // null: there is none
  Addresses addresses;
  CheckIndices check[2];  // I32, I64
  Pick pick[4];           // by log2 of the element size, as the following
  PickRows pick_rows[4];
  Gather gather[4];
  Scatter scatter[4];
  Transpose gather_transposed[4];
  Transpose scatter_transposed[4];
  // rows of `bytes` each, their starts out_step and in_step bytes apart
  void (*copy_rows)(void* out, int64_t out_step, const void* in, int64_t in_step, int64_t rows, int64_t bytes);
  Convert stream;  // copies n bytes with stores that bypass the cache; `out` is aligned to 4
  // Two F32 instructions in one loop, each rounded on its own: pair[first][second], first: add, sub, mul; second: add,
  // sub, mul of the first's result and c, sub of c and the first's result, max.
  Kernel pair[3][5];
  Kernel exp_sub, erf_mul;  // exp(a - b), erf(a * b)
  Kernel gelu;              // (1 + erf(a * b)) * (a * c), each step rounded
  // Two words of one philox counter.
  void (*philox_pair)(int64_t* first, int64_t* second, const void* seed, const void* offset, const void* sequence,
                      int64_t n, unsigned uniform, unsigned first_word, unsigned second_word);
  // ((x - mean) * scale) * weight + bias, each step rounded; bit 0, 1 of `uniform`: weight, bias is one value; bit 2:
  // `out` starts a cache line, and lines of it should bypass the caches.
  void (*normalize)(float* out, const float* x, float mean, float scale, const float* weight, const float* bias,
                    int64_t n, unsigned uniform);
  // One-instruction programs over bf16 or f16 in memory, F32 inside: load, load, op, store in one loop.
  Kernel half_op[2][NPU_OP_COUNT];  // [0]: bf16, [1]: f16; null: use the interpreter
};

const Kernels& kernels();  // the best level this processor has

namespace isa_base {
const Kernels& table();
}
namespace isa_avx2 {
const Kernels& table();
}
namespace isa_avx512 {
const Kernels& table();
}

}  // namespace cmodel
