// What the plan assumes that things cost. Measured, with the benchmark they name, on one core with data in the first
// cache; they decide between ways and between running inline and queueing, and change no result.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cmodel {

// -- a job, for running it inline or queueing it (npu-engine-bench, npu-cmodel-bench) --
constexpr int64_t kCommandNs = 100;         // the smallest command
constexpr int64_t kConvNs = 1000;           // the smallest convolution
constexpr int64_t kLongNs = 5000;           // where a better estimate is worth its time
constexpr int64_t kProductsPerNs = 30;      // multiply-adds of MATMUL in F32
constexpr int64_t kConvProductsPerNs = 20;  // of CONV
constexpr int64_t kCopiedPerNs = 3;         // elements of COPY
constexpr int64_t kLeastPoint = 300;        // picoseconds of a point of any program

// -- which plan (npu-engine-bench softmax, 'layer norm') --
constexpr int kNormPasses = 4;  // passes over a tile that loops have to save where a norm's kernel is lost for them
constexpr int64_t kLiftedOnce = 60'000;  // picoseconds that an instruction takes, if only for one point
constexpr size_t kMostPlans = 8;         // of one program: one for each set of operands of one value, or of channels
constexpr int kLoopShare = 4;            // in registers an instruction costs this part of a pass over the first cache

}  // namespace cmodel
