#include "drivers/cmodel/tile_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "support/program.h"

namespace cmodel {

void collect(const Kernels& k, void* out, const char* in, int log_size, int64_t rows, int64_t cols, int64_t row_stride,
             int64_t col_stride) {
  char* o = static_cast<char*>(out);
  if (cols == 1) {
    cols = rows;
    col_stride = row_stride;
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

namespace {

// Where a tile of an operand lies.
struct Place {
  const Operand* operand;
  char* at;
  int64_t row_stride, col_stride;
  int log_size;
};

Place place(const Frame& f, const Op& op, const Tile& t) {
  const Operand& operand = f.job->operands[op.imm];
  const int log_size = log_size_of(operand.dtype);
  const int64_t rs = t.rows == 1 ? 0 : t.row_stride[op.view], cs = t.cols == 1 ? 0 : t.col_stride[op.view];
  char* base = operand.immediate ? const_cast<char*>(reinterpret_cast<const char*>(&operand.bits)) : operand.ptr;
  return {&operand, base + (t.offset[op.view] << log_size), rs, cs, log_size};
}

bool is_dense(const Place& p, const Tile& t) {
  if (t.cols == 1) return p.row_stride == 1;
  return p.col_stride == 1 && (t.rows == 1 || p.row_stride == t.cols);
}

bool aliases_store(const Frame& f, const Operand& operand) {
  for (const Op& op : f.plan->ops)
    if ((op.step == Step::kStore || op.step == Step::kStoreAt) && f.job->operands[op.imm].ptr == operand.ptr)
      return true;
  return false;
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
  if (is_dense(p, t)) {
    if (from == op.dtype && (op.keeps_raw || !aliases_store(f, *p.operand))) {
      f.val[i] = {p.at, false};
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

// `element` counts from the start of the operand's allocation.
void bad_address(Frame& f, const Op& op, int64_t element, const Tile& t, bool write) {
  const Operand& operand = f.job->operands[op.imm];
  char text[160];
  std::snprintf(text, sizeof text,
                "expected live memory at element %lld of the allocation of operand %u (%s of %s), got none",
                static_cast<long long>(element), op.imm, write ? "store" : "load", npu::dtype_name(operand.dtype));
  f.sink->report(NPU_ERROR_ADDRESS, text, t.position);
}

bool inside(const Operand& operand, const char* at, int log_size) {
  return at >= operand.begin && at + (int64_t{1} << log_size) <= operand.end;
}

// Does the whole tile lie inside the operand's allocation?
bool tile_inside(const Place& p, const Tile& t) {
  if (p.operand->immediate) return true;
  const int64_t r = (t.rows - 1) * p.row_stride, c = (t.cols - 1) * p.col_stride;
  const int64_t low = std::min<int64_t>(r, 0) + std::min<int64_t>(c, 0);
  const int64_t high = std::max<int64_t>(r, 0) + std::max<int64_t>(c, 0);
  return inside(*p.operand, p.at + (low << p.log_size), p.log_size) &&
         inside(*p.operand, p.at + (high << p.log_size), p.log_size);
}

template <class F>
void each_point(const Tile& t, F f) {
  int64_t i = 0;
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t c = 0; c < t.cols; ++c, ++i) f(i, r, c);
}

bool mask_at(Ref mask, int64_t i) {
  return mask.ptr[mask.uniform ? 0 : i] != 0;
}

void masked_load(Frame& f, int i, const Op& op, const Tile& t) {
  const Place p = place(f, op, t);
  const Ref mask = f.val[op.mask];
  static const uint64_t zero = 0;
  if (tile_inside(p, t) && !(mask.uniform && !*mask.ptr)) {
    fetch(f, i, op, p, t);
    if (mask.uniform) return;
    const Ref x = f.val[i];
    // 0 wherever the mask is false
    f.k->op[NPU_OP_WHERE][type_class(op.dtype)](f.slot(op.slot), mask.ptr, x.ptr, &zero, t.n,
                                                (x.uniform ? 2u : 0u) | 4u);
    f.val[i] = {f.slot(op.slot), false};
    return;
  }
  const int size = 1 << p.log_size;
  char* to = f.temp(0);
  std::memset(to, 0, static_cast<size_t>(t.n) * static_cast<size_t>(size));
  each_point(t, [&](int64_t k, int64_t r, int64_t c) {
    if (!mask_at(mask, k)) return;
    const char* at = p.at + ((r * p.row_stride + c * p.col_stride) << p.log_size);
    if (!p.operand->immediate && !inside(*p.operand, at, p.log_size))
      return bad_address(f, op, (at - p.operand->begin) >> p.log_size, t, false);
    std::memcpy(to + k * size, at, static_cast<size_t>(size));
  });
  f.k->convert[p.operand->dtype][op.dtype](f.slot(op.slot), to, t.n);
  f.val[i] = {f.slot(op.slot), false};
}

// Offset (in elements) of point (r, c) plus the computed one, checked; false after a report.
bool computed(Frame& f, const Op& op, const Place& p, const Tile& t, int64_t r, int64_t c, int64_t offset, bool write,
              char** at) {
  const int64_t from_tile =
      static_cast<int64_t>(static_cast<uint64_t>(r * p.row_stride + c * p.col_stride) + static_cast<uint64_t>(offset));
  const int64_t limit = p.operand->limit;
  const int64_t element =
      static_cast<int64_t>(static_cast<uint64_t>(t.offset[op.view]) + static_cast<uint64_t>(from_tile));
  if (limit && (element < 0 || element >= limit)) {
    f.sink->report(NPU_ERROR_ADDRESS,
                   "expected an offset of 0 to " + std::to_string(limit - 1) + " in operand " + std::to_string(op.imm) +
                       ", got " + std::to_string(element),
                   t.position);
    return false;
  }
  // In elements from the start, so that a wild offset cannot wrap around into the allocation.
  const int64_t low = (p.operand->begin - p.operand->ptr) >> p.log_size;
  const int64_t high = (p.operand->end - p.operand->ptr) >> p.log_size;
  if (element < low || element >= high) {
    bad_address(f, op, element - low, t, write);
    return false;
  }
  *at = p.operand->ptr + element * (int64_t{1} << p.log_size);
  return true;
}

}  // namespace

char* direct_target(Frame& f, const Op& op, const Tile& t) {
  if (!f.direct_stores) return nullptr;
  const Op& store = f.plan->ops[op.store];
  const Place p = place(f, store, t);
  return p.operand->dtype == op.dtype && is_dense(p, t) ? p.at : nullptr;
}

void load(Frame& f, int i, const Tile& t) {
  const Op& op = f.plan->ops[i];
  if (op.mask != NPU_NO_VALUE)
    masked_load(f, i, op, t);
  else
    fetch(f, i, op, place(f, op, t), t);
}

void load_at(Frame& f, int i, const Tile& t) {
  const Op& op = f.plan->ops[i];
  const Place p = place(f, op, t);
  const Ref offset = f.val[op.a];
  const Ref mask = op.mask == NPU_NO_VALUE ? Ref{} : f.val[op.mask];
  const int size = 1 << p.log_size;
  const int64_t* offsets = reinterpret_cast<const int64_t*>(offset.ptr);
  char* to = f.temp(0);
  // Everything that a plain gather needs, hoisted out of the loop.
  const int64_t limit = p.operand->limit, base = t.offset[op.view];
  int64_t low = (p.operand->begin - p.operand->ptr) >> p.log_size,
          high = (p.operand->end - p.operand->ptr) >> p.log_size;
  if (limit) {
    low = std::max<int64_t>(low, 0);
    high = std::min(high, limit);
  }
  const uint64_t span = high > low ? static_cast<uint64_t>(high) - static_cast<uint64_t>(low) : 0;
  auto gather = [&](auto* out) {
    using T = std::remove_pointer_t<decltype(out)>;
    const T* memory = reinterpret_cast<const T*>(p.operand->ptr);
    each_point(t, [&](int64_t k, int64_t r, int64_t c) {
      out[k] = 0;
      if (mask.ptr && !mask_at(mask, k)) return;
      const int64_t given = offsets[offset.uniform ? 0 : k];
      const uint64_t element =
          static_cast<uint64_t>(base + r * p.row_stride + c * p.col_stride) + static_cast<uint64_t>(given);
      char* at;
      if (element - static_cast<uint64_t>(low) < span)
        out[k] = memory[static_cast<int64_t>(element)];
      else
        computed(f, op, p, t, r, c, given, false, &at);
    });
  };
  if (size == 1)
    gather(reinterpret_cast<uint8_t*>(to));
  else if (size == 2)
    gather(reinterpret_cast<uint16_t*>(to));
  else if (size == 4)
    gather(reinterpret_cast<uint32_t*>(to));
  else
    gather(reinterpret_cast<uint64_t*>(to));
  f.k->convert[p.operand->dtype][op.dtype](f.slot(op.slot), to, t.n);
  f.val[i] = {f.slot(op.slot), false};
}

void store(Frame& f, int i, const Tile& t) {
  const Op& op = f.plan->ops[i];
  const Place p = place(f, op, t);
  const Ref v = f.val[op.a];
  const int from = f.plan->ops[op.a].dtype, to = p.operand->dtype;
  Convert convert = f.k->convert[from][to];
  if (op.mask != NPU_NO_VALUE) {
    const Ref mask = f.val[op.mask];
    char* values = f.temp(0);
    convert(values, v.ptr, v.uniform ? 1 : t.n);
    const int size = 1 << p.log_size;
    each_point(t, [&](int64_t k, int64_t r, int64_t c) {
      if (!mask_at(mask, k)) return;
      char* at = p.at + ((r * p.row_stride + c * p.col_stride) << p.log_size);
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
    if (f.streams && from == to)
      f.k->stream(p.at, v.ptr, t.n << p.log_size);
    else
      convert(p.at, v.ptr, t.n);
  } else {
    const char* values = v.ptr;
    if (from != to || from == NPU_BOOL) {
      convert(f.temp(0), v.ptr, t.n);
      values = f.temp(0);
    }
    deposit(*f.k, p.at, values, p.log_size, t.rows, t.cols, p.row_stride, p.col_stride);
  }
}

void store_at(Frame& f, int i, const Tile& t) {
  static constexpr uint8_t kOps[] = {0, NPU_OP_ADD, NPU_OP_MUL, NPU_OP_MAX, NPU_OP_MIN};
  const Op& op = f.plan->ops[i];
  const Place p = place(f, op, t);
  const Ref v = f.val[op.a], offset = f.val[op.b];
  const Ref mask = op.mask == NPU_NO_VALUE ? Ref{} : f.val[op.mask];
  const int type = f.plan->ops[op.a].dtype, stored = p.operand->dtype;
  const int64_t* offsets = reinterpret_cast<const int64_t*>(offset.ptr);
  const int64_t value_size = v.uniform ? 0 : npu::dtype_size(type), size = int64_t{1} << p.log_size;
  Convert out = f.k->convert[type][stored], in = f.k->convert[stored][type];
  Kernel merge = op.flags == NPU_STORE_SET ? nullptr : f.k->op[kOps[op.flags]][type_class(type)];
  if (!merge && (stored != type || type == NPU_BOOL)) out(f.temp(0), v.ptr, v.uniform ? 1 : t.n);
  const char* ready = stored == type && type != NPU_BOOL ? v.ptr : f.temp(0);
  const bool add_f32 = op.flags == NPU_STORE_ADD && type == NPU_F32 && stored == NPU_F32;
  each_point(t, [&](int64_t k, int64_t r, int64_t c) {
    char* at;
    if (mask.ptr && !mask_at(mask, k)) return;
    if (!computed(f, op, p, t, r, c, offsets[offset.uniform ? 0 : k], true, &at)) return;
    if (!merge) {
      std::memcpy(at, ready + (v.uniform ? 0 : k * size), static_cast<size_t>(size));
    } else if (add_f32) {
      *reinterpret_cast<float*>(at) += *reinterpret_cast<const float*>(v.ptr + k * value_size);
    } else {
      uint64_t old = 0;
      in(&old, at, 1);
      merge(&old, &old, v.ptr + k * value_size, nullptr, 1, 0);
      out(at, &old, 1);
    }
  });
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
  char* slot = f.slot(op.slot);
  auto fill = [&](auto* out) {
    using T = std::remove_pointer_t<decltype(out)>;
    for (int64_t r = 0; r < t.rows; ++r, out += t.cols)
      for (int64_t c = 0; c < t.cols; ++c) out[c] = static_cast<T>(first + r * rs + c * cs);
  };
  if (op.dtype == NPU_I32)
    fill(reinterpret_cast<int32_t*>(slot));
  else
    fill(reinterpret_cast<int64_t*>(slot));
  f.val[i] = {slot, false};
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

void cast(Frame& f, int i, int64_t n) {
  const Op& op = f.plan->ops[i];
  const Ref a = f.val[op.a];
  const int64_t m = a.uniform ? 1 : n;
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
  f.val[i] = {out, a.uniform};
}

namespace {

template <class T>
void check_loop(Frame& f, const Op& op, Ref a, Ref b, Ref mask, T* out, int64_t m, const Tile& t) {
  const T *index = reinterpret_cast<const T*>(a.ptr), *size = reinterpret_cast<const T*>(b.ptr);
  for (int64_t k = 0; k < m; ++k) {
    const T given = index[a.uniform ? 0 : k], s = size[b.uniform ? 0 : k];
    out[k] = given;
    if (mask.ptr && !mask_at(mask, k)) continue;
    T x = given;
    if ((op.flags & NPU_INDEX_WRAP) && x < 0) x = static_cast<T>(static_cast<uint64_t>(x) + static_cast<uint64_t>(s));
    if ((op.flags & NPU_INDEX_CHECK) && (x < 0 || x >= s)) {
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
  const Ref a = f.val[op.a], b = f.val[op.b], mask = op.mask == NPU_NO_VALUE ? Ref{} : f.val[op.mask];
  const bool uniform = a.uniform && b.uniform && (!mask.ptr || mask.uniform);
  char* out = uniform ? reinterpret_cast<char*>(&f.scalar[i]) : f.slot(op.slot);
  const int64_t m = uniform ? 1 : t.n;
  if (op.dtype == NPU_I32)
    check_loop(f, op, a, b, mask, reinterpret_cast<int32_t*>(out), m, t);
  else
    check_loop(f, op, a, b, mask, reinterpret_cast<int64_t*>(out), m, t);
  f.val[i] = {out, uniform};
}

}  // namespace cmodel
