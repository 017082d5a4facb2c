#include "program/arithmetic.h"

#include <math.h>
#include <string.h>

#include "program/convert.h"
#include "program/functions.h"

#define REAL float
#define LANE f32
#define NAME(x) f32_##x
#define F(x) x##f
#include "program/reals.inc"
#undef REAL
#undef LANE
#undef NAME
#undef F

#define REAL double
#define LANE f64
#define NAME(x) f64_##x
#define F(x) x
#include "program/reals.inc"
#undef REAL
#undef LANE
#undef NAME
#undef F

#define IS_SIGNED 1
#define IS_BELOW_ZERO(x) ((x) < 0)
#define KEEP(x) (INT)(x)
#define INT int32_t
#define UINT uint32_t
#define LANE i32
#define NAME(x) i32_##x
#include "program/integers.inc"
#undef INT
#undef UINT
#undef LANE
#undef NAME

#define INT int64_t
#define UINT uint64_t
#define LANE i64
#define NAME(x) i64_##x
#include "program/integers.inc"
#undef INT
#undef UINT
#undef LANE
#undef NAME
#undef IS_SIGNED
#undef IS_BELOW_ZERO

#define IS_SIGNED 0
#define IS_BELOW_ZERO(x) 0
#define INT uint64_t
#define UINT uint64_t
#define LANE u64
#define NAME(x) u64_##x
#include "program/integers.inc"
#undef INT
#undef UINT
#undef LANE
#undef NAME
#undef KEEP

#define KEEP(x) (INT)((x) & 1)
#define INT uint8_t
#define UINT uint8_t
#define LANE b
#define NAME(x) bool_##x
#include "program/integers.inc"

/* What changes the type: as if stored in a storage type and loaded as another, or the same. */
static void through_storage(int n, lanes* out, int to, int load_as, const lanes* in, int from, int store_as) {
  char bytes[BLOCK * 8];
  store_lanes(n, in, from, store_as, bytes, NULL);
  load_lanes(n, out, to, load_as, bytes, NULL);
}

static void cast(const npu_instr* in, int type, int n, lanes* out, const lanes* a) {
  if (in->imm != NPU_DTYPE_NONE)
    through_storage(n, out, in->dtype, (int)in->imm, a, type, (int)in->imm);
  else if (type == in->dtype)
    memcpy(out, a, (size_t)(n * lane_width(type)));
  else
    convert(n, out, in->dtype, a, type);
}

void compute(const npu_instr* in, int type, int n, lanes* restrict out, const lanes* a, const lanes* b,
             const lanes* c) {
  if (!b) b = a; /* an argument that is not there is read, and not used */
  if (!c) c = a;
  if (in->op == NPU_OP_CAST) return cast(in, type, n, out, a);
  if (in->op == NPU_OP_BITCAST)
    return through_storage(n, out, in->dtype, (int)(in->imm >> 8), a, type, (int)(in->imm & 0xff));
  if (in->op == NPU_OP_PHILOX) {
    for (int i = 0; i < n; i++) out->i64[i] = philox(a->u64[i], b->u64[i], c->u64[i], (int)in->imm);
    return;
  }
  switch (type) {
    case NPU_BOOL: return bool_compute(in->op, n, out, a, b, c);
    case NPU_I32: return i32_compute(in->op, n, out, a, b, c);
    case NPU_I64: return i64_compute(in->op, n, out, a, b, c);
    case NPU_U64: return u64_compute(in->op, n, out, a, b, c);
    case NPU_F32: return f32_compute(in->op, n, out, a, b, c);
    default: return f64_compute(in->op, n, out, a, b, c);
  }
}

int fold_op(int kind) {
  static const uint8_t op[] = {NPU_OP_ADD, NPU_OP_MUL, NPU_OP_MAX, NPU_OP_MIN, NPU_OP_AND, NPU_OP_OR, NPU_OP_XOR};
  return op[kind];
}

static value smallest(int type) {
  switch (type) {
    case NPU_BOOL: return (value){.b = 0};
    case NPU_I32: return (value){.i32 = INT32_MIN};
    case NPU_I64: return (value){.i64 = INT64_MIN};
    case NPU_U64: return (value){.u64 = 0};
    case NPU_F32: return (value){.f32 = -INFINITY};
    default: return (value){.f64 = -INFINITY};
  }
}

static value largest(int type) {
  switch (type) {
    case NPU_BOOL: return (value){.b = 1};
    case NPU_I32: return (value){.i32 = INT32_MAX};
    case NPU_I64: return (value){.i64 = INT64_MAX};
    case NPU_U64: return (value){.u64 = UINT64_MAX};
    case NPU_F32: return (value){.f32 = INFINITY};
    default: return (value){.f64 = INFINITY};
  }
}

static value one(int type) {
  switch (type) {
    case NPU_F32: return (value){.f32 = 1};
    case NPU_F64: return (value){.f64 = 1};
    default: return (value){.u64 = 1};
  }
}

value fold_identity(int kind, int type) {
  switch (kind) {
    case NPU_FOLD_PROD: return one(type);
    case NPU_FOLD_MAX:
    case NPU_FOLD_ARGMAX: return smallest(type);
    case NPU_FOLD_MIN:
    case NPU_FOLD_ARGMIN: return largest(type);
    case NPU_FOLD_AND: return type == NPU_BOOL ? (value){.b = 1} : (value){.u64 = UINT64_MAX};
    default: return (value){.u64 = 0};
  }
}

void fold_values(int kind, int type, int n, lanes* into, const lanes* x) {
  switch (type) {
    case NPU_BOOL: return bool_fold(kind, n, into, x);
    case NPU_I32: return i32_fold(kind, n, into, x);
    case NPU_I64: return i64_fold(kind, n, into, x);
    case NPU_U64: return u64_fold(kind, n, into, x);
    case NPU_F32: return f32_fold(kind, n, into, x);
    default: return f64_fold(kind, n, into, x);
  }
}

void fold_finish(int kind, int type, lanes* lane) {
  const npu_instr op = {.op = (uint8_t)fold_op(kind), .dtype = (uint8_t)type};
  for (int half = FOLD_LANES / 2; half > 0; half /= 2) {
    lanes upper, both;
    memcpy(&upper, (char*)lane + half * lane_width(type), (size_t)(half * lane_width(type)));
    compute(&op, type, half, &both, lane, &upper, NULL);
    memcpy(lane, &both, (size_t)(half * lane_width(type)));
  }
}

void scan_values(int kind, int type, int n, value* state, const lanes* x, lanes* restrict out) {
  switch (type) {
    case NPU_BOOL: return bool_scan(kind, n, state, x, out);
    case NPU_I32: return i32_scan(kind, n, state, x, out);
    case NPU_I64: return i64_scan(kind, n, state, x, out);
    case NPU_U64: return u64_scan(kind, n, state, x, out);
    case NPU_F32: return f32_scan(kind, n, state, x, out);
    default: return f64_scan(kind, n, state, x, out);
  }
}
