// Products on packed register tiles (product/packed.h): which operand is packed when, and who computes which tile.
#include <algorithm>
#include <optional>

#include "drivers/cmodel/product/gemm.h"
#include "drivers/cmodel/product/matmul.h"
#include "drivers/cmodel/product/packed.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::matmul {
namespace {

using blas::Depth;
using blas::Matrix;
using blas::Micro;
using blas::Scratch;

constexpr int64_t kTileRows = 224, kTileCols = 256;  // with kBlockWords of both operands: in the second-level cache
// Of a product with an epilogue: what that reads and writes comes faster in long rows, best where one begins at the end
// of the last.
constexpr int64_t kLongTileRows = 112, kLongTileCols = 768;

Matrix transposed(const Matrix& m) {
  return {m.data, m.dtype, m.cols, m.rows, m.col, m.row};
}

// A left operand that is not packed but read where it lies, because only `n` columns would use it.
bool is_loose(const Micro& micro, const Matrix& left, int64_t n) {
  return blas::holds_words_of(micro, left.dtype) && left.col == 1 && left.cols % micro.depth == 0 &&
         n <= 4 * micro.cols;
}

// Register tiles are wide and their rows come one by one, so a product of few columns is better computed transposed.
bool better_transposed(const Problem& p, const Micro& micro) {
  if (p.choice.turned) return p.choice.turned == Choice::kYes;
  const Operand& out = p.job.operands[2];
  if (!p.job.program && out.stride[p.rank - 1] != 1 && out.stride[p.rank - 2] == 1) return true;
  const auto cost = [&](int64_t rows, int64_t cols) { return rows * blas::padded_cols(micro, cols); };
  const int64_t turned = cost(p.n, p.m), straight = cost(p.m, p.n);
  if (turned * 5 < straight * 4) return true;
  // Few rows against lines along k, such as a linear layer's weight: as the left operand it need not be packed.
  constexpr int64_t kFew = 64;
  return p.m <= kFew && p.m < p.n && turned <= straight && is_loose(micro, transposed(batch_at(p, 0).b), p.m);
}

// One product of a batch: left[m, k] * right[n, k], which are A and B or, where `flipped`, B and A. The smaller
// operand is packed once, for all; the larger one in pieces, by whoever needs one.
struct Product {
  const Problem& p;
  const Micro& micro;
  Depth depth;
  bool flipped;  // the result is computed transposed
  int64_t m, n;
  int64_t strip;         // rows in one
  bool rows_shared;      // the left operand is the one that is packed once
  bool loose;            // the left operand is not packed at all: too few columns would use it
  int64_t rows, cols;    // of a tile
  bool direct;           // tiles go straight to memory
  int64_t out_row;       // then: elements from row to row of a tile
  int64_t shared_lines;  // as they are stored

  Product(const Problem& p, const Micro& micro, int threads)
      : p(p), micro(micro), depth(micro, p.k), flipped(better_transposed(p, micro)) {
    m = flipped ? p.n : p.m;
    n = flipped ? p.m : p.n;
    strip = blas::even_rows(micro, m);
    rows_shared = m <= n;
    if (p.choice.left_once) rows_shared = p.choice.left_once == Choice::kYes;
    loose = is_loose(micro, left(batch_at(p, 0)), n);
    rows = std::min(m, kTileRows / strip * strip);
    cols = std::min(n, kTileCols);
    const Operand& out = p.job.operands[2];
    const int64_t along = out.stride[flipped ? p.rank - 2 : p.rank - 1];
    direct = !p.job.program && out.dtype == p.acc_dtype && (along == 1 || n == 1);
    out_row = direct ? out.stride[flipped ? p.rank - 1 : p.rank - 2] : 0;
    if (!direct && p.k <= 64) rows = std::min(rows, 2 * strip);  // little work per result: sums stay in the first cache
    if (p.job.program && !flipped) {
      rows = std::min(rows, std::max<int64_t>(1, kLongTileRows / strip) * strip);
      const int64_t pieces = (n + kLongTileCols - 1) / kLongTileCols, each = (n + pieces - 1) / pieces;
      cols = std::min(n, (each + micro.cols - 1) / micro.cols * micro.cols);
    }
    if (p.choice.rows) {
      rows = std::min(m, std::max<int64_t>(1, p.choice.rows / strip) * strip);
      cols = std::min<int64_t>(n, p.choice.cols);
    }
    // Enough tiles for the threads to share evenly.
    while (threads > 1 && !p.choice.rows && tiles() < 4 * threads && rows * cols * p.k > 2 * kTaskWork) {
      if (cols > micro.cols && (cols >= rows || rows <= strip)) {
        cols = (cols / 2 + micro.cols - 1) / micro.cols * micro.cols;
      } else if (rows > strip) {
        rows = (rows / 2 + strip - 1) / strip * strip;
      } else {
        break;
      }
    }
    shared_lines = rows_shared ? m : blas::padded_cols(micro, n);
  }

