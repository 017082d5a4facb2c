// MATMUL: splits the index space into tiles for the pool, brings operands into a form that gemm takes, and stores or
// hands each tile to the epilogue while it is still in the cache.
#include <algorithm>
#include <climits>
#include <new>
#include <optional>

#include "drivers/cmodel/product/gemm.h"
#include "drivers/cmodel/product/kernels.h"
#include "drivers/cmodel/product/matmul.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::matmul {

using blas::Dense;
using blas::Matrix;
using blas::Scratch;

constexpr int64_t kTileElements = 1 << 17;  // of a tile that passes through scratch: stays in the second-level cache

Batch batch_at(const Problem& p, int64_t index) {
  Batch batch{};
  const Operand* ops = p.job.operands;
  const bool plain = !p.job.program;
  int64_t offset[3] = {};
  for (int d = p.batch_rank - 1; d >= 0; --d) {
    const int64_t size = p.job.command.size[d];
    const int64_t i = index % size;
    index /= size;
    batch.outer[d] = i;
    for (int o = 0; o < (plain ? 3 : 2); ++o) offset[o] += i * ops[o].stride[d];
  }
  const int r = p.batch_rank;
  batch.a = {ops[0].ptr + offset[0] * npu::dtype_size(ops[0].dtype),
             ops[0].dtype,
             p.m,
             p.k,
             ops[0].stride[r],
             ops[0].stride[r + 1]};
  batch.b = {ops[1].ptr + offset[1] * npu::dtype_size(ops[1].dtype),
             ops[1].dtype,
             p.k,
             p.n,
             ops[1].stride[r],
             ops[1].stride[r + 1]};
  batch.out = plain ? ops[2].ptr + offset[2] * npu::dtype_size(ops[2].dtype) : nullptr;
  return batch;
}

bool same_in_all_batches(const Problem& p, int operand) {
  for (int d = 0; d < p.batch_rank; ++d) {
    if (p.job.operands[operand].stride[d] != 0 && p.job.command.size[d] > 1) return false;
  }
  return true;
}

namespace {

template <class T>
const T* at(const Dense<T>& d, int64_t row, int64_t col) {
  return d.transposed ? d.data + col * d.ld + row : d.data + row * d.ld + col;
}

}  // namespace

template <class T>
void finish(const Problem& p, const Batch& batch, int64_t m0, int64_t mb, int64_t n0, int64_t nb, const T* acc,
            int64_t ld) {
  if (p.job.program) {
    run_epilogue(p.job, batch.outer, m0, mb, n0, nb, acc, ld, p.acc_dtype);
    return;
  }
  const Operand& out = p.job.operands[2];
  const int64_t row = out.stride[p.rank - 2], col = out.stride[p.rank - 1];
  blas::store_block(acc, ld, mb, nb, batch.out + (m0 * row + n0 * col) * npu::dtype_size(out.dtype), out.dtype, row,
                    col);
}

template void finish<float>(const Problem&, const Batch&, int64_t, int64_t, int64_t, int64_t, const float*, int64_t);
template void finish<uint32_t>(const Problem&, const Batch&, int64_t, int64_t, int64_t, int64_t, const uint32_t*,
                               int64_t);

