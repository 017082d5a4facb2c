#include "drivers/cmodel/interpreter/tile_memory.h"

#include <algorithm>
#include <cstring>

#include "drivers/cmodel/interpreter/repeat.h"
#include "drivers/cmodel/interpreter/tile_place.h"

namespace cmodel {

void collect(const Kernels& k, void* out, const char* in, int log_size, int64_t rows, int64_t cols, int64_t row_stride,
             int64_t col_stride) {
  char* o = static_cast<char*>(out);
  if (cols == 1) {
    cols = rows;
    col_stride = row_stride;
    rows = 1;
  } else if (row_stride == cols * col_stride) {
    cols *= rows;
    rows = 1;
  }
  if (rows > 3 && row_stride == 1 && col_stride != 1 && col_stride != 0) {
    k.gather_transposed[log_size](out, in, col_stride, rows, cols);
    return;
  }
  const int64_t step = row_stride << log_size, bytes = cols << log_size;
  if (col_stride == 1) return k.copy_rows(out, bytes, in, step, rows, bytes);
  for (int64_t r = 0; r < rows; ++r, o += bytes, in += step) k.gather[log_size](o, in, col_stride, cols);
}

void deposit(const Kernels& k, char* out, const void* in, int log_size, int64_t rows, int64_t cols, int64_t row_stride,
             int64_t col_stride) {
  const char* a = static_cast<const char*>(in);
  if (cols == 1) {
    cols = rows;
    col_stride = row_stride;
    rows = 1;
  }
  if (rows > 3 && row_stride == 1 && col_stride != 1) {
    k.scatter_transposed[log_size](out, in, col_stride, rows, cols);
    return;
  }
  const int64_t step = row_stride << log_size, bytes = cols << log_size;
  if (col_stride == 1) return k.copy_rows(out, step, in, bytes, rows, bytes);
  for (int64_t r = 0; r < rows; ++r, a += bytes, out += step) k.scatter[log_size](out, col_stride, a, cols);
}

bool is_one_of(const Frame& f, uint64_t operands, const Operand& operand) {
  if (operands == 0) return false;
  if (operands != ~uint64_t{0}) {
    for (uint64_t rest = operands; rest != 0; rest &= rest - 1)
      if (f.job->operands[__builtin_ctzll(rest)].ptr == operand.ptr) return true;
    return false;
  }
  for (const Op& op : f.plan->ops)
    if ((op.step == Step::kStore || op.step == Step::kStoreAt) && f.job->operands[op.imm].ptr == operand.ptr)
      return true;
  return false;
}

namespace {

bool is_dense(const Place& p, const Tile& t) {
  if (t.cols == 1) return p.row_stride == 1;
  return p.col_stride == 1 && (t.rows == 1 || p.row_stride == t.cols);
}

void fetch(Frame& f, int i, const Op& op, const Place& p, const Tile& t) {
  const int from = p.operand->dtype;
  Convert convert = f.k->convert[from][op.dtype];
  if (p.row_stride == 0 && p.col_stride == 0) {
    convert(&f.scalar[i], p.at, 1);
    f.val[i] = {reinterpret_cast<char*>(&f.scalar[i]), true};
    return;
  }
  char* slot = f.slot(op.slot);
  const bool raw = from == op.dtype && !is_one_of(f, op.overwritten, *p.operand);
  if (t.rows > 1 && t.cols > 1 && (p.row_stride == 0 || p.col_stride == 0)) {
    // One value per row, or one row for all.
    const bool rows = p.col_stride == 0;
    const int64_t stride = rows ? p.row_stride : p.col_stride, m = rows ? t.rows : t.cols;
    f.val[i] = {slot, false, rows ? kRows : kCols};
    if (stride == 1 && raw) {
      f.val[i].ptr = p.at;
    } else if (stride == 1) {
      convert(slot, p.at, m);
    } else {
      char* to = from == op.dtype ? slot : f.temp(0);
      f.k->gather[p.log_size](to, p.at, stride, m);
      if (to != slot) convert(slot, to, m);
    }
    return;
  }
  if (is_dense(p, t)) {
    if (raw) {
      f.val[i] = {p.at, false};
      return;
    }
    if (op.is(Trait::kOnlyLooped) && is_narrow(from) && !is_one_of(f, op.overwritten, *p.operand)) {
      f.val[i] = {p.at, false, kBoth, static_cast<uint8_t>(from)};
      return;
    }
    convert(slot, p.at, t.n);
  } else {
    char* to = from == op.dtype ? slot : f.temp(0);
    collect(*f.k, to, p.at, p.log_size, t.rows, t.cols, p.row_stride, p.col_stride);
    if (to != slot) convert(slot, to, t.n);
  }
  f.val[i] = {slot, false};
}

// A tile whose columns are two dimensions, which do not merge for this operand.
void fetch_apart(Frame& f, int i, const Op& op, const Place& p, const Tile& t) {
  const Space& space = *t.folded;
  const int64_t inner = space.inner, outer = t.cols / inner, step = space.inner_stride[op.view];
  const int64_t rows = p.row_stride == 0 ? 1 : t.rows, bytes = t.cols << p.log_size;
  char* slot = f.slot(op.slot);
  char* first = p.operand->dtype == op.dtype ? slot : f.temp(0);
  for (int64_t r = 0; r < rows; ++r) {
    const char* from = p.at + (r * p.row_stride) * (int64_t{1} << p.log_size);
    char* to = first + r * bytes;
    if (step == 0) {
      repeat_values(to, from, p.log_size, p.col_stride, outer, inner);
    } else if (p.col_stride == 0) {
      collect(*f.k, to, from, p.log_size, 1, inner, 0, step);
      repeat_row(to, inner << p.log_size, outer);
    } else {
      collect(*f.k, to, from, p.log_size, outer, inner, p.col_stride, step);
    }
  }
  if (first != slot) f.k->convert[p.operand->dtype][op.dtype](slot, first, rows * t.cols);
  f.val[i] = {slot, false, rows == t.rows ? kBoth : kCols};
}

// Does the whole tile lie inside the operand's allocation?
bool tile_inside(const Place& p, const Tile& t) {
  if (p.operand->immediate) return true;
  const int64_t r = (t.rows - 1) * p.row_stride, c = (t.cols - 1) * p.col_stride;
  const int64_t low = std::min<int64_t>(r, 0) + std::min<int64_t>(c, 0);
  const int64_t high = std::max<int64_t>(r, 0) + std::max<int64_t>(c, 0);
  return inside(*p.operand, p.at + low * (int64_t{1} << p.log_size), p.at + ((high + 1) << p.log_size));
}

template <class T>
bool masked_copy(T* out, const Place& p, const Tile& t, const char* mask) {
  bool fine = true;
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t c = 0; c < t.cols; ++c, ++out, ++mask) {
      *out = 0;
      if (!*mask) continue;
      const char* at = p.at + (r * p.row_stride + c * p.col_stride) * static_cast<int64_t>(sizeof(T));
      if (inside(*p.operand, at, p.log_size))
        std::memcpy(out, at, sizeof(T));
      else
        fine = false;
    }
  return fine;
}

void masked_load(Frame& f, int i, const Op& op, const Tile& t) {
  const Place p = place(f, op, t);
  expand_to_points(f, op.mask, t);
  const Ref mask = f.val[op.mask];
  static const uint64_t zero = 0;
  char* slot = f.slot(op.slot);
  if (mask.uniform && !*mask.ptr) {
    f.scalar[i] = 0;
    f.val[i] = {reinterpret_cast<char*>(&f.scalar[i]), true};
    return;
  }
  if (tile_inside(p, t)) {
    fetch(f, i, op, p, t);
    if (mask.uniform) return;
    expand_to_points(f, i, t);
    const Ref x = f.val[i];
    // 0 wherever the mask is false
    f.k->op[NPU_OP_WHERE][type_class(op.dtype)](slot, mask.ptr, x.ptr, &zero, t.n, (x.uniform ? 2u : 0u) | 4u);
    f.val[i] = {slot, false};
    return;
  }
  char* to = f.temp(0);
  const char* where = dense(f, mask, NPU_BOOL, t.n, f.temp(1));
  const bool fine = with_bytes(p.log_size, to, [&](auto* out) { return masked_copy(out, p, t, where); });
  if (!fine) {
    each_point(t, [&](int64_t k, int64_t r, int64_t c) {
      const char* at = p.at + (r * p.row_stride + c * p.col_stride) * (int64_t{1} << p.log_size);
      if (where[k] && !inside(*p.operand, at, p.log_size))
        bad_address(f, op, (at - p.operand->begin) >> p.log_size, t, false);
    });
  }
  f.k->convert[p.operand->dtype][op.dtype](slot, to, t.n);
  f.val[i] = {slot, false};
}

}  // namespace

