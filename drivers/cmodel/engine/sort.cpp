// SORT: a radix sort (long rows) or merge sort (short ones) of words of key and position. Always stable, which is one
// of the orders an unstable sort may give.
#include <type_traits>

#include "drivers/cmodel/engine/sort_order.h"
#include "drivers/cmodel/engine/tuning.h"
#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {
namespace {

// One row of an operand; the step is in elements.
struct Row {
  char* ptr;
  int64_t step;
  int dtype;
};

template <class Word>
class Sorter {
 public:
  explicit Sorter(const Job& job)
      : count_(job.command.u.sort.count),
        n_(job.command.size[job.command.rank - 1]),
        counted_(job.operands[1].immediate),
        bytes_(npu::dtype_size(job.operands[0].dtype)) {
    if (job.command.u.sort.descending) flip_ = ~uint64_t{0} >> (64 - 8 * bytes_);
  }

  // keys, payload -> sorted keys, their payload. Results may lie where keys or payload were read.
  void sort(const Row (&row)[4]) {
    const char* keys = row[0].ptr;
    const int64_t step = row[0].step * bytes_;
    if (count_ < n_ / 8) {
      using Key = std::conditional_t<sizeof(Word) == 8, uint32_t, uint64_t>;
      select<Key>(words_, keys, step, row[0].dtype, flip_, n_, count_);
    } else {
      keys_.resize(static_cast<size_t>(n_));
      words_.resize(static_cast<size_t>(n_));
      keys_of(keys_.data(), keys, step, row[0].dtype, flip_, n_);
      for (size_t i = 0; i < words_.size(); ++i) words_[i] = word_of<Word>(keys_[i], static_cast<int64_t>(i));
      sort_words(words_, spare_, bytes_, count_);
    }
    at_.resize(static_cast<size_t>(count_));
    for (size_t i = 0; i < at_.size(); ++i) at_[i] = position_of(words_[i]);
    pick(picked_, row[0]);
    if (counted_) {
      write(row[3], reinterpret_cast<const char*>(at_.data()), NPU_I64);
    } else {
      pick(payload_, row[1]);
      write(row[3], payload_.data(), row[1].dtype);
    }
    write(row[2], picked_.data(), row[0].dtype);
  }

 private:
  void pick(std::vector<char>& to, const Row& from) {
    to.resize(static_cast<size_t>(count_ * 8));
    const int64_t* at = at_.data();
    if (from.step != 1) {
      moved_.resize(at_.size());
      for (size_t i = 0; i < at_.size(); ++i) moved_[i] = at_[i] * from.step;
      at = moved_.data();
    }
    kernels().pick[log_size_of(from.dtype)](to.data(), from.ptr, at, nullptr, count_);
  }

  void write(const Row& to, const char* values, int dtype) {
    const Convert convert = kernels().convert[dtype][to.dtype];
    if (to.step == 1) return convert(to.ptr, values, count_);
    converted_.resize(static_cast<size_t>(count_ * 8));
    convert(converted_.data(), values, count_);
    kernels().scatter[log_size_of(to.dtype)](to.ptr, to.step, converted_.data(), count_);
  }

  const int64_t count_, n_;
  const bool counted_;
  const int bytes_;
  uint64_t flip_ = 0;
  std::vector<uint64_t> keys_;
  std::vector<Word> words_, spare_;
  std::vector<int64_t> at_, moved_;
  std::vector<char> picked_, payload_, converted_;
};

template <class Word>
void sort_rows(const Job& job, int64_t begin, int64_t end) {
  Sorter<Word> sorter(job);
  const int last = job.command.rank - 1;
  for (int64_t index = begin; index < end; ++index) {
    int64_t offset[4] = {}, rest = index;
    for (int d = last - 1; d >= 0; --d) {
      const int64_t coordinate = rest % job.command.size[d];
      rest /= job.command.size[d];
      for (int i = 0; i < 4; ++i) offset[i] += coordinate * job.operands[i].stride[d];
    }
    Row row[4];
    for (int i = 0; i < 4; ++i) {
      const Operand& o = job.operands[i];
      row[i] = {o.ptr + offset[i] * npu::dtype_size(o.dtype), o.stride[last], o.dtype};
    }
    sorter.sort(row);
  }
}

}  // namespace

bool run_sort(const Job& job, Failure&) {
  const npu_command& command = job.command;
  const int64_t n = command.size[command.rank - 1];
  int64_t rows = 1;
  for (int d = 0; d < command.rank - 1; ++d) rows *= command.size[d];
  if (rows == 0 || n == 0 || command.u.sort.count == 0) return true;
  const bool narrow = npu::dtype_size(job.operands[0].dtype) <= 4 && n <= UINT32_MAX;
  const auto run = narrow ? sort_rows<uint64_t> : sort_rows<Wide>;
  parallel_for(rows, grain_for(n, kChunkKeys), [&](int64_t begin, int64_t end) { run(job, begin, end); });
  return true;
}

}  // namespace cmodel