namespace {

template <class T>
void tile(const Problem& p, const Batch& batch, const Dense<T>& a, const Dense<T>& b, int64_t m0, int64_t mb,
          int64_t n0, int64_t nb) {
  const T* a_data = at(a, m0, 0);
  const T* b_data = at(b, 0, n0);
  if (!p.job.program && blas::holds<T>(p.job.operands[2].dtype)) {
    const Operand& out = p.job.operands[2];
    const int64_t row = out.stride[p.rank - 2], col = out.stride[p.rank - 1];
    T* c = reinterpret_cast<T*>(batch.out) + m0 * row + n0 * col;
    if ((col == 1 || p.n == 1) && (row >= p.n || p.m == 1)) {
      return blas::gemm<T>(a.transposed, b.transposed, mb, nb, p.k, a_data, a.ld, b_data, b.ld, false, c,
                           p.m == 1 ? p.n : row);
    }
    if ((row == 1 || p.m == 1) && (col >= p.m || p.n == 1)) {  // the transposed product
      return blas::gemm<T>(!b.transposed, !a.transposed, nb, mb, p.k, b_data, b.ld, a_data, a.ld, false, c,
                           p.n == 1 ? p.m : col);
    }
  }
  constexpr int64_t kStack = 1024;
  if (mb * nb <= kStack) {
    T acc[kStack];
    blas::gemm<T>(a.transposed, b.transposed, mb, nb, p.k, a_data, a.ld, b_data, b.ld, false, acc, nb);
    return finish(p, batch, m0, mb, n0, nb, acc, nb);
  }
  Scratch space(sizeof(T) * mb * nb);
  T* acc = space.as<T>();
  blas::gemm<T>(a.transposed, b.transposed, mb, nb, p.k, a_data, a.ld, b_data, b.ld, false, acc, nb);
  finish(p, batch, m0, mb, n0, nb, acc, nb);
}

bool writes_directly(const Problem& p) {
  if (p.job.program) return false;
  const Operand& out = p.job.operands[2];
  return out.dtype == p.acc_dtype && (out.stride[p.rank - 1] == 1 || out.stride[p.rank - 2] == 1);
}

struct Tiling {
  int64_t rows, cols, m_count, n_count;
};

Tiling choose_tiling(const Problem& p, int threads) {
  const int64_t work = p.m * p.n * std::max<int64_t>(1, p.k);
  const int64_t limit = writes_directly(p) ? INT64_MAX : kTileElements;
  int64_t mt = 1, nt = 1;
  const auto enough = [&] {
    const int64_t tiles = mt * nt;
    if ((p.m / mt) * (p.n / nt) > limit) return false;
    return threads == 1 || p.batches * tiles >= 4 * threads || work / tiles < 2 * kTaskWork;
  };
  while (!enough()) {
    const int64_t tall = p.m / mt, wide = p.n / nt;
    if (tall < 32 && wide < 32) break;
    (tall > wide ? mt : nt) *= 2;
  }
  const auto rounded = [](int64_t size, int64_t count) {
    const int64_t part = (size + count - 1) / count;
    return count == 1 ? size : std::min(size, (part + 15) / 16 * 16);
  };
  Tiling t{rounded(p.m, mt), rounded(p.n, nt), 0, 0};
  t.m_count = (p.m + t.rows - 1) / t.rows;
  t.n_count = (p.n + t.cols - 1) / t.cols;
  return t;
}

template <class T>
void run_tile(const Problem& p, const Tiling& t, const Batch& batch, const Dense<T>& a, const Dense<T>& b, int64_t i) {
  const int64_t m0 = i % t.m_count * t.rows, n0 = i / t.m_count * t.cols;
  tile(p, batch, a, b, m0, std::min(t.rows, p.m - m0), n0, std::min(t.cols, p.n - n0));
}

// Either operand as gemm takes it, copied into `space` if it must be.
template <class T>
Dense<T> ready(const Matrix& matrix, std::optional<Scratch>& space) {
  Dense<T> dense{};
  if (blas::as_dense(matrix, dense)) return dense;
  space.emplace(sizeof(T) * (matrix.rows * matrix.cols));
  return blas::pack_dense(matrix, space->as<T>());
}

template <class T>
void product(const Problem& p) {
  const int64_t work = p.batches * p.m * p.n * std::max<int64_t>(1, p.k);
  const int threads = work <= kSerialWork ? 1 : pool_threads();
  const Tiling t = choose_tiling(p, threads);
  const int64_t tiles = t.m_count * t.n_count;
  std::optional<Scratch> a_space, b_space;
  // An operand that every batch shares is converted once.
  Dense<T> a_shared{}, b_shared{};
  const bool share_a = same_in_all_batches(p, 0), share_b = same_in_all_batches(p, 1);
  const Batch first = batch_at(p, 0);
  if (share_a) a_shared = ready<T>(first.a, a_space);
  if (share_b) b_shared = ready<T>(first.b, b_space);

  const auto whole_batches = [&](int64_t begin, int64_t end) {
    std::optional<Scratch> a_own, b_own;
    for (int64_t i = begin; i < end; ++i) {
      const Batch batch = p.batches == 1 ? first : batch_at(p, i);
      a_own.reset();
      b_own.reset();
      const Dense<T> a = share_a ? a_shared : ready<T>(batch.a, a_own);
      const Dense<T> b = share_b ? b_shared : ready<T>(batch.b, b_own);
      for (int64_t j = 0; j < tiles; ++j) run_tile(p, t, batch, a, b, j);
    }
  };
  if (threads == 1) return whole_batches(0, p.batches);
  if (tiles == 1 || p.batches >= 4 * threads) {
    const int64_t each = std::max<int64_t>(1, p.m * p.n * std::max<int64_t>(1, p.k));
    return parallel_for(p.batches, std::max<int64_t>(1, kTaskWork / each), whole_batches);
  }
  for (int64_t i = 0; i < p.batches; ++i) {
    const Batch batch = batch_at(p, i);
    const Dense<T> a = share_a ? a_shared : ready<T>(batch.a, a_space);
    const Dense<T> b = share_b ? b_shared : ready<T>(batch.b, b_space);
    parallel_for(tiles, 1, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) run_tile(p, t, batch, a, b, j);
    });
  }
}