void widen(Frame& f, int id, const Tile& t) {
  const Ref ref = f.val[id];
  if (ref.stored == 0) return;
  char* slot = f.slot(f.plan->ops[id].slot);
  f.k->convert[ref.stored][NPU_F32](slot, ref.ptr, t.n);
  f.val[id] = {slot, false};
}

char* narrow_target(Frame& f, const Op& op, const Tile& t, bool streams) {
  if (!op.is(Trait::kOnlyStored) || op.dtype != NPU_F32 || op.store == kNone) return nullptr;
  const Op& store = f.plan->ops[op.store];
  if (streams_to(f, store) != streams || (store.is(Trait::kRowBuffer) && f.row_buffer)) return nullptr;
  const Place p = place(f, store, t);
  return is_narrow(p.operand->dtype) && is_dense(p, t) && !is_one_of(f, op.loaded_meanwhile, *p.operand) ? p.at
                                                                                                         : nullptr;
}

char* store_target(Frame& f, const Op& op, const Tile& t) {
  const Op& store = f.plan->ops[op.store];
  if (streams_to(f, store)) return nullptr;
  const Place p = place(f, store, t);
  if (is_one_of(f, op.loaded_meanwhile, *p.operand)) return nullptr;
  return p.operand->dtype == op.dtype && is_dense(p, t) ? p.at : nullptr;
}

