// Computed addresses: load_at, store_at and check_index. Offsets are checked for a whole row of the tile at once, after
// which the loops that move data need no branch.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "drivers/cmodel/interpreter/tile_memory.h"
#include "drivers/cmodel/interpreter/tile_place.h"
#include "support/program/program.h"

namespace cmodel {

void bad_address(Frame& f, const Op& op, int64_t element, const Tile& t, bool write) {
  const Operand& operand = f.job->operands[op.imm];
  char text[160];
  std::snprintf(text, sizeof text,
                "expected live memory at element %lld of the allocation of operand %u (%s of %s), got none",
                static_cast<long long>(element), op.imm, write ? "store" : "load", npu::dtype_name(operand.dtype));
  f.sink->report(NPU_ERROR_ADDRESS, text, t.position);
}

namespace {

// Elements of the operand that may be reached, counted from its address; computed in unsigned arithmetic, so that a
// wild offset cannot wrap around into them.
struct Bounds {
  int64_t low = 0;
  uint64_t span = 0;
  bool holds(int64_t element) const { return static_cast<uint64_t>(element) - static_cast<uint64_t>(low) < span; }
};

Bounds bounds_of(const Operand& operand, int log_size) {
  int64_t low = (operand.begin - operand.ptr) >> log_size, high = (operand.end - operand.ptr) >> log_size;
  if (operand.limit) {
    low = std::max<int64_t>(low, 0);
    high = std::min(high, operand.limit);
  }
  return {low, high > low ? static_cast<uint64_t>(high) - static_cast<uint64_t>(low) : 0};
}

int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

void report(Frame& f, const Op& op, const Place& p, const Tile& t, int64_t element, bool write) {
  const int64_t limit = p.operand->limit;
  if (limit && (element < 0 || element >= limit)) {
    f.sink->report(NPU_ERROR_ADDRESS,
                   "expected an offset of 0 to " + std::to_string(limit - 1) + " in operand " + std::to_string(op.imm) +
                       ", got " + std::to_string(element),
                   t.position);
    return;
  }
  bad_address(f, op, element - ((p.operand->begin - p.operand->ptr) >> p.log_size), t, write);
}

// The values of one row of the tile: an array, or one value.
struct RowOf {
  RowOf(Ref ref, int64_t size, int64_t cols)
      : ptr(ref.ptr),
        step(ref.uniform || ref.axis == kCols || ref.axis == kSum ? 0
             : ref.axis == kRows                                  ? size
                                                                  : size * cols),
        one(ref.uniform || ref.axis == kRows) {}
  const char* at(int64_t row) const { return ptr + row * step; }
  const char* ptr;
  int64_t step;
  bool one;
};

// Offsets of one row; `part` is what all of a row's share.
struct Offsets : RowOf {
  Offsets(const Frame& f, int id, int64_t cols)
      : RowOf(f.val[id], sizeof(int64_t), cols), part(f.val[id].axis == kSum ? f.row_part[id] : nullptr) {
    same = !one && step == 0;
  }
  const int64_t* row(int64_t r) const { return reinterpret_cast<const int64_t*>(at(r)); }
  int64_t shared(int64_t r) const { return part ? part[r] : 0; }
  const int64_t* part;
  bool same;  // the array is that of every row
};

// Offsets that all rows share: their extremes, and the longest piece that is one run of neighbours (images have one
// between their borders).
struct Columns {
  Columns(const int64_t* offset, int64_t n) {
    low = high = offset[0];
    int64_t start = 0;
    for (int64_t c = 1; c <= n; ++c) {
      if (c < n) {
        low = std::min(low, offset[c]);
        high = std::max(high, offset[c]);
        if (offset[c] == plus(offset[c - 1], 1)) continue;
      }
      if (c - start > end - begin) {
        begin = start;
        end = c;
      }
      start = c;
    }
    if (end - begin < kAddressRun) begin = end = 0;
  }
  int64_t low, high, begin = 0, end = 0;
};

void report_row(Frame& f, const Op& op, const Place& p, const Tile& t, const int64_t* at, const Bounds& bounds,
                bool write) {
  for (int64_t c = 0; c < t.cols; ++c)
    if (!bounds.holds(at[c])) return report(f, op, p, t, at[c], write);
}

// Nothing may be touched; that is an error only where the mask is set.
void report_masked(Frame& f, const Op& op, const Place& p, const Tile& t, int64_t start, const int64_t* offsets,
                   bool one_offset, const char* mask, bool write) {
  for (int64_t c = 0; c < t.cols; ++c)
    if (!mask || mask[c]) report(f, op, p, t, plus(start + c * p.col_stride, offsets[one_offset ? 0 : c]), write);
}

// A tile of very short rows as one long row, if the operand's elements are as far apart between rows as inside them.
bool flatten(Frame& f, const Op& op, uint16_t offset, const Tile& t, Tile& flat) {
  const int64_t rs = t.row_stride[op.view], cs = t.cols == 1 ? rs : t.col_stride[op.view];
  if (t.rows == 1 || t.cols >= kShortAddressRow || (t.cols > 1 && rs != cs * t.cols)) return false;
  expand_to_points(f, offset, t);
  if (op.mask != NPU_NO_VALUE) expand_to_points(f, op.mask, t);
  flat = t;
  flat.rows = 1;
  flat.cols = t.n;
  if (t.cols == 1) flat.col_stride = t.row_stride;
  return true;
}

// What load_at needs to know about its tile, of which rows are collected one after the other.
class Loader {
 public:
  Loader(Frame& f, const Op& op, const Tile& t, const Place& p, Ref mask)
      : f_(f),
        op_(op),
        t_(t),
        p_(p),
        all_(!mask.ptr || mask.uniform),
        offset_(f, op.a, t.cols),
        kept_(mask.uniform ? Ref{} : mask, 1, t.cols),
        bounds_(bounds_of(*p.operand, p.log_size)),
        base_(t.offset[op.view]),
        elements_(reinterpret_cast<int64_t*>(f.temp(1))) {}