// -- one row or one column --

template <class T>
const blas::Gemv<T>* gemv_for(int dtype);
template <>
const blas::Gemv<float>* gemv_for<float>(int dtype) {
  const blas::KernelSet& set = blas::kernel_set();
  return dtype == NPU_F32    ? &set.gemv_f32
         : dtype == NPU_BF16 ? &set.gemv_bf16
         : dtype == NPU_F16  ? &set.gemv_f16
         : dtype == NPU_I8   ? &set.gemv_i8
                             : nullptr;
}
template <>
const blas::Gemv<uint32_t>* gemv_for<uint32_t>(int dtype) {
  return dtype == NPU_I8 ? &blas::kernel_set().gemv_i8_exact : nullptr;
}
template <>
const blas::Gemv<double>* gemv_for<double>(int dtype) {
  return dtype == NPU_F64 ? &blas::kernel_set().gemv_f64 : nullptr;
}

// The larger operand as rows that each meet the vector `x`.
struct VectorProduct {
  Matrix matrix;
  const char* x;
  int x_dtype;
  int64_t x_stride;
};

// Vector number `line` of the smaller operand.
VectorProduct vector_product_of(const Problem& p, const Batch& batch, int64_t line) {
  const Matrix &a = batch.a, &b = batch.b;
  if (p.m <= p.n) {
    const char* x = a.data + line * a.row * npu::dtype_size(a.dtype);
    return {{b.data, b.dtype, b.cols, b.rows, b.col, b.row}, x, a.dtype, a.col};
  }
  return {a, b.data + line * b.col * npu::dtype_size(b.dtype), b.dtype, b.row};
}

// Of two or three rows packing the matrix would be the larger part of the work.
bool better_by_vectors(const Problem& p) {
  const int64_t lines = std::min(p.m, p.n);
  if (lines == 1) return true;
  constexpr int64_t kWorth = 1 << 14;  // elements of the matrix
  return lines <= 3 && p.acc_dtype == NPU_F32 && p.job.operands[0].dtype == NPU_F32 &&
         p.job.operands[1].dtype == NPU_F32 && std::max(p.m, p.n) * p.k >= kWorth;
}