  Matrix left(const Batch& batch) const { return flipped ? transposed(batch.b) : batch.a; }
  Matrix right(const Batch& batch) const { return flipped ? batch.a : transposed(batch.b); }

  size_t shared_bytes() const {
    return loose && rows_shared ? 0 : sizeof(uint32_t) * shared_lines * (micro.words(p.k) + 1);
  }
  int64_t row_tiles() const { return (m + rows - 1) / rows; }
  int64_t col_tiles() const { return (n + cols - 1) / cols; }
  int64_t tiles() const { return row_tiles() * col_tiles(); }
  int64_t at_block(int64_t block) const { return block * blas::kBlockWords * shared_lines; }

  // Strips [first, last) of the shared operand.
  void pack_shared(const Batch& batch, int64_t first, int64_t last, uint32_t* to) const {
    const int64_t unit = rows_shared ? strip : micro.cols;
    const int64_t line = first * unit, lines = std::min(rows_shared ? m : n, last * unit) - line;
    for (int64_t b = 0; b < depth.count(); ++b) {
      uint32_t* at = to + at_block(b) + line * micro.words(depth.size(b));
      if (rows_shared) {
        blas::pack_rows(micro, left(batch), line, lines, b * depth.block, depth.size(b), strip, at);
      } else {
        blas::pack_cols(micro, right(batch), line, lines, b * depth.block, depth.size(b), at);
      }
    }
  }
  int64_t shared_strips() const {
    const int64_t unit = rows_shared ? strip : micro.cols;
    return ((rows_shared ? m : n) + unit - 1) / unit;
  }

  // Tiles [first, last), those that need the same piece of the larger operand one after the other.
  void run(const Batch& batch, const uint32_t* shared, int64_t first, int64_t last) const {
    const int64_t inner = rows_shared ? row_tiles() : col_tiles();
    const bool keep = std::min(last - first, inner) > 1;  // a piece serves several tiles: all its blocks are kept
    const int64_t own_lines = rows_shared ? blas::padded_cols(micro, cols) : rows;
    Scratch own_space(sizeof(uint32_t) * own_lines * (keep ? micro.words(p.k) + 1 : blas::kBlockWords));
    uint32_t* own = own_space.as<uint32_t>();
    std::optional<Scratch> acc_space;
    if (!direct) acc_space.emplace(sizeof(float) * rows * cols);
    int64_t packed = -1;  // the piece in `own`
    for (int64_t t = first; t < last; ++t) {
      const int64_t outer = t / inner;
      const int64_t m0 = (rows_shared ? t % inner : outer) * rows, n0 = (rows_shared ? outer : t % inner) * cols;
      const int64_t mb = std::min(rows, m - m0), nb = std::min(cols, n - n0);
      float* acc = direct ? reinterpret_cast<float*>(batch.out) + m0 * out_row + n0 : acc_space->as<float>();
      const int64_t ld = direct ? out_row : nb;
      for (int64_t b = 0; b < depth.count(); ++b) {
        const int64_t k = depth.size(b), words = micro.words(k);
        const int64_t size = npu::dtype_size(p.job.operands[flipped ? 1 : 0].dtype);
        uint32_t* piece = own + (keep ? b * blas::kBlockWords * own_lines : 0);
        const uint32_t* block = loose && rows_shared ? nullptr : shared + at_block(b) + (rows_shared ? m0 : n0) * words;
        if (packed != outer && rows_shared) {
          blas::pack_cols(micro, right(batch), n0, nb, b * depth.block, k, piece);
        } else if (packed != outer && !loose) {
          blas::pack_rows(micro, left(batch), m0, mb, b * depth.block, k, strip, piece);
        }
        const uint32_t* right_block = rows_shared ? piece : block;
        if (loose) {
          const Matrix a = left(batch);
          const char* from = a.data + (m0 * a.row + b * depth.block) * size;
          for (int64_t j = 0; j < nb; j += micro.cols) {
            for (int64_t i = 0; i < mb; i += strip) {
              micro.loose(words, from + i * a.row * size, a.row * size, right_block + j * words, acc + i * ld + j, ld,
                          std::min(strip, mb - i), std::min<int64_t>(micro.cols, nb - j), b > 0);
            }
          }
        } else {
          blas::multiply(micro, rows_shared ? block : piece, strip, right_block, mb, nb, k, acc, ld, b > 0);
        }
      }
      if (keep) packed = outer;
      if (!direct) finish_tile(batch, m0, mb, n0, nb, acc);
    }
  }