  // The tile's values where they lie, if that is one piece of memory: nothing to copy. Else null.
  char* in_place() const {
    if (!all_ || !offset_.one || t_.rows != 1 || p_.col_stride != 1) return nullptr;
    const int64_t first = plus(base_, *offset_.row(0));
    if (!bounds_.holds(first) || !bounds_.holds(plus(first, t_.cols - 1))) return nullptr;
    return p_.operand->ptr + first * (int64_t{1} << p_.log_size);
  }

  // Writes the values to `to`, and what of them is there to `stream` on the way.
  void run(char* to, const StreamTarget& stream) {
    int64_t streamed = 0;
    // Rows up to `row` are there.
    const auto done = [&](int64_t row) {
      const int64_t n = row * t_.cols;
      if (!stream.at || ((n - streamed) << p_.log_size < kStreamBlock && row < t_.rows)) return;
      stream.write(f_, to, p_.log_size, streamed, n);
      streamed = n;
    };
    with_bytes(p_.log_size, to, [&](auto* out) {
      using T = std::remove_pointer_t<decltype(out)>;
      const T* memory = reinterpret_cast<const T*>(p_.operand->ptr);
      if (shares_columns() && pick_rows(out, memory, stream.at != nullptr, done)) return;
      for (int64_t r = 0; r < t_.rows; done(++r), out += t_.cols) load_row(r, out, memory);
    });
  }

 private:
  // The same offsets in every row.
  bool shares_columns() const { return offset_.same && all_ && p_.col_stride == 0 && t_.rows > 1; }

  // False: some element may not be read; nothing was.
  template <class T, class F>
  bool pick_rows(T* out, const T* memory, bool streams, F done) {
    const Columns columns(offset_.row(0), t_.cols);
    bool fine = true;
    for (int64_t r = 0; r < t_.rows; ++r) {
      elements_[r] = plus(base_ + r * p_.row_stride, offset_.shared(r));
      fine &= bounds_.holds(plus(elements_[r], columns.low)) && bounds_.holds(plus(elements_[r], columns.high));
    }
    if (!fine) return false;
    const int64_t step = streams ? std::max<int64_t>(1, kStreamBlock / (t_.cols << p_.log_size)) : t_.rows;
    for (int64_t r = 0; r < t_.rows; r += step) {
      const int64_t rows = std::min(step, t_.rows - r);
      f_.k->pick_rows[p_.log_size](out + r * t_.cols, memory, elements_ + r, rows, offset_.row(0), t_.cols,
                                   columns.begin, columns.end);
      done(r + rows);
    }
    return true;
  }

