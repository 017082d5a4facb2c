// Sizes from which the engine walks a command in another way. Each was measured, with the benchmark it names, where the
// two ways take the same time; none of them changes a result.
#pragma once
#include <cstdint>

namespace cmodel {

// -- chunks of threads --
constexpr int64_t kChunkValues = 1 << 14;          // values of a cheap instruction (npu-engine-bench add)
constexpr int64_t kChunkFunctionValues = 1 << 12;  // values of a function (npu-engine-bench tanh)
constexpr int64_t kFunctionCost = 1200;            // picoseconds a value: what takes longer is a function
constexpr int64_t kChunkFill = 1 << 16;            // values that are only written (npu-engine-bench relu)
constexpr int64_t kChunkCopyBytes = 256 << 10;     // bytes that are only moved (npu-engine-bench copy)
constexpr int64_t kChunkKeys = 1 << 12;            // keys of rows that are sorted (python -m torch_npu bench ops: sort)
constexpr int64_t kScatterCost = 100'000'000;  // picoseconds of a SCATTER that is worth threads (bench ops: index_add)

// What a point costs at least, in picoseconds: what walking it takes, however little the program computes.
constexpr int64_t kMapPoint = 100;     // npu-engine-bench add
constexpr int64_t kReducePoint = 200;  // npu-engine-bench 'sum rows'
constexpr int64_t kScanPoint = 1000;   // bench ops: cumsum

// -- rows and tiles of MAP, in points --
constexpr int64_t kKernelRow = 32;     // a row that is worth a call of its kernel (npu-engine-bench 'add row')
constexpr int64_t kLoopRow = 32;       // a row that is worth a call of a compiled loop (npu-engine-bench gelu)
constexpr int64_t kLoopTileRow = 128;  // the same where kernels run beside the loop
constexpr int64_t kSmallTile = 512;    // smaller tiles take in a further dimension (bench ops: interpolate)
constexpr int64_t kIndexRow = 512;     // a row with coordinates that is a tile of its own (bench ops: interpolate)
constexpr int64_t kTileRow = 128;      // a row that is a tile of its own (npu-engine-bench 'add transposed')
constexpr int64_t kLongLoopRow = 512;  // a row that is worth a tile beyond the first cache (npu-engine-bench silu_mul)
// Of a function's result, so many times kStreamBytes: it takes longer than its memory, and a copy past the caches would
// come on top (npu-engine-bench tanh).
constexpr int64_t kFunctionStreams = 8;

// -- REDUCE (npu-engine-bench sum, softmax, 'layer norm') --
constexpr int64_t kFarPoints = 1 << 19;   // as many values are not in the second cache: the next row is fetched ahead
constexpr int64_t kNearRow = 1 << 15;     // of up to this many values the next row fits the second cache
constexpr int64_t kLanesRows = 16;        // rows side by side that are worth folding together: one vector
constexpr int64_t kLanesFold = 8;         // folded points of rows that are always folded side by side
constexpr int64_t kWindowFold = 64;       // folded points of windows of several dimensions that are
constexpr int64_t kLanesLeast = 32;       // rows of a tile, at least
constexpr int64_t kSmallImage = 512;      // rows in a tile of a small image
constexpr int64_t kBatchLeast = 8;        // rows of a batch, at least
constexpr int64_t kFewTiles = 8;          // tiles of one row that are worth the threads' waiting for each other
constexpr int kMostPieces = 32;           // of one row, in a fixed order: results do not depend on who ran first
constexpr int64_t kSpreadRow = 32;        // shorter rows get their row's values point by point
constexpr int64_t kShortestPiece = 16;    // points of the last folded dimension: one vector
constexpr int64_t kShortestFold = 64;     // points that are worth a call of a fold's kernel
constexpr int64_t kShortestLoopRow = 32;  // points; shorter rows share tiles
constexpr int64_t kKernelLoopRow = 128;   // the same where kernels are called for a row
constexpr int64_t kLoopPoints = 1 << 14;  // of several rows, which stay in the second cache from segment to segment
constexpr int64_t kMostLoopRows = 64;     // of these
constexpr int64_t kJoinedPiece = 512;     // points; shorter pieces are laid side by side before they are folded
constexpr int64_t kColumnPoints = 8;      // folded points that meet in registers: each is a stream of memory of its own

}  // namespace cmodel
