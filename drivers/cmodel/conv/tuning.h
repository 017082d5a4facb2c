// Numbers that decide how a convolution is computed. They were found on one processor with AVX-512, by
// benchmarks/products_bench.py; in quotes is a case of it that uses them. Which way runs, and how the sums of the
// weight gradient and of packed weights are cut, shows in last bits; the others decide the time only.
#pragma once
#include <cstdint>

namespace cmodel::conv {

// -- threads --
constexpr int64_t kSerialWork = 1 << 17;    // multiply-adds that are not worth waking a helper for ("lenet conv1 5x5")
constexpr int64_t kTaskWork = 1 << 17;      // multiply-adds of a task, at least ("lenet conv2 5x5")
constexpr int64_t kGradientWork = 1 << 18;  // the same of the weight gradient, whose tasks are longer
constexpr int64_t kTasksPerThread = 4;      // tiles or blocks of positions, so that threads end together
constexpr int64_t kSharesPerThread = 2;     // the same, where result channels have to be split for it
constexpr int64_t kPackElements = 1 << 15;  // weights or positions packed by one task
constexpr int64_t kLineElements = 1 << 14;  // read, gathered or added up by one task

// -- caches --
constexpr int64_t kWindowElements = 96 << 10;  // of a tile's window: stays in the second-level cache
constexpr int64_t kTilePoints = 2048;          // of such a tile, at most
constexpr int64_t kChannelsTogether = 16;      // transposed together, each one a line in memory

// -- pointwise --
constexpr int64_t kPointwisePairs = 64;  // channels in times out; with fewer the window is faster

// -- depthwise, channels last ("channels_last depthwise 7x7") --
constexpr int64_t kDepthwiseGroups = 8;        // fewer do not fill a vector
constexpr int64_t kDepthwiseChannels = 64;     // of a tile
constexpr int64_t kDepthwiseRows = 8;          // of a tile
constexpr int64_t kDepthwisePositions = 4096;  // of one piece of the weight gradient

// -- lanes: few positions ("resnet layer4 3x3" with a batch of 1) --
constexpr int64_t kLanePairs = 1 << 11;       // channels in times out, at least
constexpr int64_t kLanePoints = 256;          // positions, at most
constexpr int64_t kLaneGathered = 128 << 10;  // elements of the source: they stay in the second-level cache
constexpr int64_t kLaneBlock = 4 << 10;       // elements of the source that are multiplied with lines of weights
constexpr int64_t kLaneChannels = 64, kLeastLaneChannels = 8;  // of such a block
constexpr double kShuffleCycles = 1.4;     // a step with a tap of its own in each lane; one with the same tap is 1
constexpr double kBestStepCycles = 1.1;    // a step at best, which is known before lanes are sorted
constexpr double kGatherCycles = 1.2;      // to gather an element of the source
constexpr double kStoreCycles = 2.0;       // to store a result
constexpr double kLaneGain = 0.85;         // part of the packed way's cycles that lanes may take, of one phase
constexpr double kLaneGainOfPhases = 1.4;  // the same of several phases, which packed tiles put together

// -- packed register tiles ("resnet layer1 3x3" to "resnet layer4 3x3") --
constexpr int64_t kPackedResults = 8;    // channels, at least
constexpr int64_t kPackedDepth = 24;     // source channels times taps, at least
constexpr int64_t kMostPositions = 512;  // of one block of the im2col matrix
constexpr int64_t kLeastPositions = 96;  // the same, where threads share few positions
constexpr int64_t kSplitRows = 32;       // of an image whose edges become areas of their own
constexpr double kUseTolerance = 0.01;   // of full strips of B that a larger bundle may lose
constexpr int64_t kBlockPercent = 125;   // of product::kBlockWords that a block of the sum may hold
constexpr int64_t kWidestKernel = 64;    // taps of a channel that are worth transposing to pick some of them

// -- narrow images --
constexpr int64_t kNarrowPercent = 80;                     // of a window's line that its points fill at most
constexpr int64_t kNarrowDepth = 512;                      // source channels times taps, at least
constexpr int64_t kNarrowResults = 64;                     // channels, at least, also of one share
constexpr int64_t kNarrowElements = 2 << 20;               // of the im2col matrix
constexpr int64_t kNarrowMost = 1024, kNarrowLeast = 192;  // positions of one product

// -- weight gradient --
constexpr int64_t kGradientMost = 1024;         // positions of one product: with more, sums are read less often
constexpr int64_t kGradientLeast = 512;         // the same, where the im2col matrix would be too large for its cache
constexpr int64_t kColumnElements = 256 << 10;  // of the im2col matrix: it stays in the second-level cache
constexpr int64_t kLeastChannels = 8;           // of a block of input channels
constexpr int64_t kGradientTasks = 16;          // parts and blocks into which a sum is cut, at most
constexpr int64_t kGradientElements = 4 << 20;  // of the sums of all parts together
constexpr int64_t kPartWork = 1 << 19;          // multiply-adds of a part, at least
constexpr int64_t kFewPoints = 128;             // positions whose im2col matrix is made at once ("resnet layer4 3x3")
constexpr int64_t kFewPercent = 40;             // positions of one output channel, in percent, at most
constexpr int64_t kFewPercentShort = 80;        // the same where lines of results are short, which cost other ways more
constexpr int64_t kShortLine = 4;               // points: a line with fewer is short
constexpr int64_t kFewPairs = 1 << 9;           // channels in times out, at least
constexpr int64_t kNarrowLine = 16;             // points; shorter lines are put together before they are packed
// Of pointwise ("bottleneck 1x1").
constexpr int64_t kPointCols = 256;          // input channels of a block
constexpr int64_t kPointParts = 8;           // and of parts and blocks together
constexpr int64_t kPointElements = 2 << 20;  // of the sums of all parts together
constexpr int64_t kPointPositions = 2048;    // of a part, at least

// -- epilogue --
constexpr int64_t kFewRowPoints = 96;      // of a tile: then rows are of channels ("resnet layer4 3x3")
constexpr int64_t kNearResults = 1 << 18;  // they are still in the second-level cache when the program runs behind
constexpr int64_t kFewResults = 8192;      // a command ahead for values of channels would take longer

}  // namespace cmodel::conv
