/* The rules of docs/isa.md for a program, whatever command will use it: "Programs" and "Instructions". */
#include <stdarg.h>
#include <stdio.h>

#include "program/program.h"

/* Where the type of a result comes from. */
enum { AS_ARGUMENT, OWN, TO_BOOL, TO_I32, TO_I64, NO_VALUE };
/* Which parts of npu_instr an instruction uses beside its arguments. */
enum { IMM = 1, FLAGS = 2, MASK = 4 };

/* What instructions first .. last have in common. The first rule that fits is taken. `types` 0: see check_types. */
typedef struct rule {
  uint8_t first, last, types, result, uses;
} rule;

static const rule rules[] = {
    {NPU_OP_SEGMENT, NPU_OP_SEGMENT, 0, NO_VALUE, IMM},
    {NPU_OP_CONST, NPU_OP_SIZE, 0, OWN, IMM}, /* const, param, index, size */
    {NPU_OP_LOAD, NPU_OP_LOAD_AT, 0, OWN, IMM | MASK},
    {NPU_OP_STORE, NPU_OP_STORE, 0, NO_VALUE, IMM | MASK},
    {NPU_OP_STORE_AT, NPU_OP_STORE_AT, 0, NO_VALUE, IMM | FLAGS | MASK},
    {NPU_OP_CHECK_INDEX, NPU_OP_CHECK_INDEX, IS_INT, AS_ARGUMENT, FLAGS | MASK},
    {NPU_OP_FOLD, NPU_OP_FOLD, 0, AS_ARGUMENT, IMM | MASK},
    {NPU_OP_SCAN, NPU_OP_SCAN, 0, AS_ARGUMENT, IMM},
    {NPU_OP_ACC, NPU_OP_ACC, 0, OWN, 0},
    {NPU_OP_YIELD, NPU_OP_YIELD, IS_ANY, NO_VALUE, IMM},
    {NPU_OP_GET, NPU_OP_BITCAST, 0, OWN, IMM}, /* get, arg, cast, bitcast */
    {NPU_OP_MIN, NPU_OP_MAX, IS_ANY, AS_ARGUMENT, 0},
    {NPU_OP_EQ, NPU_OP_GE, IS_ANY, TO_BOOL, 0},
    {NPU_OP_ISNAN, NPU_OP_ISINF, IS_FLOAT, TO_BOOL, 0},
    {NPU_OP_SIGNBIT, NPU_OP_SIGNBIT, IS_NUMBER, TO_BOOL, 0},
    {NPU_OP_AND, NPU_OP_NOT, IS_BITS, AS_ARGUMENT, 0},
    {NPU_OP_SHL, NPU_OP_SHR, IS_INT, AS_ARGUMENT, 0},
    {NPU_OP_WHERE, NPU_OP_WHERE, 0, OWN, 0},
    {NPU_OP_LDEXP, NPU_OP_LDEXP, 0, AS_ARGUMENT, 0},
    {NPU_OP_FREXP_E, NPU_OP_FREXP_E, IS_FLOAT, TO_I32, 0},
    {NPU_OP_PHILOX, NPU_OP_PHILOX, 0, TO_I64, IMM},
    {NPU_OP_FLOOR, NPU_OP_COUNT - 1, IS_FLOAT, AS_ARGUMENT, 0}, /* functions */
    {NPU_OP_SEGMENT, NPU_OP_COUNT - 1, IS_NUMBER, AS_ARGUMENT, 0},
};

static const rule* rule_of(int op) {
  const rule* r = rules;
  while (op < r->first || op > r->last) r++;
  return r;
}

static int argument_count(int op) {
  static const uint8_t count[] = {
#define NPU_OP(name, text, args) args,
#include "npu/ops.def"
#undef NPU_OP
  };
  return count[op];
}

npu_status broken(const npu_program_desc* desc, const npu_instr* in, const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char* name = desc->name ? desc->name : "";
  if (!in) return fail(NPU_ERROR_INVALID, "program '%s': %s", name, text);
  return fail(NPU_ERROR_INVALID, "program '%s': instruction %d (%s): %s", name, (int)(in - desc->instrs),
              op_name(in->op), text);
}

/* What is known at one instruction of those before it. */
typedef struct state {
  const npu_program_desc* desc;
  int segment, kind;                  /* the open segment: its number and what it is */
  int folds;                          /* in it */
  int has_fold, has_scan, has_acc;    /* in the program */
  int16_t segment_of[NPU_MAX_INSTRS]; /* of each instruction */
  uint8_t kind_of[NPU_MAX_INSTRS];    /* of each segment */
} state;