StreamTarget stream_target(Frame& f, const Op& op, const Tile& t) {
  if (op.store == kNone || f.streams == 0) return {};
  const Op& store = f.plan->ops[op.store];
  if (!streams_to(f, store)) return {};
  const Place p = place(f, store, t);
  if (!is_dense(p, t)) return {};
  const int to = p.operand->dtype;
  f.streamed[op.store] = true;
  return {p.at, p.log_size, to == op.dtype && to != NPU_BOOL ? nullptr : f.k->convert[op.dtype][to]};
}

void StreamTarget::write(Frame& f, const char* values, int log_value, int64_t from, int64_t to) const {
  values += from << log_value;
  if (convert) {
    convert(f.temp(0), values, to - from);
    values = f.temp(0);
  }
  f.k->stream(at + (from << log_size), values, (to - from) << log_size);
}

void load(Frame& f, int i, const Tile& t) {
  const Op& op = f.plan->ops[i];
  if (op.mask != NPU_NO_VALUE)
    masked_load(f, i, op, t);
  else if (t.folded && t.folded->apart[op.view])
    fetch_apart(f, i, op, place(f, op, t), t);
  else
    fetch(f, i, op, place(f, op, t), t);
}

void store(Frame& f, int i, const Tile& t) {
  if (f.streamed[i]) {
    f.streamed[i] = false;
    return;
  }
  const Op& op = f.plan->ops[i];
  const Place p = place(f, op, t);
  expand_to_points(f, op.a, t);
  if (op.mask != NPU_NO_VALUE) expand_to_points(f, op.mask, t);
  const Ref v = f.val[op.a];
  const int from = f.plan->ops[op.a].dtype, to = p.operand->dtype;
  Convert convert = f.k->convert[from][to];
  if (op.mask != NPU_NO_VALUE && f.val[op.mask].uniform && !*f.val[op.mask].ptr) return;
  if (op.mask != NPU_NO_VALUE && !(f.val[op.mask].uniform && tile_inside(p, t))) {
    const Ref mask = f.val[op.mask];
    char* values = f.temp(0);
    convert(values, v.ptr, v.uniform ? 1 : t.n);
    const int size = 1 << p.log_size;
    each_point(t, [&](int64_t k, int64_t r, int64_t c) {
      if (!mask_at(mask, k)) return;
      char* at = p.at + (r * p.row_stride + c * p.col_stride) * (int64_t{1} << p.log_size);
      if (!inside(*p.operand, at, p.log_size))
        return bad_address(f, op, (at - p.operand->begin) >> p.log_size, t, true);
      std::memcpy(at, values + (v.uniform ? 0 : k * size), static_cast<size_t>(size));
    });
    return;
  }
  if (v.ptr == p.at && !v.uniform && from == to && from != NPU_BOOL) return;  // written by its kernel
  if (v.uniform) {
    uint64_t bits = 0;
    convert(&bits, v.ptr, 1);
    if (t.n == 1) {
      std::memcpy(p.at, &bits, size_t{1} << p.log_size);
    } else if (is_dense(p, t)) {
      f.k->gather[p.log_size](p.at, &bits, 0, t.n);
    } else {
      f.k->gather[p.log_size](f.temp(0), &bits, 0, t.n);
      deposit(*f.k, p.at, f.temp(0), p.log_size, t.rows, t.cols, p.row_stride, p.col_stride);
    }
  } else if (is_dense(p, t)) {
    if (!streams_to(f, op)) {
      convert(p.at, v.ptr, t.n);
    } else if (from == to && from != NPU_BOOL) {
      f.k->stream(p.at, v.ptr, t.n << p.log_size);
    } else {
      convert(f.temp(0), v.ptr, t.n);
      f.k->stream(p.at, f.temp(0), t.n << p.log_size);
    }
  } else {
    const char* values = v.ptr;
    if (from != to || from == NPU_BOOL) {
      convert(f.temp(0), v.ptr, t.n);
      values = f.temp(0);
    }
    deposit(*f.k, p.at, values, p.log_size, t.rows, t.cols, p.row_stride, p.col_stride);
  }
}

