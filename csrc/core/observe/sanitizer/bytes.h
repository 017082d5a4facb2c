// Sets of bytes of a device's memory, as commands touch them: strided boxes and runs.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "npu/command.h"

namespace torch_npu::sanitizer {

struct Run {
  npu_addr begin = 0, end = 0;
  uint64_t size() const { return end - begin; }
  bool operator==(const Run&) const = default;
};

// Runs of `width` bytes at equal distances, in up to eight directions. Steps are positive and descend, and what can be
// one run is one: a contiguous tensor has no directions at all, whatever its shape.
class Box {
 public:
  Box() = default;
  // `size` points per dimension, `stride` in elements of `width` bytes. There is at least one point.
  Box(npu_addr addr, const int64_t* size, const int64_t* stride, int rank, uint64_t width);

  npu_addr begin() const { return begin_; }
  npu_addr end() const { return end_; }
  bool is_run() const { return rank_ == 0; }
  Box moved(int64_t bytes) const;
  bool operator==(const Box&) const = default;

  // Calls visit(Run) until it returns false; runs may overlap. False if one did.
  template <class Visit>
  bool each_run(const Visit& visit) const {
    int64_t point[NPU_MAX_RANK] = {};
    npu_addr at = begin_;
    while (true) {
      if (!visit(Run{at, at + width_})) return false;
      int d = rank_ - 1;
      for (; d >= 0; --d) {
        at += static_cast<uint64_t>(step_[d]);
        if (++point[d] < count_[d]) break;
        at -= static_cast<uint64_t>(step_[d] * count_[d]);
        point[d] = 0;
      }
      if (d < 0) return true;
    }
  }

 private:
  npu_addr begin_ = 0, end_ = 0;
  uint64_t width_ = 0;
  int rank_ = 0;
  int64_t count_[NPU_MAX_RANK] = {}, step_[NPU_MAX_RANK] = {};
};

// Any set: boxes, or (where addresses are computed) sorted runs with gaps between them.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(const Box& box) { add(box); }
  explicit Bytes(Run run);

  void add(const Box& box);
  void add(Run run);
  void finish();  // after the last add(Run): sorts and joins

  bool empty() const { return boxes_.empty() && runs_.empty(); }
  npu_addr begin() const { return begin_; }
  npu_addr end() const { return end_; }
  bool is_run() const;  // everything from begin to end

  template <class Visit>
  bool each_run(const Visit& visit) const {
    for (const Box& box : boxes_) {
      if (!box.each_run(visit)) return false;
    }
    for (const Run& run : runs_) {
      if (!visit(run)) return false;
    }
    return true;
  }

  bool overlaps(const Bytes& other) const;
  // Surely all bytes of `other` are in this one. May say no where it is hard to tell.
  bool covers(const Bytes& other) const;
  // The first bytes that both have.
  Run common(const Bytes& other) const;

 private:
  std::vector<Run> sorted_runs() const;
  void stretch(npu_addr begin, npu_addr end);

  npu_addr begin_ = 0, end_ = 0;
  std::vector<Box> boxes_;
  std::vector<Run> runs_;
};

// Sorts and joins runs that touch.
void join(std::vector<Run>& runs);

}  // namespace torch_npu::sanitizer
