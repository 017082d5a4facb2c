#include "csrc/core/observe/sanitizer/bytes.h"

#include <algorithm>

namespace torch_npu::sanitizer {

Box::Box(npu_addr addr, const int64_t* size, const int64_t* stride, int rank, uint64_t width)
    : begin_(addr), width_(width) {
  for (int d = 0; d < rank; ++d) {
    const int64_t step = stride[d] * static_cast<int64_t>(width);
    if (size[d] <= 1 || step == 0) continue;
    if (step < 0) begin_ += static_cast<uint64_t>(step * (size[d] - 1));
    count_[rank_] = size[d];
    step_[rank_] = std::abs(step);
    ++rank_;
  }
  // Insertion sort of a handful, largest steps first.
  for (int d = 1; d < rank_; ++d) {
    for (int k = d; k > 0 && step_[k - 1] < step_[k]; --k) {
      std::swap(step_[k - 1], step_[k]);
      std::swap(count_[k - 1], count_[k]);
    }
  }
  // The innermost direction melts into the run while its runs touch.
  while (rank_ > 0 && static_cast<uint64_t>(step_[rank_ - 1]) <= width_) {
    width_ += static_cast<uint64_t>(step_[rank_ - 1] * (count_[rank_ - 1] - 1));
    --rank_;
    step_[rank_] = count_[rank_] = 0;
  }
  for (int d = rank_ - 2; d >= 0; --d) {
    if (step_[d] != step_[d + 1] * count_[d + 1]) continue;
    count_[d] *= count_[d + 1];
    step_[d] = step_[d + 1];
    for (int k = d + 1; k + 1 < rank_; ++k) {
      count_[k] = count_[k + 1];
      step_[k] = step_[k + 1];
    }
    --rank_;
    step_[rank_] = count_[rank_] = 0;
  }
  end_ = begin_ + width_;
  for (int d = 0; d < rank_; ++d) end_ += static_cast<uint64_t>(step_[d] * (count_[d] - 1));
}

Box Box::moved(int64_t bytes) const {
  Box box = *this;
  box.begin_ += static_cast<uint64_t>(bytes);
  box.end_ += static_cast<uint64_t>(bytes);
  return box;
}

Bytes::Bytes(Run run) {
  if (run.begin < run.end) add(run);
}

void Bytes::stretch(npu_addr begin, npu_addr end) {
  const bool first = begin_ == end_;
  begin_ = first ? begin : std::min(begin_, begin);
  end_ = first ? end : std::max(end_, end);
}

void Bytes::add(const Box& box) {
  stretch(box.begin(), box.end());
  boxes_.push_back(box);
}

void Bytes::add(Run run) {
  stretch(run.begin, run.end);
  if (!runs_.empty() && runs_.back().end == run.begin) {
    runs_.back().end = run.end;
  } else {
    runs_.push_back(run);
  }
}

void Bytes::finish() {
  join(runs_);
}

bool Bytes::is_run() const {
  return boxes_.size() + runs_.size() == 1 && (boxes_.empty() || boxes_[0].is_run());
}

std::vector<Run> Bytes::sorted_runs() const {
  std::vector<Run> runs;
  each_run([&](const Run& run) {
    if (!runs.empty() && runs.back().end == run.begin) {
      runs.back().end = run.end;
    } else {
      runs.push_back(run);
    }
    return true;
  });
  join(runs);
  return runs;
}

Run Bytes::common(const Bytes& other) const {
  if (empty() || other.empty() || end_ <= other.begin_ || other.end_ <= begin_) return {};
  const std::vector<Run> left = sorted_runs(), right = other.sorted_runs();
  for (size_t i = 0, j = 0; i < left.size() && j < right.size();) {
    const Run both{std::max(left[i].begin, right[j].begin), std::min(left[i].end, right[j].end)};
    if (both.begin < both.end) return both;
    (left[i].end < right[j].end ? i : j) += 1;
  }
  return {};
}

bool Bytes::overlaps(const Bytes& other) const {
  if (empty() || other.empty() || end_ <= other.begin_ || other.end_ <= begin_) return false;
  if (is_run() && other.is_run()) return true;
  return common(other).size() > 0;
}

bool Bytes::covers(const Bytes& other) const {
  if (other.empty()) return true;
  if (is_run()) return begin_ <= other.begin_ && other.end_ <= end_;
  return begin_ == other.begin_ && end_ == other.end_ && boxes_ == other.boxes_ && runs_ == other.runs_;
}

void join(std::vector<Run>& runs) {
  const auto before = [](const Run& a, const Run& b) { return a.begin < b.begin; };
  if (!std::is_sorted(runs.begin(), runs.end(), before)) std::sort(runs.begin(), runs.end(), before);
  size_t kept = 0;
  for (size_t k = 1; k < runs.size(); ++k) {
    if (runs[k].begin <= runs[kept].end) {
      runs[kept].end = std::max(runs[kept].end, runs[k].end);
    } else {
      runs[++kept] = runs[k];
    }
  }
  if (!runs.empty()) runs.resize(kept + 1);
}

}  // namespace torch_npu::sanitizer
