// Products on packed register tiles (product/packed.h): which operand is packed when, and who computes which tile.
#include <algorithm>
#include <optional>

#include "drivers/cmodel/product/gemm.h"
#include "drivers/cmodel/product/matmul.h"
#include "drivers/cmodel/product/packed.h"
#include "drivers/cmodel/product/tuning.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::product {
namespace {

// The words for this product; nullptr: there is no better way than product/gemm.h.
const Micro* micro_of(const Problem& p) {
  const int a_dtype = p.job.operands[0].dtype, b_dtype = p.job.operands[1].dtype;
  return p.acc_dtype == NPU_F32   ? &product_micro_for(a_dtype, b_dtype)
         : p.acc_dtype == NPU_I32 ? integer_micro_for(a_dtype, b_dtype)
                                  : nullptr;
}

const char* refuses(const Problem& p) {
  if (p.choice.way == Choice::kDense) return "the command chose another way";
  const Micro* micro = micro_of(p);
  if (!micro) return "no register tiles for these types";
  if (p.k == 0) return "there is nothing to add up";
  if (micro == &base::micro_f32 && have_openblas()) return "OpenBLAS knows this processor better";
  // Of a tiny product packing is the larger part; two to a word have to be converted anyway.
  if (p.m * p.n <= kTinyResults && p.work() <= (micro->depth > 1 ? kTinyWords : kTinyWork)) {
    return "the product is tiny";
  }
  return nullptr;
}

// A left operand that is not packed but read where it lies, because only `n` columns would use it.
bool is_loose(const Micro& micro, const Matrix& left, int64_t n) {
  return holds_words_of(micro, left.dtype) && left.col == 1 && left.cols % micro.depth == 0 &&
         n <= kLooseTiles * micro.cols;
}

// Register tiles are wide and their rows come one by one, so a product of few columns is better computed transposed.
bool better_transposed(const Problem& p, const Micro& micro) {
  if (p.choice.transposed) return p.choice.transposed == Choice::kYes;
  if (!p.job.program && p.out_col() != 1 && p.out_row() == 1) return true;
  const int64_t transposed = p.n * padded_cols(micro, p.m), straight = p.m * padded_cols(micro, p.n);
  if (transposed * 100 < straight * kTransposedPercent) return true;
  // Few rows against lines along k, such as a linear layer's weight: as the left operand it need not be packed.
  return p.m <= kFewRows && p.m < p.n && transposed <= straight && is_loose(micro, batch_at(p, 0).b.transposed(), p.m);
}

// One product of a batch: left[m, k] * right[n, k], which are A and B or, where `transposed`, B and A. The smaller
// operand is packed once, for all; the larger one in pieces, by whoever needs one.
class Tiles {
 public:
  Tiles(const Problem& p, const Micro& micro, int threads)
      : p_(p),
        micro_(micro),
        depth_(micro, p.k),
        transposed_(better_transposed(p, micro)),
        m_(transposed_ ? p.n : p.m),
        n_(transposed_ ? p.m : p.n),
        strip_(even_rows(micro, m_)),
        rows_shared_(p.choice.left_once ? p.choice.left_once == Choice::kYes : m_ <= n_),
        loose_(is_loose(micro, left(batch_at(p, 0)), n_)),
        direct_(p.stores_sums() && ((transposed_ ? p.out_row() : p.out_col()) == 1 || n_ == 1)),
        out_row_(direct_ ? (transposed_ ? p.out_col() : p.out_row()) : 0) {
    choose_tile(threads);
    shared_lines_ = rows_shared_ ? m_ : padded_cols(micro, n_);
  }

  int64_t count() const { return row_tiles() * col_tiles(); }
  // The operand that is packed once: how much room it needs, its strips, and whether all batches have the same.
  bool packs_shared() const { return !(loose_ && rows_shared_); }
  size_t shared_bytes() const {
    return packs_shared() ? sizeof(uint32_t) * shared_lines_ * (micro_.words(p_.k) + 1) : 0;
  }
  int64_t shared_strips() const { return ((rows_shared_ ? m_ : n_) + shared_unit() - 1) / shared_unit(); }
  bool same_for_all() const { return same_in_all_batches(p_, rows_shared_ == transposed_ ? 1 : 0); }

  // Strips [first, last) of the shared operand.
  void pack_shared(const Batch& batch, int64_t first, int64_t last, uint32_t* to) const {
    const int64_t line = first * shared_unit(), lines = std::min(rows_shared_ ? m_ : n_, last * shared_unit()) - line;
    for (int64_t b = 0; b < depth_.count(); ++b) {
      uint32_t* at = to + at_block(b) + line * micro_.words(depth_.size(b));
      if (rows_shared_) {
        pack_rows(micro_, left(batch), line, lines, b * depth_.block, depth_.size(b), strip_, at);
      } else {
        pack_cols(micro_, right(batch), line, lines, b * depth_.block, depth_.size(b), at);
      }
    }
  }