void index(Frame& f, int i, const Tile& t) {
  const Op& op = f.plan->ops[i];
  const int64_t first = t.offset[op.view];
  const int64_t rs = t.rows == 1 ? 0 : t.row_stride[op.view], cs = t.cols == 1 ? 0 : t.col_stride[op.view];
  if (rs == 0 && cs == 0) {
    f.scalar[i] = static_cast<uint64_t>(first);
    f.val[i] = {reinterpret_cast<char*>(&f.scalar[i]), true};
    return;
  }
  // A coordinate is that of one dimension, unless dimensions were merged.
  const Axis axis = t.rows == 1 || t.cols == 1 ? kBoth : cs == 0 ? kRows : rs == 0 ? kCols : kBoth;
  const int64_t rows = axis == kCols ? 1 : t.rows, cols = axis == kRows ? 1 : t.cols;
  char* slot = f.slot(op.slot);
  auto fill = [&](auto* out) {
    using T = std::remove_pointer_t<decltype(out)>;
    for (int64_t r = 0; r < rows; ++r, out += cols)
      for (int64_t c = 0; c < cols; ++c) out[c] = static_cast<T>(first + r * rs + c * cs);
  };
  if (op.dtype == NPU_I32)
    fill(reinterpret_cast<int32_t*>(slot));
  else
    fill(reinterpret_cast<int64_t*>(slot));
  f.val[i] = {slot, false, axis};
}

void load_acc(Frame& f, int i, const Tile& t) {
  const Op& op = f.plan->ops[i];
  const int log_size = log_size_of(f.acc_dtype);
  const char* at = f.acc + (t.offset[op.view] << log_size);
  const int64_t rs = t.rows == 1 ? 0 : t.row_stride[op.view], cs = t.cols == 1 ? 0 : t.col_stride[op.view];
  if (t.n == 1) {
    f.k->convert[f.acc_dtype][op.dtype](&f.scalar[i], at, 1);
    f.val[i] = {reinterpret_cast<char*>(&f.scalar[i]), true};
  } else if (f.acc_dtype == op.dtype && (t.cols == 1 ? rs == 1 : cs == 1 && (t.rows == 1 || rs == t.cols))) {
    f.val[i] = {const_cast<char*>(at), false};
  } else {
    collect(*f.k, f.temp(0), at, log_size, t.rows, t.cols, rs, cs);
    f.k->convert[f.acc_dtype][op.dtype](f.slot(op.slot), f.temp(0), t.n);
    f.val[i] = {f.slot(op.slot), false};
  }
}

void cast(Frame& f, int i, const Tile& t) {
  const Op& op = f.plan->ops[i];
  const Ref a = f.val[op.a];
  const int64_t m = a.uniform ? 1 : a.axis == kRows ? t.rows : a.axis == kCols ? t.cols : t.n;
  char* out = a.uniform ? reinterpret_cast<char*>(&f.scalar[i]) : f.slot(op.slot);
  const int from = f.plan->ops[op.a].dtype;
  if (op.step == Step::kBitcast) {
    f.k->convert[from][op.imm & 0xff](f.temp(0), a.ptr, m);
    f.k->convert[op.imm >> 8][op.dtype](out, f.temp(0), m);
  } else if (op.imm == NPU_DTYPE_NONE || static_cast<int>(op.imm) == op.dtype) {
    f.k->convert[from][op.dtype](out, a.ptr, m);
  } else if (static_cast<int>(op.imm) == from) {
    f.k->convert[from][op.dtype](out, a.ptr, m);
  } else {
    f.k->convert[from][op.imm](f.temp(0), a.ptr, m);
    f.k->convert[op.imm][op.dtype](out, f.temp(0), m);
  }
  f.val[i] = {out, a.uniform, a.axis};
}

}  // namespace cmodel