// Each row (or column, if these are fewer) by itself, with pieces of the matrix that stay in a cache for all of them.
// False: the matrix has a type or strides that the kernels do not read; nothing was done.
template <class T>
bool try_vector_product(const Problem& p) {
  const bool by_rows = p.m <= p.n;
  const int64_t lines = by_rows ? p.m : p.n;
  const VectorProduct shape = vector_product_of(p, batch_at(p, 0), 0);
  const blas::Gemv<T>* kernel = gemv_for<T>(shape.matrix.dtype);
  const bool by_dot = shape.matrix.col == 1, by_sweep = shape.matrix.row == 1;
  if (!kernel || (!by_dot && !by_sweep)) return false;
  const int64_t rows = shape.matrix.rows, size = npu::dtype_size(shape.matrix.dtype);
  const int out_dim = by_rows ? p.rank - 1 : p.rank - 2, line_dim = by_rows ? p.rank - 2 : p.rank - 1;
  const bool direct = writes_directly(p) && p.job.operands[2].stride[out_dim] == 1;

  const auto piece = [&](const Batch& batch, int64_t line, const T* x, int64_t begin, int64_t count) {
    const Matrix matrix = vector_product_of(p, batch, line).matrix;
    std::optional<Scratch> y_space;
    T* y = nullptr;
    if (direct) {
      y = reinterpret_cast<T*>(batch.out) + line * p.job.operands[2].stride[line_dim] + begin;
    } else {
      y = y_space.emplace(sizeof(T) * count).template as<T>();
    }
    const char* from = matrix.data + begin * matrix.row * size;
    (by_dot ? kernel->dot : kernel->sweep)(count, p.k, from, by_dot ? matrix.row : matrix.col, x, y);
    if (direct) return;
    if (by_rows) {
      finish(p, batch, line, 1, begin, count, y, count);
    } else {
      finish(p, batch, begin, count, line, 1, y, 1);
    }
  };
  const auto part = [&](const Batch& batch, int64_t begin, int64_t end) {
    const bool ready = blas::holds<T>(shape.x_dtype) && shape.x_stride == 1;
    std::optional<Scratch> x_space;
    if (!ready) {
      x_space.emplace(sizeof(T) * p.k * lines);
      for (int64_t line = 0; line < lines; ++line) {
        const VectorProduct v = vector_product_of(p, batch, line);
        blas::load_line<T>(v.x_dtype, v.x, v.x_stride, p.k, x_space->as<T>() + line * p.k);
      }
    }
    constexpr int64_t kPiece = 256 << 10;  // bytes of the matrix
    const int64_t some = std::max<int64_t>(64, kPiece / std::max<int64_t>(1, p.k * size) / 64 * 64);
    const int64_t step = lines == 1 ? std::max<int64_t>(1, end - begin) : some;
    for (int64_t i = begin; i < end; i += step) {
      for (int64_t line = 0; line < lines; ++line) {
        const T* x =
            ready ? reinterpret_cast<const T*>(vector_product_of(p, batch, line).x) : x_space->as<T>() + line * p.k;
        piece(batch, line, x, i, std::min(step, end - i));
      }
    }
  };

  const int64_t each = std::max<int64_t>(1, rows * p.k * lines);
  if (p.batches == 1) {
    const Batch batch = batch_at(p, 0);
    if (each <= kSerialWork) {
      part(batch, 0, rows);
      return true;
    }
    constexpr int64_t kUnit = 64;  // rows: whole cache lines of the result, whole vectors of a sweep
    const int64_t units = (rows + kUnit - 1) / kUnit;
    parallel_for(units, std::max<int64_t>(1, kSerialWork / (kUnit * p.k * lines)),
                 [&](int64_t begin, int64_t end) { part(batch, begin * kUnit, std::min(rows, end * kUnit)); });
    return true;
  }
  const auto batches = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) part(batch_at(p, i), 0, rows);
  };
  if (p.batches * each <= kSerialWork) {
    batches(0, p.batches);
  } else {
    parallel_for(p.batches, std::max<int64_t>(1, kSerialWork / each), batches);
  }
  return true;
}

}  // namespace
}  // namespace cmodel::matmul

namespace cmodel {

bool run_matmul(const Job& job, Failure& failure) {
  const int rank = job.command.rank;
  matmul::Problem p{job,
                    rank,
                    rank - 2,
                    1,
                    job.command.size[rank - 2],
                    job.command.size[rank - 1],
                    job.command.u.matmul.k,
                    job.command.u.matmul.acc_dtype,
                    choice_of(job.command)};
  for (int d = 0; d < p.batch_rank; ++d) p.batches *= job.command.size[d];
  if (p.batches * p.m * p.n == 0) return true;
  const bool vectors =
      p.choice.kernel == Choice::kAny ? matmul::better_by_vectors(p) : p.choice.kernel == Choice::kVectors;
  try {
    switch (p.acc_dtype) {
      case NPU_F32:
        if (vectors && matmul::try_vector_product<float>(p)) return true;
        if (p.choice.kernel == Choice::kBlas || !matmul::try_packed(p)) matmul::product<float>(p);
        return true;
      case NPU_F64:
        if (!vectors || !matmul::try_vector_product<double>(p)) matmul::product<double>(p);
        return true;
      case NPU_I32:
        if (vectors && matmul::try_vector_product<uint32_t>(p)) return true;
        if (!matmul::try_packed(p)) matmul::product<uint32_t>(p);
        return true;
      case NPU_I64:
        matmul::product<uint64_t>(p);
        return true;
      default:
        failure = {NPU_ERROR_INVALID, "MATMUL: expected an accumulator of f32, f64, i32 or i64, got " +
                                          std::string(npu::dtype_name(p.acc_dtype))};
        return false;
    }
  } catch (const std::bad_alloc&) {
    failure = {NPU_ERROR_MEMORY, "MATMUL: no host memory left for a converted copy of an operand"};
    return false;
  }
}

}  // namespace cmodel
