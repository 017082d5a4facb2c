// Products of any types by gemm, on dense operands: those that are not are copied first. The result is cut into tiles
// for the pool, each of which is stored, or handed to the epilogue, while it is still in the cache.
#include <algorithm>
#include <optional>

#include "drivers/cmodel/product/gemm.h"
#include "drivers/cmodel/product/matmul.h"
#include "drivers/cmodel/product/tuning.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::product {
namespace {

template <class T>
void multiply(const Problem& p, const Dense<T>& a, const Dense<T>& b, const Block& block, T* to, int64_t ld) {
  const T* from_a = a.data + (a.transposed ? block.row : block.row * a.ld);
  const T* from_b = b.data + (b.transposed ? block.col * b.ld : block.col);
  gemm<T>(a.transposed, b.transposed, block.rows, block.cols, p.k, from_a, a.ld, from_b, b.ld, false, to, ld);
}

template <class T>
Dense<T> transposed(const Dense<T>& dense) {
  return {dense.data, dense.ld, !dense.transposed};
}

template <class T>
void compute(const Problem& p, const Batch& batch, const Dense<T>& a, const Dense<T>& b, const Block& block) {
  if (!p.job.program && holds<T>(p.out().dtype)) {
    const int64_t row = p.out_row(), col = p.out_col();
    T* to = reinterpret_cast<T*>(batch.out) + block.row * row + block.col * col;
    if ((col == 1 || p.n == 1) && (row >= p.n || p.m == 1)) {
      return multiply(p, a, b, block, to, p.m == 1 ? p.n : row);
    }
    if ((row == 1 || p.m == 1) && (col >= p.m || p.n == 1)) {
      return multiply(p, transposed(b), transposed(a), block.transposed(), to, p.n == 1 ? p.m : col);
    }
  }
  constexpr int64_t kStack = 1024;
  T few[kStack];
  std::optional<Scratch> many;
  const int64_t size = block.rows * block.cols;
  T* sums = size <= kStack ? few : many.emplace(sizeof(T) * size).template as<T>();
  multiply(p, a, b, block, sums, block.cols);
  finish(p, batch, block, sums, block.cols);
}

struct Tiling {
  int64_t rows, cols, m_count, n_count;
  Block at(const Problem& p, int64_t i) const {
    const int64_t m = i % m_count, n = i / m_count, row = m * rows, col = n * cols;
    return {row, m + 1 == m_count ? p.m - row : rows, col, n + 1 == n_count ? p.n - col : cols};
  }
};

Tiling tiling_of(const Problem& p, int threads) {
  const int64_t work = p.m * p.n * std::max<int64_t>(1, p.k);
  const bool direct = p.stores_sums() && (p.out_col() == 1 || p.out_row() == 1);
  const int64_t limit = direct ? INT64_MAX : kTileElements;
  int64_t mt = 1, nt = 1;
  const auto enough = [&] {
    const int64_t tiles = mt * nt;
    if ((p.m / mt) * (p.n / nt) > limit) return false;
    return threads == 1 || p.batches * tiles >= kTasksPerThread * threads || work / tiles < 2 * kTaskWork;
  };
  while (!enough()) {
    const int64_t tall = p.m / mt, wide = p.n / nt;
    if (tall < kLeastSide && wide < kLeastSide) break;
    (tall > wide ? mt : nt) *= 2;
  }
  const auto rounded = [](int64_t size, int64_t count) {
    const int64_t part = (size + count - 1) / count;
    return count == 1 ? size : std::min(size, (part + kGranule - 1) / kGranule * kGranule);
  };
  // A rest of a few rows or columns goes to its neighbour: libraries have kernels of another order of sums for those,
  // and how many threads there are would show in the result.
  const auto whole = [](int64_t size, int64_t part) { return std::max<int64_t>(1, (size - kGranule + part) / part); };
  const int64_t rows = rounded(p.m, mt), cols = rounded(p.n, nt);
  return {rows, cols, whole(p.m, rows), whole(p.n, cols)};
}

// An operand as gemm takes it, copied if it must be: once if every batch shares it.
template <class T>
class Ready {
 public:
  Ready(const Matrix& first, bool shared) : shared_(shared) {
    if (shared) dense_ = of(first, space_);
  }
  // `space` lives as long as what is returned.
  Dense<T> at(const Matrix& matrix, std::optional<Scratch>& space) const {
    return shared_ ? dense_ : of(matrix, space);
  }

 private:
  static Dense<T> of(const Matrix& matrix, std::optional<Scratch>& space) {
    Dense<T> dense{};
    if (as_dense(matrix, dense)) return dense;
    space.reset();
    space.emplace(sizeof(T) * (matrix.rows * matrix.cols));
    return pack_dense(matrix, space->as<T>());
  }

  bool shared_;
  std::optional<Scratch> space_;
  Dense<T> dense_{};
};

template <class T>
void run_as(const Problem& p) {
  const int64_t each = p.m * p.n * std::max<int64_t>(1, p.k);
  const int threads = p.batches * each <= kSerialWork ? 1 : pool_threads();
  const Tiling tiling = tiling_of(p, threads);
  const int64_t tiles = tiling.m_count * tiling.n_count;
  const Batch first_batch = batch_at(p, 0);
  const Ready<T> a(first_batch.a, same_in_all_batches(p, 0)), b(first_batch.b, same_in_all_batches(p, 1));
  std::optional<Scratch> a_space, b_space;

  const auto whole_batches = [&](int64_t begin, int64_t end) {
    std::optional<Scratch> a_own, b_own;
    for (int64_t i = begin; i < end; ++i) {
      const Batch batch = p.batches == 1 ? first_batch : batch_at(p, i);
      const Dense<T> left = a.at(batch.a, a_own), right = b.at(batch.b, b_own);
      for (int64_t j = 0; j < tiles; ++j) compute(p, batch, left, right, tiling.at(p, j));
    }
  };
  if (threads == 1) return whole_batches(0, p.batches);
  if (tiles == 1 || p.batches >= kTasksPerThread * threads) {
    return parallel_for(p.batches, grain_for(each, kTaskWork), whole_batches);
  }
  for (int64_t i = 0; i < p.batches; ++i) {
    const Batch batch = batch_at(p, i);
    const Dense<T> left = a.at(batch.a, a_space), right = b.at(batch.b, b_space);
    parallel_for(tiles, 1, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) compute(p, batch, left, right, tiling.at(p, j));
    });
  }
}

void run(const Problem& p) {
  with_accumulator(p.acc_dtype, [&]<class T>(T) { run_as<T>(p); });
}

}  // namespace

constinit const Way<const Problem> dense = {"dense", nullptr, always<run, const Problem>};

}  // namespace cmodel::product
