// Limits of compiled loops that decide how they are written. Each was measured with the benchmark it names; none of
// them changes a result.
#pragma once

namespace cmodel {

constexpr int kMostVectors = 4;      // of a body that advance side by side (npu-engine-bench 'chain of 40')
constexpr int kMostWideVectors = 2;  // the same of AVX-512
// Instructions of a body from which the next result waits for this one for longer than the processor looks ahead, and
// what a temporary of a function counts (npu-engine-bench tanh, gelu).
constexpr int kWaitingSteps = 40, kTemporarySteps = 5;
constexpr int kMostVariants = 24;  // loops of one program for what operands are stored as

}  // namespace cmodel
