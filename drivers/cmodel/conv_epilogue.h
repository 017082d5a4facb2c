// The program of a CONV on tiles of its results. What depends on the channel only is computed once per command; tiles
// are walked in lines of whole images where nothing depends on the channel, with many points in a row, or with many
// channels where those lie together or points are few.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "drivers/cmodel/job.h"
#include "drivers/cmodel/matmul_pack.h"

namespace cmodel::conv {

constexpr int64_t kFewPoints = 96;  // of a tile: then rows are of channels

// Results of `channels` channels at a rectangle of points.
struct Results {
  int64_t n, channel, channels, z, y, rows, x, cols;
  int64_t points() const { return rows * cols; }
};

class Epilogue {
 public:
  explicit Epilogue(const Job& given);
  Epilogue(const Epilogue&) = delete;
  Epilogue& operator=(const Epilogue&) = delete;

  // The command with what is left of its program.
  const Job& job() const { return job_; }
  size_t stored() const { return stored_; }  // an operand that is written
  // Channels lie together in every operand.
  bool channels_last() const { return channels_last_; }
  // So many points of all channels of an image are one line in every operand.
  bool joins(int64_t points) const { return image_ > 0 && points == image_; }

  // acc[channel][y][x].
  template <class T>
  void run(const Results& at, T* acc, int64_t channel_ld, int64_t row_ld) const;
  // acc[point][channel] in F32, `ld` apart. False: only by `run`, and nothing was done.
  bool run_points(const Results& at, const float* acc, int64_t ld) const;

 private:
  // An operand of the program, seen as [n, z, channel, point].
  struct Access {
    size_t operand;
    bool loaded, stored;
    int64_t n, channel, z, point;
    char* at(const Operand& o, const Results& r, int64_t width) const;
  };
  void compute_channels(const Job& given);
  bool is_flat(const Results& at) const { return flat_ && (at.rows == 1 || at.cols == width_); }

  void join(const npu_command& command);
  std::vector<Operand> operands_, flat_operands_, joined_operands_;
  Job job_, flat_job_, joined_job_;  // the latter two as [n, z, channel, point] and [n, 1, channel and point]
  std::optional<blas::Scratch> values_;
  std::vector<Access> accesses_;
  size_t stored_ = 2;
  int64_t width_ = 1;
  bool flat_ = false;  // y and x are one dimension in every operand, and no coordinate is asked for
  bool channels_last_ = false, turns_ = false;
  int64_t image_ = 0;  // points of an image, if its channels lie one behind the other in every operand
};

}  // namespace cmodel::conv
