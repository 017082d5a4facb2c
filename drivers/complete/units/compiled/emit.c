/* A program as C. CHIP: the source text that your compiler takes. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "program/functions.h"
#include "units/compiled/compiled.h"

/* Text that grows. */
typedef struct text {
  char* at;
  size_t size, room;
} text;

__attribute__((format(printf, 2, 3))) static void say(text* t, const char* format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int more = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  while (t->at && t->size + (size_t)more + 1 > t->room) {
    char* larger = realloc(t->at, t->room *= 2);
    if (!larger) free(t->at);
    t->at = larger;
  }
  if (t->at) t->size += (size_t)vsnprintf(t->at + t->size, t->room - t->size, format, again);
  va_end(again);
}

static const char* c_type(int compute) {
  switch (compute) {
    case NPU_BOOL: return "uint8_t";
    case NPU_I32: return "int32_t";
    case NPU_I64: return "int64_t";
    case NPU_U64: return "uint64_t";
    case NPU_F32: return "float";
    default: return "double";
  }
}

static int is_emitted(const npu_instr* code, const npu_instr* in) {
  switch (in->op) {
    case NPU_OP_LOAD_AT:
    case NPU_OP_CHECK_INDEX:
    case NPU_OP_BITCAST:
    case NPU_OP_PHILOX:
    case NPU_OP_LDEXP:
    case NPU_OP_FREXP_M:
    case NPU_OP_FREXP_E:
    case NPU_OP_ERFINV:
    case NPU_OP_LGAMMA:
    case NPU_OP_DIGAMMA: return 0;
    case NPU_OP_POW: return dtype_class(code[in->a].dtype) == IS_FLOAT;
    default: return 1;
  }
}

int can_emit(const code* code) {
  for (uint32_t i = 0; i < code->desc.instr_count; i++)
    if (!is_emitted(code->desc.instrs, &code->desc.instrs[i])) return 0;
  return 1;
}

/* What opens a conversion between compute types; ")" closes it. */
static const char* conversion(int from, int to) {
  const int real = dtype_class(from) == IS_FLOAT;
  if (from == to) return "(";
  switch (to) {
    case NPU_BOOL: return "(0 != ";
    case NPU_I32: return real ? "to_i32(" : "(int32_t)(";
    case NPU_I64: return real ? "to_i64(" : "(int64_t)(";
    case NPU_U64: return real ? "to_u64(" : "(uint64_t)(";
    case NPU_F32: return real ? "to_f32(" : "(float)(";
    default: return real ? "to_f64(" : "(double)(";
  }
}

/* The storage type as C sees it: f16 and bf16 are their bits, bool is a byte. */
static const char* storage_name(int dtype) {
  return dtype == NPU_BOOL ? "u8" : dtype == NPU_F16 || dtype == NPU_BF16 ? "u16" : dtype_name(dtype);
}

/* What turns a stored value into its compute type, and back. */
static const char* widening(int dtype) {
  return dtype == NPU_BOOL ? "0 != " : dtype == NPU_F16 ? "f16_to_f32" : dtype == NPU_BF16 ? "bf16_to_f32" : "";
}
static const char* narrowing(int dtype) {
  return dtype == NPU_F16 ? "f32_to_f16" : dtype == NPU_BF16 ? "f32_to_bf16" : "";
}

/* Where an operand's element lies, in the innermost loop. */
static void say_place(text* t, const layout* l, uint32_t k) {
  const int width = dtype_width(l->dtype[k]);
  if (l->step[k] == 1)
    say(t, "p%u + i * %d", k, width);
  else if (l->step[k] == ANY_STEP)
    say(t, "p%u + i * s%u", k, k);
  else
    say(t, "p%u", k);
}

static void say_load(text* t, const layout* l, const npu_instr* in) {
  const int dtype = l->dtype[in->imm];
  if (in->mask != NPU_NO_VALUE) say(t, "!v%u ? 0 : ", in->mask);
  say(t, "%s%s(read_%s(", conversion(compute_dtype(dtype), in->dtype), widening(dtype), storage_name(dtype));
  say_place(t, l, in->imm);
  say(t, ")))");
}

static void say_store(text* t, const layout* l, const npu_instr* code, const npu_instr* in) {
  const int dtype = l->dtype[in->imm];
  if (in->mask != NPU_NO_VALUE) say(t, "if (v%u) ", in->mask);
  say(t, "write_%s(", storage_name(dtype));
  say_place(t, l, in->imm);
  say(t, ", %s(%sv%u)));\n", narrowing(dtype), conversion(code[in->a].dtype, compute_dtype(dtype)), in->a);
}