#define REQUIRE(holds, ...)                                \
  do {                                                     \
    if (!(holds)) return broken(s->desc, in, __VA_ARGS__); \
  } while (0)

static npu_status check_counts(const npu_program_desc* desc) {
  const struct {
    uint32_t count, most;
    const char* what;
  } limits[] = {{desc->instr_count, NPU_MAX_INSTRS, "instructions"},
                {desc->const_count, NPU_MAX_CONSTS, "constants"},
                {desc->operand_count, NPU_MAX_OPERANDS, "operands"},
                {desc->param_count, NPU_MAX_PARAMS, "parameters"}};
  if (desc->struct_size < sizeof *desc) return broken(desc, NULL, "expected struct_size to cover npu_program_desc");
  for (int i = 0; i < 4; i++)
    if (limits[i].count > limits[i].most)
      return broken(desc, NULL, "expected at most %u %s, got %u", limits[i].most, limits[i].what, limits[i].count);
  if (desc->zero != 0) return broken(desc, NULL, "expected the reserved field to be 0");
  if (desc->instr_count == 0 || !desc->instrs) return broken(desc, NULL, "expected at least one instruction, got none");
  if (desc->const_count && !desc->consts) return broken(desc, NULL, "expected constants, got a null pointer");
  if (desc->instrs[0].op != NPU_OP_SEGMENT) return broken(desc, NULL, "expected a segment as the first instruction");
  return NPU_OK;
}

static npu_status check_segment(state* s, const npu_instr* in) {
  REQUIRE(in->imm <= NPU_SEGMENT_COMBINE, "expected each, row or combine");
  REQUIRE(in->dtype == NPU_DTYPE_NONE && !in->flags && !in->zero && in->a == NPU_NO_VALUE && in->b == NPU_NO_VALUE &&
              in->c == NPU_NO_VALUE && in->mask == NPU_NO_VALUE,
          "expected nothing but a kind");
  s->segment++;
  s->kind = (int)in->imm;
  s->kind_of[s->segment] = (uint8_t)in->imm;
  s->folds = 0;
  return NPU_OK;
}

/* Segments see what stands before them as the table in isa.md says. */
static npu_status check_visible(const state* s, const npu_instr* in, uint16_t id) {
  if (id == NPU_NO_VALUE) return NPU_OK;
  const npu_instr* code = s->desc->instrs;
  REQUIRE(id < in - code, "expected the id of an earlier instruction, got %u", id);
  REQUIRE(code[id].dtype != NPU_DTYPE_NONE, "expected a value, got instruction %u, which defines none", id);
  const uint16_t root = code[id].op == NPU_OP_GET ? code[id].a : id; /* a member is seen where its tuple is */
  const int from = s->segment_of[root];
  int seen = from == s->segment;
  if (is_fold(&code[root])) {
    if (in->op == NPU_OP_GET) return NPU_OK;
    const int row = s->kind == NPU_SEGMENT_ROW && code[root].op == NPU_OP_FOLD;
    seen = from < s->segment && (s->kind == NPU_SEGMENT_EACH || row);
  } else if (s->kind_of[from] == NPU_SEGMENT_ROW) {
    seen = s->kind != NPU_SEGMENT_COMBINE;
  }
  REQUIRE(seen, "expected a value that this segment can see, got %%%u", id);
  return NPU_OK;
}

/* The range of imm. */
static npu_status check_number(const state* s, const npu_instr* in) {
  switch (in->op) {
    case NPU_OP_CONST: REQUIRE(in->imm < s->desc->const_count, "expected the number of a constant"); break;
    case NPU_OP_PARAM: REQUIRE(in->imm < s->desc->param_count, "expected the number of a parameter"); break;
    case NPU_OP_INDEX:
    case NPU_OP_SIZE: REQUIRE(in->imm < NPU_MAX_RANK, "expected a dimension below 8"); break;
    case NPU_OP_LOAD:
    case NPU_OP_LOAD_AT:
    case NPU_OP_STORE:
    case NPU_OP_STORE_AT: REQUIRE(in->imm < s->desc->operand_count, "expected the number of an operand"); break;
    default: break;
  }
  return NPU_OK;
}