  // Tiles [first, last), those that need the same piece of the larger operand one after the other.
  void run(const Batch& batch, const uint32_t* shared, int64_t first, int64_t last) const {
    const int64_t inner = rows_shared_ ? row_tiles() : col_tiles();
    const bool keep = std::min(last - first, inner) > 1;  // a piece serves several tiles: all its blocks are kept
    const int64_t own_lines = rows_shared_ ? padded_cols(micro_, cols_) : rows_;
    Scratch own_space(sizeof(uint32_t) * own_lines * (keep ? micro_.words(p_.k) + 1 : kBlockWords));
    std::optional<Scratch> sums_space;
    if (!direct_) sums_space.emplace(sizeof(float) * rows_ * cols_);
    int64_t packed = -1;  // the piece in `own_space`
    for (int64_t t = first; t < last; ++t) {
      const int64_t outer = t / inner, i = rows_shared_ ? t % inner : outer, j = rows_shared_ ? outer : t % inner;
      const Block tile{i * rows_, std::min(rows_, m_ - i * rows_), j * cols_, std::min(cols_, n_ - j * cols_)};
      float* sums =
          direct_ ? reinterpret_cast<float*>(batch.out) + tile.row * out_row_ + tile.col : sums_space->as<float>();
      const int64_t ld = direct_ ? out_row_ : tile.cols;
      for (int64_t b = 0; b < depth_.count(); ++b) {
        uint32_t* own = own_space.as<uint32_t>() + (keep ? b * kBlockWords * own_lines : 0);
        if (packed != outer) pack_own(batch, tile, b, own);
        multiply_block(batch, tile, b, shared, own, sums, ld);
      }
      if (keep) packed = outer;
      if (!direct_) store(batch, tile, sums);
    }
  }

 private:
  Matrix left(const Batch& batch) const { return transposed_ ? batch.b.transposed() : batch.a; }
  Matrix right(const Batch& batch) const { return transposed_ ? batch.a : batch.b.transposed(); }
  int64_t row_tiles() const { return (m_ + rows_ - 1) / rows_; }
  int64_t col_tiles() const { return (n_ + cols_ - 1) / cols_; }
  int64_t shared_unit() const { return rows_shared_ ? strip_ : micro_.cols; }
  int64_t at_block(int64_t block) const { return block * kBlockWords * shared_lines_; }

  void choose_tile(int threads) {
    const int64_t unit = micro_.cols;
    const auto in_strips = [&](int64_t rows) { return std::max<int64_t>(1, rows / strip_) * strip_; };
    rows_ = std::min(m_, kTileRows / strip_ * strip_);
    cols_ = std::min(n_, kTileCols);
    if (!direct_ && p_.k <= kShallow) rows_ = std::min(rows_, 2 * strip_);
    if (p_.job.program && !transposed_) {
      rows_ = std::min(rows_, in_strips(kLongTileRows));
      const int64_t pieces = (n_ + kLongTileCols - 1) / kLongTileCols, each = (n_ + pieces - 1) / pieces;
      cols_ = std::min(n_, (each + unit - 1) / unit * unit);
    }
    if (p_.choice.rows) {
      rows_ = std::min(m_, in_strips(p_.choice.rows));
      cols_ = std::min<int64_t>(n_, p_.choice.cols);
      return;
    }
    // Enough tiles for the threads to share evenly.
    while (threads > 1 && count() < kTasksPerThread * threads && rows_ * cols_ * p_.k > 2 * kTaskWork) {
      if (cols_ > unit && (cols_ >= rows_ || rows_ <= strip_)) {
        cols_ = (cols_ / 2 + unit - 1) / unit * unit;
      } else if (rows_ > strip_) {
        rows_ = (rows_ / 2 + strip_ - 1) / strip_ * strip_;
      } else {
        break;
      }
    }
  }

  // The tile's piece of the larger operand, one block of k.
  void pack_own(const Batch& batch, const Block& tile, int64_t block, uint32_t* own) const {
    const int64_t k = depth_.size(block), k0 = block * depth_.block;
    if (rows_shared_) {
      pack_cols(micro_, right(batch), tile.col, tile.cols, k0, k, own);
    } else if (!loose_) {
      pack_rows(micro_, left(batch), tile.row, tile.rows, k0, k, strip_, own);
    }
  }

