// Products with one row or column, or up to three: each by itself, with pieces of the matrix, read where it lies, that
// stay in a cache for all of them.
#include <algorithm>
#include <optional>

#include "drivers/cmodel/product/kernels/kernels.h"
#include "drivers/cmodel/product/matmul.h"
#include "drivers/cmodel/product/tuning.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::product {
namespace {

template <class T>
const Gemv<T>* gemv_for(int) {
  return nullptr;
}
template <>
const Gemv<float>* gemv_for<float>(int dtype) {
  const KernelSet& set = kernel_set();
  return dtype == NPU_F32    ? &set.gemv_f32
         : dtype == NPU_BF16 ? &set.gemv_bf16
         : dtype == NPU_F16  ? &set.gemv_f16
         : dtype == NPU_I8   ? &set.gemv_i8
                             : nullptr;
}
template <>
const Gemv<uint32_t>* gemv_for<uint32_t>(int dtype) {
  return dtype == NPU_I8 ? &kernel_set().gemv_i8_exact : nullptr;
}
template <>
const Gemv<double>* gemv_for<double>(int dtype) {
  return dtype == NPU_F64 ? &kernel_set().gemv_f64 : nullptr;
}

// The smaller operand's rows or columns are vectors; the larger operand is a matrix whose rows each meet one.
bool by_rows(const Problem& p) {
  return p.m <= p.n;
}
int64_t vectors_of(const Problem& p) {
  return std::min(p.m, p.n);
}
Matrix matrix_of(const Problem& p, const Batch& batch) {
  return by_rows(p) ? batch.b.transposed() : batch.a;
}
// Vectors as rows.
Matrix lines_of(const Problem& p, const Batch& batch) {
  return by_rows(p) ? batch.a : batch.b.transposed();
}

const char* refuses(const Problem& p) {
  const int64_t count = vectors_of(p);
  if (p.choice.way == Choice::kAny && count > 1) {
    // Of two or three rows packing the matrix would be the larger part of the work.
    if (count > kMostVectors) return "the result has more than three rows and columns";
    const Operand* operands = p.job.operands;
    if (p.acc_dtype != NPU_F32 || operands[0].dtype != NPU_F32 || operands[1].dtype != NPU_F32) {
      return "two or three lines, and not all in f32";
    }
    if (std::max(p.m, p.n) * p.k < kVectorElements) return "two or three lines, and a small matrix";
  } else if (p.choice.way != Choice::kAny && p.choice.way != Choice::kVectors) {
    return "the command chose another way";
  }
  const Matrix matrix = matrix_of(p, batch_at(p, 0));
  if (matrix.col != 1 && matrix.row != 1) return "neither rows nor columns of the matrix are dense";
  const bool readable = with_accumulator(p.acc_dtype, [&]<class T>(T) { return gemv_for<T>(matrix.dtype) != nullptr; });
  return readable ? nullptr : "no kernel reads a matrix of this type in place";
}

template <class T>
class Vectors {
 public:
  explicit Vectors(const Problem& p)
      : p_(p),
        matrix_(matrix_of(p, batch_at(p, 0))),
        size_(npu::dtype_size(matrix_.dtype)),
        kernel_(*gemv_for<T>(matrix_.dtype)),
        direct_(p.stores_sums() && (by_rows(p) ? p.out_col() : p.out_row()) == 1) {}

  void run() const {
    const int64_t each = std::max<int64_t>(1, matrix_.rows * p_.k * vectors_of(p_));
    if (p_.batches == 1) {
      const Batch batch = batch_at(p_, 0);
      if (each <= kSerialWork) return run_rows(batch, 0, matrix_.rows);
      constexpr int64_t kUnit = 64;  // rows: whole cache lines of the result, whole vectors of a sweep
      const int64_t units = (matrix_.rows + kUnit - 1) / kUnit;
      return parallel_for(
          units, grain_for(kUnit * p_.k * vectors_of(p_), kSerialWork),
          [&](int64_t begin, int64_t end) { run_rows(batch, begin * kUnit, std::min(matrix_.rows, end * kUnit)); });
    }
    const auto batches = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) run_rows(batch_at(p_, i), 0, matrix_.rows);
    };
    if (p_.batches * each <= kSerialWork) return batches(0, p_.batches);
    parallel_for(p_.batches, grain_for(each, kSerialWork), batches);
  }

 private:
  // Rows [begin, end) of the matrix with every vector.
  void run_rows(const Batch& batch, int64_t begin, int64_t end) const {
    const int64_t count = vectors_of(p_);
    const Matrix lines = lines_of(p_, batch);
    const int64_t line_size = lines.row * npu::dtype_size(lines.dtype);
    std::optional<Scratch> space;
    const bool ready = holds<T>(lines.dtype) && lines.col == 1;
    if (!ready) space.emplace(sizeof(T) * p_.k * count);
    for (int64_t i = 0; i < count && !ready; ++i) {
      load_line<T>(lines.dtype, lines.data + i * line_size, lines.col, p_.k, space->as<T>() + i * p_.k);
    }
    const int64_t some = std::max<int64_t>(64, kVectorPiece / std::max<int64_t>(1, p_.k * size_) / 64 * 64);
    const int64_t step = count == 1 ? std::max<int64_t>(1, end - begin) : some;
    for (int64_t row = begin; row < end; row += step) {
      for (int64_t i = 0; i < count; ++i) {
        const T* x = ready ? reinterpret_cast<const T*>(lines.data + i * line_size) : space->as<T>() + i * p_.k;
        multiply(batch, i, x, row, std::min(step, end - row));
      }
    }
  }

  void multiply(const Batch& batch, int64_t line, const T* x, int64_t row, int64_t rows) const {
    std::optional<Scratch> space;
    T* y = direct_ ? reinterpret_cast<T*>(batch.out) + line * (by_rows(p_) ? p_.out_row() : p_.out_col()) + row
                   : space.emplace(sizeof(T) * rows).template as<T>();
    const bool by_dot = matrix_.col == 1;
    const char* from = matrix_of(p_, batch).data + row * matrix_.row * size_;
    (by_dot ? kernel_.dot : kernel_.sweep)(rows, p_.k, from, by_dot ? matrix_.row : matrix_.col, x, y);
    if (direct_) return;
    const Block block{line, 1, row, rows};
    by_rows(p_) ? finish(p_, batch, block, y, rows) : finish(p_, batch, block.transposed(), y, 1);
  }

  const Problem& p_;
  const Matrix matrix_;  // of the first batch
  const int64_t size_;   // bytes of its elements
  const Gemv<T>& kernel_;
  const bool direct_;
};

void run(const Problem& p) {
  with_accumulator(p.acc_dtype, [&]<class T>(T) { Vectors<T>(p).run(); });
}

}  // namespace

constinit const Way<const Problem> vectors = {"vectors", refuses, always<run, const Problem>};

}  // namespace cmodel::product