  template <class T>
  void load_row(int64_t r, T* out, const T* memory) {
    const int64_t* offsets = offset_.row(r);
    const int64_t start = plus(base_ + r * p_.row_stride, offset_.shared(r));
    const bool one_mask = all_ || kept_.one;
    const size_t bytes = static_cast<size_t>(t_.cols) * sizeof(T);
    if (!all_ && kept_.one && !*kept_.at(r)) {
      std::memset(out, 0, bytes);
      return;
    }
    if (one_mask && offset_.one) {
      const int64_t first = plus(start, *offsets), last = plus(first, (t_.cols - 1) * p_.col_stride);
      if (!bounds_.holds(first) || !bounds_.holds(last))
        report(f_, op_, p_, t_, bounds_.holds(first) ? last : first, false);
      else if (p_.col_stride == 1)
        std::memcpy(out, memory + first, bytes);
      else
        f_.k->gather[p_.log_size](out, memory + first, p_.col_stride, t_.cols);
      return;
    }
    const char* row_mask = one_mask ? nullptr : kept_.at(r);
    if (bounds_.span == 0) {
      std::memset(out, 0, bytes);
      return report_masked(f_, op_, p_, t_, start, offsets, offset_.one, row_mask, false);
    }
    if (f_.k->addresses(elements_, start, offsets, offset_.one, p_.col_stride, row_mask, bounds_.low, bounds_.span,
                        t_.cols))
      f_.k->pick[p_.log_size](out, memory, elements_, row_mask, t_.cols);
    else
      report_row(f_, op_, p_, t_, elements_, bounds_, false);
  }

  Frame& f_;
  const Op& op_;
  const Tile& t_;
  const Place& p_;
  const bool all_;  // points are loaded
  const Offsets offset_;
  const RowOf kept_;  // by the mask
  const Bounds bounds_;
  const int64_t base_;
  int64_t* const elements_;
};

}  // namespace

void load_at(Frame& f, int i, const Tile& tile) {
  const Op& op = f.plan->ops[i];
  Tile flat;
  const Tile& t = flatten(f, op, op.a, tile, flat) ? flat : tile;
  const Place p = place(f, op, t);
  const Ref mask = op.mask == NPU_NO_VALUE ? Ref{} : f.val[op.mask];
  if (mask.ptr && mask.uniform && !*mask.ptr) {
    f.scalar[i] = 0;
    f.val[i] = {reinterpret_cast<char*>(&f.scalar[i]), true};
    return;
  }
  Loader loader(f, op, t, p, mask);
  const bool same = p.operand->dtype == op.dtype;
  if (same && op.overwritten == 0)
    if (char* at = loader.in_place()) {
      f.val[i] = {at, false};
      return;
    }
  // What is stored next goes straight there, unless it is also where this reads.
  const bool may_write = same && op.store != kNone && f.job->operands[f.plan->ops[op.store].imm].ptr != p.operand->ptr;
  const StreamTarget stream = may_write ? stream_target(f, op, tile) : StreamTarget{};
  char* slot = may_write && !stream.at ? store_target(f, op, tile) : nullptr;
  if (!slot) slot = f.slot(op.slot);
  char* to = same ? slot : f.temp(0);
  loader.run(to, stream);
  if (!same) f.k->convert[p.operand->dtype][op.dtype](slot, to, t.n);
  f.val[i] = {slot, false};
}

namespace {

// What store_at needs to know about its tile.
struct Writer {
  Frame& f;
  const Op& op;
  const Place& p;
  Kernel merge;     // null: the value is stored as it is
  Convert in, out;  // between the type in memory and the value's
  bool converts;
  const char* values;  // in the type in memory where there is nothing to merge
  int64_t value_step;  // bytes; 0: one value for the tile
  Bounds mine;         // the part of the operand that this thread writes