/* Arguments present and visible, unused fields empty, numbers in range. */
static npu_status check_fields(const state* s, const npu_instr* in) {
  const rule* r = rule_of(in->op);
  const uint16_t ids[] = {in->a, in->b, in->c};
  for (int i = 0; i < 3; i++) {
    if (i < argument_count(in->op))
      REQUIRE(ids[i] != NPU_NO_VALUE, "expected one more argument");
    else
      REQUIRE(ids[i] == NPU_NO_VALUE || is_fold(in), "expected fewer arguments");
    if (check_visible(s, in, ids[i]) != NPU_OK) return NPU_ERROR_INVALID;
  }
  if (check_visible(s, in, in->mask) != NPU_OK) return NPU_ERROR_INVALID;
  REQUIRE(in->zero == 0, "expected the reserved field to be 0");
  REQUIRE((r->uses & IMM) || in->imm == 0, "expected imm to be 0");
  REQUIRE((r->uses & FLAGS) || in->flags == 0, "expected flags to be 0");
  if (in->mask != NPU_NO_VALUE) {
    REQUIRE(r->uses & MASK, "expected no mask on this instruction");
    REQUIRE(s->desc->instrs[in->mask].dtype == NPU_BOOL, "expected a mask of type bool");
  }
  if (r->result == NO_VALUE)
    REQUIRE(in->dtype == NPU_DTYPE_NONE, "expected no type: it defines no value");
  else
    REQUIRE(NPU_IS_COMPUTE_DTYPE(in->dtype), "expected a compute type: bool, i32, i64, u64, f32 or f64");
  return check_number(s, in);
}

/* Instructions that only some segments or programs may hold. */
static npu_status check_place(state* s, const npu_instr* in) {
  const int combine = s->kind == NPU_SEGMENT_COMBINE;
  switch (in->op) {
    case NPU_OP_ARG:
    case NPU_OP_YIELD: REQUIRE(combine, "expected it in a combine segment"); return NPU_OK;
    case NPU_OP_FOLD:
    case NPU_OP_SCAN:
      REQUIRE(s->kind == NPU_SEGMENT_EACH, "expected it in an each segment");
      REQUIRE(++s->folds <= NPU_MAX_FOLDS, "expected at most %d folds or scans in a segment", NPU_MAX_FOLDS);
      if (in->op == NPU_OP_FOLD)
        s->has_fold = 1;
      else
        s->has_scan = 1;
      break;
    case NPU_OP_ACC:
      REQUIRE(s->kind == NPU_SEGMENT_EACH, "expected it in an each segment");
      s->has_acc = 1;
      break;
    case NPU_OP_STORE_AT: REQUIRE(s->kind == NPU_SEGMENT_EACH, "expected it in an each segment"); return NPU_OK;
    case NPU_OP_INDEX:
    case NPU_OP_SIZE:
    case NPU_OP_LOAD:
    case NPU_OP_LOAD_AT:
    case NPU_OP_STORE:
    case NPU_OP_CHECK_INDEX:
    case NPU_OP_GET:
      REQUIRE(!combine, "expected arg, yield, const, param and arithmetic only in combine");
      return NPU_OK;
    default: return NPU_OK;
  }
  REQUIRE(s->has_fold + s->has_scan + s->has_acc <= 1, "expected only one of fold, scan and acc in a program");
  return NPU_OK;
}

static npu_status check_store_at(const state* s, const npu_instr* in) {
  const npu_instr* code = s->desc->instrs;
  const int sums = in->flags == NPU_STORE_ADD || in->flags == NPU_STORE_MUL;
  REQUIRE(in->flags <= NPU_STORE_MIN, "expected set, add, mul, max or min");
  REQUIRE(code[in->a].dtype != NPU_BOOL || !sums, "expected set, max or min for a bool");
  REQUIRE(code[in->b].dtype == NPU_I64, "expected an offset of type i64, got %s", dtype_name(code[in->b].dtype));
  return NPU_OK;
}

static npu_status check_get(const state* s, const npu_instr* in) {
  const npu_instr* tuple = &s->desc->instrs[in->a];
  REQUIRE(is_fold(tuple), "expected a fold or a scan as argument");
  REQUIRE(in->imm < (uint32_t)fold_members(tuple), "expected a member of the tuple");
  const int type = fold_member_type(s->desc->instrs, tuple, (int)in->imm);
  REQUIRE(in->dtype == type, "expected type %s", dtype_name(type));
  return NPU_OK;
}

static npu_status check_bitcast(const state* s, const npu_instr* in) {
  const int from = (int)(in->imm & 0xff), to = (int)(in->imm >> 8);
  REQUIRE(dtype_width(from) && dtype_width(from) == dtype_width(to), "expected two storage types of one width");
  REQUIRE(s->desc->instrs[in->a].dtype == compute_dtype(from), "expected an argument of type %s",
          dtype_name(compute_dtype(from)));
  REQUIRE(in->dtype == compute_dtype(to), "expected type %s", dtype_name(compute_dtype(to)));
  return NPU_OK;
}