  void multiply_block(const Batch& batch, const Block& tile, int64_t block, const uint32_t* shared, const uint32_t* own,
                      float* sums, int64_t ld) const {
    const int64_t words = micro_.words(depth_.size(block));
    const auto of_shared = [&](int64_t line) { return shared + at_block(block) + line * words; };
    const uint32_t* b = rows_shared_ ? own : of_shared(tile.col);
    if (!loose_) {
      const uint32_t* a = rows_shared_ ? of_shared(tile.row) : own;
      return multiply(micro_, a, strip_, b, tile.rows, tile.cols, depth_.size(block), sums, ld, block > 0);
    }
    const Matrix a = left(batch);
    const int64_t size = npu::dtype_size(a.dtype), row = a.row * size;
    const char* from = a.data + tile.row * row + block * depth_.block * size;
    for (int64_t j = 0; j < tile.cols; j += micro_.cols) {
      for (int64_t i = 0; i < tile.rows; i += strip_) {
        micro_.loose(words, from + i * row, row, b + j * words, sums + i * ld + j, ld, std::min(strip_, tile.rows - i),
                     std::min<int64_t>(micro_.cols, tile.cols - j), block > 0);
      }
    }
  }

  void store(const Batch& batch, const Block& tile, const float* sums) const {
    if (!transposed_) return finish(p_, batch, tile, sums, tile.cols);
    const Micro& plain = micro_f32();
    const int64_t row = p_.out_row();
    if (p_.stores_sums() && p_.out_col() == 1 && row >= tile.rows) {
      uint32_t* to = reinterpret_cast<uint32_t*>(batch.out) + tile.col * row + tile.row;
      return plain.deep(sums, tile.cols, tile.rows, tile.cols, row, to);
    }
    Scratch space(sizeof(float) * tile.rows * tile.cols);
    plain.deep(sums, tile.cols, tile.rows, tile.cols, tile.rows, space.as<uint32_t>());
    finish(p_, batch, tile.transposed(), space.as<void>(), tile.rows);
  }

  const Problem& p_;
  const Micro& micro_;
  const Depth depth_;
  const bool transposed_;  // the result is computed transposed
  const int64_t m_, n_;
  const int64_t strip_;       // rows in one
  const bool rows_shared_;    // the left operand is the one that is packed once
  const bool loose_;          // the left operand is not packed at all: too few columns would use it
  const bool direct_;         // tiles go straight to memory
  const int64_t out_row_;     // then: elements from row to row of a tile
  int64_t rows_, cols_;       // of a tile
  int64_t shared_lines_ = 0;  // as they are stored
};

void run(const Problem& p) {
  const Micro& micro = *micro_of(p);
  const int threads = p.work() * p.batches <= kSerialWork ? 1 : pool_threads();
  const bool by_batch = threads == 1 || p.batches >= kTasksPerThread * threads;
  const Tiles tiles(p, micro, by_batch ? 1 : threads);
  const bool once = tiles.same_for_all();
  const auto pack = [&](const Batch& batch, uint32_t* to, bool together) {
    if (!tiles.packs_shared()) return;
    const auto strips = [&](int64_t first, int64_t last) { tiles.pack_shared(batch, first, last, to); };
    if (!together) return strips(0, tiles.shared_strips());
    parallel_for(tiles.shared_strips(), grain_for(p.k, kPackWords), strips);
  };
  std::optional<Scratch> common;
  if (once || !by_batch) common.emplace(tiles.shared_bytes());
  if (!by_batch) {
    uint32_t* shared = common->as<uint32_t>();
    for (int64_t i = 0; i < p.batches; ++i) {
      const Batch batch = batch_at(p, i);
      if (i == 0 || !once) pack(batch, shared, true);
      parallel_for(tiles.count(), 1, [&](int64_t first, int64_t last) { tiles.run(batch, shared, first, last); });
    }
    return;
  }
  if (once) pack(batch_at(p, 0), common->as<uint32_t>(), threads > 1);
  const auto batches = [&](int64_t first, int64_t last) {
    std::optional<Scratch> own;
    if (!once) own.emplace(tiles.shared_bytes());
    uint32_t* shared = (once ? common : own)->as<uint32_t>();
    for (int64_t i = first; i < last; ++i) {
      const Batch batch = batch_at(p, i);
      if (!once) pack(batch, shared, false);
      tiles.run(batch, shared, 0, tiles.count());
    }
  };
  if (threads == 1) return batches(0, p.batches);
  parallel_for(p.batches, grain_for(p.work(), kTaskWork), batches);
}

}  // namespace

constinit const Way<const Problem> tiles = {"register tiles", refuses, always<run, const Problem>};

}  // namespace cmodel::product
