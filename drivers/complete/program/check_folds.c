/* Rules for folds, for the combine segments that they use, and for the number of values that live at once. */
#include "program/program.h"

#define REQUIRE(holds, ...)                             \
  do {                                                  \
    if (!(holds)) return broken(desc, in, __VA_ARGS__); \
  } while (0)

npu_status check_fold(const npu_program_desc* desc, const npu_instr* in) {
  const npu_instr* code = desc->instrs;
  const int kind = fold_kind(in), class = dtype_class(in->dtype);
  const int has_b = in->b != NPU_NO_VALUE, has_c = in->c != NPU_NO_VALUE;
  REQUIRE(kind < NPU_FOLD_COUNT, "expected a known fold");
  REQUIRE(in->dtype == code[in->a].dtype, "expected the type of its first argument");
  REQUIRE(kind == NPU_FOLD_CUSTOM || fold_combine(in) == 0, "expected a combine segment for custom only");
  REQUIRE(has_b || !has_c, "expected arguments without a gap");
  switch (kind) {
    case NPU_FOLD_SUM:
    case NPU_FOLD_PROD: REQUIRE(class & IS_NUMBER, "expected a number, got bool"); break;
    case NPU_FOLD_AND:
    case NPU_FOLD_OR:
    case NPU_FOLD_XOR: REQUIRE(class & IS_BITS, "expected bool or an integer"); break;
    case NPU_FOLD_ARGMAX:
    case NPU_FOLD_ARGMIN:
      REQUIRE(has_b && !has_c, "expected a value and an index");
      REQUIRE(code[in->b].dtype == NPU_I64, "expected an index of type i64");
      return NPU_OK;
    case NPU_FOLD_WELFORD:
      REQUIRE(class == IS_FLOAT, "expected f32 or f64");
      REQUIRE(has_b == has_c, "expected one value, or mean, m2 and count");
      REQUIRE(!has_b || (code[in->b].dtype == in->dtype && code[in->c].dtype == in->dtype), "expected one type");
      return NPU_OK;
    case NPU_FOLD_CUSTOM: return NPU_OK;
    default: break;
  }
  REQUIRE(!has_b, "expected one argument");
  return NPU_OK;
}

/* A combine segment: the types of its members, by what it yields and reads. */
typedef struct combine {
  int members;
  uint8_t yields[NPU_MAX_TUPLE], args[2 * NPU_MAX_TUPLE];
  int used;
} combine;

/* Keeps the first type seen; another one later is an error. */
static npu_status note(const npu_program_desc* desc, const npu_instr* in, uint8_t* slot, int dtype) {
  REQUIRE(*slot == NPU_DTYPE_NONE || *slot == dtype, "expected type %s as before", dtype_name(*slot));
  *slot = (uint8_t)dtype;
  return NPU_OK;
}

/* Reads arg and yield of the segment that begins behind `in`. */
static npu_status read_combine(const npu_program_desc* desc, const npu_instr* in, combine* out) {
  const npu_instr* end = desc->instrs + desc->instr_count;
  *out = (combine){.yields = {NPU_DTYPE_NONE, NPU_DTYPE_NONE, NPU_DTYPE_NONE}};
  for (int k = 0; k < 2 * NPU_MAX_TUPLE; k++) out->args[k] = NPU_DTYPE_NONE;
  for (const npu_instr* i = in + 1; i < end && i->op != NPU_OP_SEGMENT; i++) {
    npu_status status = NPU_OK;
    if (i->op == NPU_OP_ARG) status = note(desc, i, &out->args[i->imm], i->dtype);
    if (i->op == NPU_OP_YIELD) {
      if (out->yields[i->imm] != NPU_DTYPE_NONE) return broken(desc, i, "expected one yield for each member");
      status = note(desc, i, &out->yields[i->imm], desc->instrs[i->a].dtype);
    }
    if (status != NPU_OK) return status;
  }
  int n = 0;
  while (n < NPU_MAX_TUPLE && out->yields[n] != NPU_DTYPE_NONE) n++;
  for (int k = n; k < NPU_MAX_TUPLE; k++)
    REQUIRE(n > 0 && out->yields[k] == NPU_DTYPE_NONE, "expected a yield for members 0, 1, ...");
  for (int k = 0; k < 2 * NPU_MAX_TUPLE; k++)
    REQUIRE(out->args[k] == NPU_DTYPE_NONE || (k < 2 * n && out->args[k] == out->yields[k % n]),
            "expected arg %d to have the type of its member", k);
  out->members = n;
  return NPU_OK;
}

/* A combine segment may stand behind the fold that uses it, so the two are compared at the end. */
npu_status check_combines(const npu_program_desc* desc) {
  combine combines[NPU_MAX_INSTRS / 2 + 1];
  uint32_t count = 0;
  const npu_instr* end = desc->instrs + desc->instr_count;
  for (const npu_instr* in = desc->instrs; in < end; in++)
    if (in->op == NPU_OP_SEGMENT && in->imm == NPU_SEGMENT_COMBINE) {
      REQUIRE(count < sizeof combines / sizeof *combines, "expected fewer combine segments");
      if (read_combine(desc, in, &combines[count++]) != NPU_OK) return NPU_ERROR_INVALID;
    }
  for (const npu_instr* in = desc->instrs; in < end; in++) {
    if (!is_fold(in) || fold_kind(in) != NPU_FOLD_CUSTOM) continue;
    REQUIRE(fold_combine(in) < count, "expected the number of a combine segment");
    combine* c = &combines[fold_combine(in)];
    c->used = 1;
    REQUIRE(c->members == fold_members(in), "expected as many members as the combine segment yields");
    for (int k = 0; k < c->members; k++)
      REQUIRE(fold_member_type(desc->instrs, in, k) == c->yields[k], "expected the types of the combine segment");
  }
  const npu_instr* in = NULL;
  for (uint32_t k = 0; k < count; k++)
    REQUIRE(combines[k].used, "combine segment %u: expected a custom fold or scan that uses it", k);
  return NPU_OK;
}

/* A value lives from its definition to its last use, an accumulator to the end of its segment at least. */
npu_status check_live(const npu_program_desc* desc) {
  const int n = (int)desc->instr_count;
  int last[NPU_MAX_INSTRS] = {0}, change[NPU_MAX_INSTRS + 1] = {0};
  for (int i = n - 1, end = n; i >= 0; i--) {
    const npu_instr* in = &desc->instrs[i];
    if (in->op == NPU_OP_SEGMENT) end = i;
    if (is_fold(in) && last[i] < end - 1) last[i] = end - 1;
    const int use = in->op == NPU_OP_GET && last[i] > i ? last[i] : i; /* a `get` is only a name */
    const uint16_t ids[] = {in->a, in->b, in->c, in->mask};
    for (int k = 0; k < 4; k++)
      if (ids[k] != NPU_NO_VALUE && last[ids[k]] < use) last[ids[k]] = use;
  }
  for (int i = 0; i < n; i++) {
    const npu_instr* in = &desc->instrs[i];
    if (in->op == NPU_OP_CONST || in->op == NPU_OP_PARAM || in->op == NPU_OP_GET || last[i] <= i) continue;
    const int weight = is_fold(in) ? fold_members(in) : 1;
    change[i] += weight;
    change[last[i]] -= weight;
  }
  for (int i = 0, live = 0; i < n; i++) {
    const npu_instr* in = &desc->instrs[i];
    live += change[i];
    REQUIRE(live <= NPU_MAX_LIVE, "expected at most %d live values, got %d", NPU_MAX_LIVE, live);
  }
  return NPU_OK;
}