  // Elements first, first + 1, ...: one call of a kernel.
  void run(int64_t first, int64_t at, int64_t n) const {
    // Values at .. at + n; those of other threads' elements are left out.
    const int64_t begin = std::max(first, mine.low);
    const int64_t end = std::min(first + n, mine.low + static_cast<int64_t>(mine.span));
    if (begin >= end) return;
    char* to = p.operand->ptr + begin * (int64_t{1} << p.log_size);
    const char* from = values + (at + begin - first) * value_step;
    const int64_t m = end - begin;
    if (!merge) {
      if (value_step)
        std::memcpy(to, from, static_cast<size_t>(m) << p.log_size);
      else
        f.k->gather[p.log_size](to, from, 0, m);
      return;
    }
    char* old = converts ? f.temp(2) : to;
    if (converts) in(old, to, m);
    merge(old, old, from, nullptr, m, value_step ? 0 : 2);
    if (converts) out(to, old, m);
  }

  template <class Keep>
  void each(const int64_t* elements, int64_t at, int64_t n, Keep keep) const {
    char* memory = p.operand->ptr;
    if (!merge) {
      with_bytes(p.log_size, memory, [&](auto* word) {
        using T = std::remove_pointer_t<decltype(word)>;
        const T* value = reinterpret_cast<const T*>(values) + (value_step ? at : 0);
        const int64_t step = value_step ? 1 : 0;
        for (int64_t c = 0; c < n; ++c)
          if (keep(c)) word[elements[c]] = value[c * step];
      });
    } else if (op.flags == NPU_STORE_ADD && !converts && p.operand->dtype == NPU_F32) {
      float* word = reinterpret_cast<float*>(memory);
      const float* value = reinterpret_cast<const float*>(values) + (value_step ? at : 0);
      const int64_t step = value_step ? 1 : 0;
      for (int64_t c = 0; c < n; ++c)
        if (keep(c)) word[elements[c]] += value[c * step];
    } else {
      for (int64_t c = 0; c < n; ++c) {
        if (!keep(c)) continue;
        char* to = memory + elements[c] * (int64_t{1} << p.log_size);
        uint64_t old = 0;
        in(&old, to, 1);
        merge(&old, &old, values + (at + c) * value_step, nullptr, 1, 0);
        out(to, &old, 1);
      }
    }
  }
};

// Converts the values, if they are stored as they are. Of several threads, each writes its own part of the operand.
Writer writer_of(Frame& f, const Op& op, const Place& p, const Tile& t, const Bounds& bounds) {
  static constexpr uint8_t kMerges[] = {0, NPU_OP_ADD, NPU_OP_MUL, NPU_OP_MAX, NPU_OP_MIN};
  const Ref v = f.val[op.a];
  const int type = f.plan->ops[op.a].dtype, stored = p.operand->dtype;
  const bool converts = stored != type || type == NPU_BOOL;
  Writer writer{f, op, p, nullptr, f.k->convert[stored][type], f.k->convert[type][stored], converts, v.ptr, 0, bounds};
  if (op.flags != NPU_STORE_SET) {
    writer.merge = f.k->op[kMerges[op.flags]][type_class(type)];
    writer.value_step = v.uniform ? 0 : npu::dtype_size(type);
  } else {
    writer.value_step = v.uniform ? 0 : int64_t{1} << p.log_size;
    if (converts) {
      writer.out(f.temp(0), v.ptr, v.uniform ? 1 : t.n);
      writer.values = f.temp(0);
    }
  }
  if (f.parts > 1) {
    const int64_t span = static_cast<int64_t>(bounds.span);
    const int64_t begin = span / f.parts * f.part, end = f.part + 1 == f.parts ? span : span / f.parts * (f.part + 1);
    writer.mine = {bounds.low + begin, static_cast<uint64_t>(end - begin)};
  }
  return writer;
}

}  // namespace

void store_at(Frame& f, int i, const Tile& tile) {
  const Op& op = f.plan->ops[i];
  expand_to_points(f, op.a, tile);
  if (op.mask != NPU_NO_VALUE) expand_to_points(f, op.mask, tile);
  Tile flat;
  const Tile& t = flatten(f, op, op.b, tile, flat) ? flat : tile;
  const Place p = place(f, op, t);
  const Ref mask = op.mask == NPU_NO_VALUE ? Ref{} : f.val[op.mask];
  if (mask.ptr && mask.uniform && !*mask.ptr) return;
  const bool all = !mask.ptr || mask.uniform;
  const Offsets offset(f, op.b, t.cols);
  const Bounds bounds = bounds_of(*p.operand, p.log_size);
  const Writer writer = writer_of(f, op, p, t, bounds);
  int64_t* elements = reinterpret_cast<int64_t*>(f.temp(1));
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t* offsets = offset.row(r);
    const int64_t start = plus(t.offset[op.view] + r * p.row_stride, offset.shared(r));
    const char* kept = all ? nullptr : mask.ptr + r * t.cols;
    if (offset.one && all && p.col_stride == 1) {
      const int64_t first = plus(start, *offsets);
      if (bounds.holds(first) && bounds.holds(plus(first, t.cols - 1)))
        writer.run(first, r * t.cols, t.cols);
      else
        report(f, op, p, t, bounds.holds(first) ? plus(first, t.cols - 1) : first, true);
      continue;
    }
    if (bounds.span == 0) {
      report_masked(f, op, p, t, start, offsets, offset.one, kept, true);
      continue;
    }
    if (!f.k->addresses(elements, start, offsets, offset.one, p.col_stride, kept, bounds.low, bounds.span, t.cols)) {
      report_row(f, op, p, t, elements, bounds, true);
      continue;
    }
    const int64_t at = r * t.cols;
    if (f.parts > 1)
      writer.each(elements, at, t.cols,
                  [&](int64_t c) { return (!kept || kept[c]) && writer.mine.holds(elements[c]); });
    else if (kept)
      writer.each(elements, at, t.cols, [&](int64_t c) { return kept[c] != 0; });
    else
      writer.each(elements, at, t.cols, [](int64_t) { return true; });
  }
}

