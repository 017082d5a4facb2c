// Numbers that decide how a product is computed. They were found on one processor with AVX-512, by
// benchmarks/products_bench.py (in quotes: a case of it) and npu-cmodel-bench, which shows what a small product costs.
// Which way runs, and kBlockWords, show in last bits; the others decide the time only.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cmodel::product {

// -- threads --
constexpr int64_t kSerialWork = 1 << 17;          // multiply-adds that are not worth waking a helper for ("mm 64")
constexpr int64_t kTaskWork = 1 << 18;            // multiply-adds that a tile should hold at least ("mm 256", "mm 512")
constexpr int64_t kTasksPerThread = 4;            // so that threads end together ("mm 1000x1000x1000")
constexpr size_t kKeptBytes = size_t(256) << 20;  // of scratch, per thread; what is above goes back to the system
constexpr int64_t kPackElements = 1 << 15;        // converted or copied by one task
constexpr int64_t kPackWords = 1 << 12;           // of k times strips, packed by one task

// -- which way --
constexpr int64_t kMostVectors = 3;              // rows: with more the matrix is packed ("gemv", "linear 32x...")
constexpr int64_t kVectorElements = 1 << 14;     // of a matrix that two or three rows read in place, at least
constexpr int64_t kTinyResults = 512;            // elements; below, packing and calls cost more than the product
constexpr int64_t kTinyWork = 8 * kTinyResults;  // multiply-adds, the same
constexpr int64_t kTinyWords = kTinyResults;     // multiply-adds, of words that have to be made first

// -- packed register tiles --
constexpr int64_t kBlockWords = 256;  // of k: a strip of B stays in the first-level cache, a block of A in the second
constexpr int64_t kTileRows = 224, kTileCols = 256;  // with kBlockWords of both operands: in the second-level cache
// Of a product with an epilogue: what that reads and writes comes faster in long rows, best where one begins at the end
// of the last ("linear 512x3072x768").
constexpr int64_t kLongTileRows = 112, kLongTileCols = 768;
constexpr int64_t kShallow = 64;    // k: little work per result, so a tile's sums stay in the first-level cache
constexpr int64_t kLooseTiles = 4;  // register tiles of columns up to which the left operand is read where it lies
constexpr int64_t kFewRows = 64;    // of a product that is computed transposed to leave its weight unpacked
constexpr int64_t kTransposedPercent = 80;  // of the register tiles' area; a transposed product that needs less wins

// -- one row or column --
constexpr int64_t kVectorPiece = 256 << 10;  // bytes of the matrix that stay in the second-level cache for all rows

// -- OpenBLAS, and our own product where it is missing --
constexpr int64_t kTileElements = 1 << 17;  // of a tile that passes through scratch: stays in the second-level cache
constexpr int64_t kGranule = 16;            // rows and columns of a tile are multiples of it, a tile is no smaller
constexpr int64_t kLeastSide = 32;          // rows and columns of a tile that is not split further
constexpr int64_t kPanelRows = 96, kPanelDepth = 256, kPanelCols = 1024;  // a panel of A in L2, a strip of B in L1

// -- measuring (npu_driver::choices) --
constexpr int64_t kMeasuredWork = 1 << 14;  // multiply-adds or points; of less a measurement would be one of the call
constexpr int64_t kThreadedWork = 1 << 27;  // the same; more is surely worth all threads

}  // namespace cmodel::product