/* A constant is an int64_t or a double, converted. */
static void say_constant(text* t, const code* code, const npu_instr* in) {
  const int from = dtype_class(in->dtype) == IS_FLOAT ? NPU_F64 : NPU_I64;
  say(t, "%s((scalar){.u = 0x%" PRIx64 "ull}).%c)", conversion(from, in->dtype), code->desc.consts[in->imm],
      from == NPU_F64 ? 'f' : 'i');
}

/* As if stored and loaded: rounds, wraps, or makes bool. */
static void say_cast(text* t, const npu_instr* code, const npu_instr* in) {
  const int from = code[in->a].dtype, via = (int)in->imm;
  if (in->imm == NPU_DTYPE_NONE) {
    say(t, "%sv%u)", conversion(from, in->dtype), in->a);
    return;
  }
  static const char* const cut[NPU_DTYPE_COUNT] = {
      [NPU_U8] = "(uint8_t)",   [NPU_I8] = "(int8_t)",    [NPU_U16] = "(uint16_t)",  [NPU_I16] = "(int16_t)",
      [NPU_U32] = "(uint32_t)", [NPU_F16] = "f32_to_f16", [NPU_BF16] = "f32_to_bf16"};
  const int exact = compute_dtype(via);
  say(t, "%s%s(%s(%sv%u))))", conversion(exact, in->dtype), via == NPU_BOOL ? "" : widening(via),
      cut[via] ? cut[via] : "", conversion(from, exact), in->a);
}

static void say_value(text* t, const code* code, const layout* l, const npu_instr* in) {
  const npu_instr* instrs = code->desc.instrs;
  const int scalar = dtype_class(in->dtype) == IS_FLOAT ? NPU_F64 : NPU_I64;
  say(t, "    const %s v%d = ", c_type(in->dtype), (int)(in - instrs));
  switch (in->op) {
    case NPU_OP_CONST: say_constant(t, code, in); break;
    case NPU_OP_PARAM:
      say(t, "%sw->params[%u].%c)", conversion(scalar, in->dtype), in->imm, scalar == NPU_F64 ? 'f' : 'i');
      break;
    case NPU_OP_SIZE: say(t, "(%s)w->shape[%u]", c_type(in->dtype), in->imm); break;
    case NPU_OP_INDEX:
      if ((int)in->imm == l->rank - 1)
        say(t, "(%s)i", c_type(in->dtype));
      else
        say(t, "(%s)c%u", c_type(in->dtype), in->imm);
      break;
    case NPU_OP_LOAD: say_load(t, l, in); break;
    case NPU_OP_CAST: say_cast(t, instrs, in); break;
    default: {
      const uint16_t ids[] = {in->a, in->b, in->c};
      const int type = instrs[in->op == NPU_OP_WHERE ? in->b : in->a].dtype;
      say(t, "%s_%s(", op_name(in->op), dtype_name(type));
      for (int k = 0; k < 3 && ids[k] != NPU_NO_VALUE; k++) say(t, "%sv%u", k ? ", " : "", ids[k]);
      say(t, ")");
    }
  }
  say(t, ";\n");
}

/* Loops over all dimensions but the innermost, and the operands' addresses in it. */
static void say_loops(text* t, const code* code, const layout* l) {
  for (int d = 0; d + 1 < l->rank; d++) say(t, "  for (int64_t c%d = 0; c%d < w->size[%d]; c%d++)\n", d, d, d, d);
  say(t, "  {\n");
  for (uint32_t k = 0; k < code->desc.operand_count; k++) {
    say(t, "    char* const p%u = w->at[%u]", k, k);
    for (int d = 0; d + 1 < l->rank; d++) say(t, " + c%d * w->stride[%u][%d]", d, k, d);
    say(t, ";\n    const int64_t s%u = w->stride[%u][%d];\n    (void)p%u, (void)s%u;\n", k, k, l->rank - 1, k, k);
  }
}

char* emit_kernel(const code* code, const layout* l) {
  text t = {.at = malloc(1 << 16), .room = 1 << 16};
  say(&t, "%s\nvoid kernel(const walk* w);\nvoid kernel(const walk* w) {\n", kernel_prelude);
  say_loops(&t, code, l);
  say(&t, "    for (int64_t i = 0; i < w->size[%d]; i++) {\n", l->rank - 1);
  for (uint16_t k = code->segments[0].first; k < code->segments[0].end; k++) {
    const npu_instr* in = &code->desc.instrs[k];
    if (in->op == NPU_OP_STORE)
      say_store(&t, l, code->desc.instrs, in);
    else
      say_value(&t, code, l, in);
  }
  say(&t, "    }\n  }\n}\n");
  return t.at;
}