  void finish_block(const Batch& batch, int64_t m0, int64_t mb, int64_t n0, int64_t nb, const void* acc) const {
    if (p.acc_dtype == NPU_F32) {
      finish(p, batch, m0, mb, n0, nb, static_cast<const float*>(acc), nb);
    } else {
      finish(p, batch, m0, mb, n0, nb, static_cast<const uint32_t*>(acc), nb);
    }
  }

  void finish_tile(const Batch& batch, int64_t m0, int64_t mb, int64_t n0, int64_t nb, const float* acc) const {
    if (!flipped) return finish_block(batch, m0, mb, n0, nb, acc);
    const Operand& out = p.job.operands[2];
    const Micro& plain = blas::micro_f32();
    const int64_t row = out.stride[p.rank - 2];
    if (!p.job.program && out.dtype == p.acc_dtype && out.stride[p.rank - 1] == 1 && row >= mb) {
      return plain.deep(acc, nb, mb, nb, row, reinterpret_cast<uint32_t*>(batch.out) + n0 * row + m0);
    }
    Scratch turned_space(sizeof(float) * mb * nb);
    plain.deep(acc, nb, mb, nb, mb, turned_space.as<uint32_t>());
    finish_block(batch, n0, nb, m0, mb, turned_space.as<void>());
  }
};

}  // namespace

bool try_packed(const Problem& p) {
  const int a_dtype = p.job.operands[0].dtype, b_dtype = p.job.operands[1].dtype;
  const Micro* words = p.acc_dtype == NPU_F32   ? &blas::product_micro_for(a_dtype, b_dtype)
                       : p.acc_dtype == NPU_I32 ? blas::integer_micro_for(a_dtype, b_dtype)
                                                : nullptr;
  if (!words || p.k == 0) return false;
  if (words == &blas::base::micro_f32 && blas::have_openblas()) return false;  // it knows more processors than we do
  // Of a tiny product packing is the larger part; two to a word have to be converted anyway.
  if (p.m * p.n <= 512 && p.m * p.n * p.k <= (words->depth > 1 ? 512 : 4096)) return false;
  const Micro& micro = *words;
  const int64_t each = p.m * p.n * p.k;
  const int threads = each * p.batches <= kSerialWork ? 1 : pool_threads();
  const bool by_batch = threads == 1 || p.batches >= 4 * threads;
  const Product product(p, micro, by_batch ? 1 : threads);
  const bool once = same_in_all_batches(p, product.rows_shared == product.flipped ? 1 : 0);

  const auto pack = [&](const Batch& batch, uint32_t* to, bool together) {
    if (product.loose && product.rows_shared) return;
    if (together) {
      const int64_t strips = product.shared_strips();
      parallel_for(strips, std::max<int64_t>(1, (1 << 16) / (p.k * 16)),
                   [&](int64_t first, int64_t last) { product.pack_shared(batch, first, last, to); });
    } else {
      product.pack_shared(batch, 0, product.shared_strips(), to);
    }
  };
  if (!by_batch) {
    Scratch space(product.shared_bytes());
    uint32_t* shared = space.as<uint32_t>();
    for (int64_t i = 0; i < p.batches; ++i) {
      const Batch batch = batch_at(p, i);
      if (i == 0 || !once) pack(batch, shared, true);
      parallel_for(product.tiles(), 1, [&](int64_t first, int64_t last) { product.run(batch, shared, first, last); });
    }
    return true;
  }
  std::optional<Scratch> common;
  if (once) {
    common.emplace(product.shared_bytes());
    pack(batch_at(p, 0), common->as<uint32_t>(), threads > 1);
  }
  const auto run = [&](int64_t first, int64_t last) {
    std::optional<Scratch> own;
    if (!once) own.emplace(product.shared_bytes());
    uint32_t* shared = (once ? common : own)->as<uint32_t>();
    for (int64_t i = first; i < last; ++i) {
      const Batch batch = batch_at(p, i);
      if (!once) pack(batch, shared, false);
      product.run(batch, shared, 0, product.tiles());
    }
  };
  if (threads == 1) {
    run(0, p.batches);
  } else {
    parallel_for(p.batches, std::max<int64_t>(1, kTaskWork / each), run);
  }
  return true;
}

}  // namespace cmodel::matmul
