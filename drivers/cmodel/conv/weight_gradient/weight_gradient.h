// The gradient of a convolution's weights: [result channels, positions] x [positions, input channels * taps], where
// positions run over the whole batch in order. The batch is cut into a number of parts that depends on the shape only,
// and the parts are added in order, so the result does not depend on the number of threads.
#pragma once
#include <cstdint>

#include "drivers/cmodel/conv/conv.h"
#include "drivers/cmodel/conv/tuning.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {

// What every way to compute it gets.
struct WeightGradient {
  const Context& context;
  Phase forward;
  Tensor gradient, input;
  const Shape& shape = context.shape;
  int64_t outputs = shape.out_channels, inputs = shape.in_channels, taps = shape.taps();
  int64_t depth = inputs * taps;                  // weights of an output channel
  int64_t size = shape.groups * outputs * depth;  // all weights
  int64_t positions = shape.positions();
};

using WeightGradientWay = Way<const WeightGradient>;
// One channel on either side of each group.
extern const WeightGradientWay depthwise_gradient;
// A kernel of one point with stride 1: a plain product.
extern const WeightGradientWay pointwise_gradient;
// Few positions in F32: the whole im2col matrix, and results where they lie.
extern const WeightGradientWay few_gradient;
// F32 gradients where x, or channels, lie along memory: without an im2col matrix.
extern const WeightGradientWay lines_gradient;
// F32 gradients: im2col goes straight into the packed form.
extern const WeightGradientWay packed_gradient;
// Everything, through an im2col matrix.
extern const WeightGradientWay column_gradient;

// How the work is cut: positions into pieces, input channels into blocks, and the batch into parts, each of which has
// sums of its own for every weight.
struct Cut {
  Pieces pieces;
  int64_t block, blocks, parts = 1;
  explicit Cut(const WeightGradient& w);

  struct Task {
    int64_t part, group, channel, channels;  // of the input, within the group
    int64_t begin, end;                      // pieces
  };
  int64_t tasks(const WeightGradient& w) const { return parts * blocks * w.shape.groups; }
  Task at(const WeightGradient& w, int64_t task) const;
};

// Parts of a product on packed register tiles, as many as tasks, memory and work allow.
int64_t parts_of(const WeightGradient& w, const Cut& cut);

// body(first task, last task), for tasks of `work` multiply-adds together.
template <class F>
void run_tasks(int64_t tasks, int64_t work, F&& body) {
  if (work <= kSerialWork) return body(0, tasks);
  parallel_for(tasks, grain_for(work / tasks, kGradientWork), body);
}

// Are results one array of F32, in the order of the sums, or with channels behind the taps?
bool is_dense(const WeightGradient& w, bool channels_last = false);

// Hands on the sums of some weights of one output channel: [input channel][tap]. `stored`: they lie where they belong.
template <class T>
void finish(const WeightGradient& w, int64_t output, int64_t channel, int64_t channels, T* sums, bool stored = false);

// Adds the parts of all sums, each [output channel][input channel][tap], to the first of them, and hands them on.
template <class T>
void add_up(const WeightGradient& w, T* sums, int64_t parts, bool stored = false);

}  // namespace cmodel::conv
