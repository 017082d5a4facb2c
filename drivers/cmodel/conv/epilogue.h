// The program of a CONV. What depends on the channel only is computed once per command. Where results are few and lie
// in one piece, it runs behind the convolution, which writes its sums to where they will be. Else it runs on tiles,
// with many points in a row, or many channels where those lie together or points are few.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "drivers/cmodel/conv/conv.h"

namespace cmodel::conv {

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
  // The program runs on what the convolution has written to stored(), as one step behind it.
  bool is_behind() const { return behind_; }
  void run_behind() const;

  template <class T>
  void run(const Results& at, const Sums<T>& sums) const;
  // Of sums[point][channel] in F32, `ld` apart. False: only by `run`, and nothing was done.
  bool run_points(const Results& at, const float* sums, int64_t ld) const;

 private:
  // An operand of the program, seen as [n, z, channel, point].
  struct Access {
    size_t operand;
    bool loaded, stored;
    int64_t n, channel, z, point;
    char* at(const Operand& o, const Results& r, int64_t width) const;
  };
  void compute_channels(const Job& given);
  bool may_run_behind() const;
  bool is_flat(const Results& at) const { return flat_ && (at.rows == 1 || at.cols == width_); }

  std::vector<Operand> operands_, flat_operands_;
  Job job_, flat_job_;  // the latter as [n, z, channel, point]
  std::optional<product::Scratch> values_;
  std::vector<Access> accesses_;
  size_t stored_ = 2;
  int64_t width_ = 1;
  bool flat_ = false;  // y and x are one dimension in every operand, and no coordinate is asked for
  bool channels_last_ = false, behind_ = false;
  bool transposes_ = false;  // the program may run on [point][channel]
};

}  // namespace cmodel::conv