namespace {

template <class T>
void check_loop(Frame& f, const Op& op, Ref a, Ref b, Ref mask, T* out, int64_t m, const Tile& t) {
  const T *index = reinterpret_cast<const T*>(a.ptr), *size = reinterpret_cast<const T*>(b.ptr);
  const bool wraps = op.flags & NPU_INDEX_WRAP, checks = op.flags & NPU_INDEX_CHECK;
  // The usual case without branches; if an index is wrong, once more with them.
  if (!mask.ptr && b.uniform && !a.uniform && (f.k->check[sizeof(T) == 8](out, a.ptr, b.ptr, wraps, m) || !checks))
    return;
  for (int64_t k = 0; k < m; ++k) {
    const T given = index[a.uniform ? 0 : k], s = size[b.uniform ? 0 : k];
    out[k] = given;
    if (mask.ptr && !mask_at(mask, k)) continue;
    T x = given;
    if (wraps && x < 0) x = static_cast<T>(static_cast<uint64_t>(x) + static_cast<uint64_t>(s));
    if (checks && (x < 0 || x >= s)) {
      f.sink->report(
          NPU_ERROR_INDEX,
          "index " + std::to_string(given) + " is out of bounds for dimension with size " + std::to_string(s),
          t.position);
      x = 0;
    }
    out[k] = x;
  }
}

}  // namespace

void check_index(Frame& f, int i, const Tile& t) {
  const Op& op = f.plan->ops[i];
  Axis axis = f.val[op.a].axis;
  const bool masked = op.mask != NPU_NO_VALUE;
  if (f.val[op.a].uniform || !f.val[op.b].uniform || (masked && !f.val[op.mask].uniform)) {
    for (uint16_t id : {op.a, op.b}) expand_to_points(f, id, t);
    if (masked) expand_to_points(f, op.mask, t);
    axis = kBoth;
  }
  const Ref a = f.val[op.a], b = f.val[op.b], mask = masked ? f.val[op.mask] : Ref{};
  const bool uniform = a.uniform && b.uniform && (!mask.ptr || mask.uniform);
  char* out = uniform ? reinterpret_cast<char*>(&f.scalar[i]) : f.slot(op.slot);
  const int64_t m = uniform ? 1 : axis == kRows ? t.rows : axis == kCols ? t.cols : t.n;
  if (op.dtype == NPU_I32)
    check_loop(f, op, a, b, mask, reinterpret_cast<int32_t*>(out), m, t);
  else
    check_loop(f, op, a, b, mask, reinterpret_cast<int64_t*>(out), m, t);
  f.val[i] = {out, uniform, axis};
}

}  // namespace cmodel
