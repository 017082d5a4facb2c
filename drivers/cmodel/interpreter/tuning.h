// Sizes from which the interpreter runs a tile in another way. Each was measured, with the benchmark it names, where
// the two ways take the same time; none of them changes a result.
#pragma once
#include <cstdint>

namespace cmodel {

constexpr int64_t kBlock = 2048;  // points of a tile at most: a few values of it fit the first cache (npu-engine-bench)

// -- memory past the caches, in bytes --
// Above this many, a result does not stay in the last cache beside what it is made of, and stores that bypass it save a
// read of each line (npu-engine-bench add 10000000).
constexpr int64_t kStreamBytes = 10 << 20;
// Computed in the first cache before they are streamed out: few, so that reading goes on meanwhile.
constexpr int64_t kStreamBlock = 2048;
// How far ahead of a row loops fetch: the processor does not look beyond its page by itself
// (npu-engine-bench softmax).
constexpr int64_t kAheadBytes = 4096;

// -- rows of a tile, in points --
// Below these, one call for the whole tile costs less than one per row, even if values per row or column have to be
// written out for it (npu-engine-bench 'layer norm', with rows of so many points).
constexpr int64_t kShortLoopRow = 48;     // of a compiled loop
constexpr int64_t kShortKernelRow = 32;   // of a kernel
constexpr int64_t kShortAddressRow = 16;  // of computed addresses: shorter rows are one long one, where they can be
constexpr int64_t kAddressRun = 8;        // neighbours among computed addresses that are worth a copy of their own

// -- epilogues of MATMUL and CONV, in points (npu-cmodel-bench) --
constexpr int64_t kShortEpilogueRow = 16;  // shorter rows share tiles
constexpr int64_t kWorthRows = 64;         // the same for a program of several instructions
constexpr int64_t kOwnTileRow = 128;       // a row that is a tile of its own

}  // namespace cmodel