/* Arguments of one class, and the result that follows from them. */
static npu_status check_same(const state* s, const npu_instr* in) {
  const rule* r = rule_of(in->op);
  const npu_instr* code = s->desc->instrs;
  const uint16_t ids[] = {in->a, in->b, in->c};
  if (r->result == OWN || !r->types) return NPU_OK;
  for (int i = 0; i < argument_count(in->op); i++) {
    REQUIRE(code[ids[i]].dtype == code[in->a].dtype, "expected arguments of one type");
    REQUIRE(dtype_class(code[ids[i]].dtype) & r->types, "expected another type of argument, got %s",
            dtype_name(code[ids[i]].dtype));
  }
  if (r->result == NO_VALUE) return NPU_OK;
  const int result = r->result == TO_BOOL ? NPU_BOOL : r->result == TO_I32 ? NPU_I32 : code[in->a].dtype;
  REQUIRE(in->dtype == result, "expected type %s, got %s", dtype_name(result), dtype_name(in->dtype));
  return NPU_OK;
}

static npu_status check_types(const state* s, const npu_instr* in) {
  const npu_instr* code = s->desc->instrs;
  switch (in->op) {
    case NPU_OP_INDEX:
    case NPU_OP_SIZE: REQUIRE(in->dtype == NPU_I64 || in->dtype == NPU_I32, "expected type i64 or i32"); break;
    case NPU_OP_LOAD_AT: REQUIRE(code[in->a].dtype == NPU_I64, "expected an offset of type i64"); break;
    case NPU_OP_STORE_AT: return check_store_at(s, in);
    case NPU_OP_CHECK_INDEX:
      REQUIRE(in->dtype == NPU_I32 || in->dtype == NPU_I64, "expected an index of type i32 or i64");
      REQUIRE(!(in->flags & ~(NPU_INDEX_WRAP | NPU_INDEX_CHECK)), "expected the flags wrap and check only");
      break;
    case NPU_OP_FOLD:
    case NPU_OP_SCAN: return check_fold(s->desc, in);
    case NPU_OP_GET: return check_get(s, in);
    case NPU_OP_ARG: REQUIRE(in->imm < 2 * NPU_MAX_TUPLE, "expected an argument below 6"); break;
    case NPU_OP_YIELD: REQUIRE(in->imm < NPU_MAX_TUPLE, "expected a member below 3"); break;
    case NPU_OP_CAST:
      REQUIRE(in->imm < NPU_DTYPE_COUNT || in->imm == NPU_DTYPE_NONE, "expected a storage type or none");
      break;
    case NPU_OP_BITCAST: return check_bitcast(s, in);
    case NPU_OP_WHERE:
      REQUIRE(code[in->a].dtype == NPU_BOOL, "expected a condition of type bool");
      REQUIRE(code[in->b].dtype == in->dtype && code[in->c].dtype == in->dtype, "expected choices of its own type");
      break;
    case NPU_OP_LDEXP:
      REQUIRE(dtype_class(in->dtype) == IS_FLOAT && code[in->a].dtype == in->dtype, "expected type f32 or f64");
      REQUIRE(code[in->b].dtype == NPU_I32, "expected an exponent of type i32");
      break;
    case NPU_OP_PHILOX:
      REQUIRE(in->imm < 4, "expected a word below 4");
      REQUIRE(code[in->a].dtype == NPU_I64 && code[in->b].dtype == NPU_I64 && code[in->c].dtype == NPU_I64,
              "expected arguments of type i64");
      REQUIRE(in->dtype == NPU_I64, "expected type i64, got %s", dtype_name(in->dtype));
      break;
    default: break;
  }
  return check_same(s, in);
}

npu_status program_check(const npu_program_desc* desc) {
  if (check_counts(desc) != NPU_OK) return NPU_ERROR_INVALID;
  state s = {.desc = desc, .segment = -1};
  for (uint32_t i = 0; i < desc->instr_count; i++) {
    const npu_instr* in = &desc->instrs[i];
    if (in->op >= NPU_OP_COUNT) /* a younger host may know it */
      return fail(NPU_UNSUPPORTED, "instruction %u: expected one of contract %d.%d, got number %u", i, NPU_ABI_MAJOR,
                  NPU_ABI_MINOR, in->op);
    npu_status status = in->op == NPU_OP_SEGMENT ? check_segment(&s, in) : check_fields(&s, in);
    s.segment_of[i] = (int16_t)s.segment;
    if (status == NPU_OK && in->op != NPU_OP_SEGMENT) status = check_place(&s, in);
    if (status == NPU_OK && in->op != NPU_OP_SEGMENT) status = check_types(&s, in);
    if (status != NPU_OK) return status;
  }
  const npu_status status = check_combines(desc);
  return status == NPU_OK ? check_live(desc) : status;
}
