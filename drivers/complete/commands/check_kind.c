/* Rules for one kind of command, and for the program that it brings. */
#include "commands/check_command.h"

#define REQUIRE(holds, ...)                            \
  do {                                                 \
    if (!(holds)) return refuse(command, __VA_ARGS__); \
  } while (0)

static npu_status check_product(const npu_command* command) {
  const int acc = acc_dtype(command);
  const int flags = command->kind == NPU_MATMUL ? command->u.matmul.flags : command->u.conv.flags;
  REQUIRE(acc == NPU_F32 || acc == NPU_F64 || acc == NPU_I32 || acc == NPU_I64,
          "expected acc_dtype f32, f64, i32 or i64, got %s", dtype_name(acc));
  REQUIRE(!(flags & ~NPU_MATMUL_REDUCED), "expected known flags, got %d", flags);
  for (int i = 0; i < 2; i++)
    REQUIRE(!is_float(command->operands[i].dtype) || is_float(acc),
            "operand %d: expected an integer type for acc_dtype %s", i, dtype_name(acc));
  return command->program ? NPU_OK : check_written(command, 2);
}

static npu_status check_matmul(const npu_command* command) {
  REQUIRE(command->rank >= 2, "expected rank 2 or more, got %d", command->rank);
  REQUIRE(command->u.matmul.k >= 0, "expected k of 0 or more, got %" PRId64, command->u.matmul.k);
  return check_product(command);
}

/* The size of dimension d of the result. */
static int64_t result_size(const npu_conv* c, int d) {
  const int weight = c->mode == NPU_CONV_GRAD_WEIGHT, input = c->mode == NPU_CONV_GRAD_INPUT;
  if (d == 0) return weight ? c->out_channels : c->batch;
  if (d == 1) return weight ? c->in_channels / c->groups : input ? c->in_channels : c->out_channels;
  return weight ? c->kernel[d - 2] : input ? c->in_size[d - 2] : c->out_size[d - 2];
}

static npu_status check_conv(const npu_command* command) {
  const npu_conv* c = &command->u.conv;
  REQUIRE(c->mode <= NPU_CONV_GRAD_WEIGHT, "expected a convolution mode of 0 to 2, got %u", c->mode);
  REQUIRE(c->spatial_rank >= 1 && c->spatial_rank <= 3, "expected 1 to 3 spatial dimensions, got %u", c->spatial_rank);
  const int spatial = (int)c->spatial_rank;
  REQUIRE(command->rank == 2 + spatial, "expected rank %d, got %d", 2 + spatial, command->rank);
  REQUIRE(c->batch >= 0 && c->in_channels >= 0 && c->out_channels >= 0, "expected sizes of 0 or more");
  REQUIRE(c->groups >= 1 && c->in_channels % c->groups == 0 && c->out_channels % c->groups == 0,
          "expected groups that divide the channels, got %" PRId64, c->groups);
  for (int d = 0; d < spatial; d++) {
    REQUIRE(c->in_size[d] >= 0 && c->out_size[d] >= 0 && c->kernel[d] >= 1,
            "spatial dimension %d: expected sizes of 0 or more and a kernel of 1 or more", d);
    REQUIRE(c->stride[d] >= 1 && c->dilation[d] >= 1 && c->padding[d] >= 0,
            "spatial dimension %d: expected stride and dilation of 1 or more, padding of 0 or more", d);
  }
  for (int d = 0; d < command->rank; d++)
    REQUIRE(command->size[d] == result_size(c, d), "size of dimension %d: expected %" PRId64 ", got %" PRId64, d,
            result_size(c, d), command->size[d]);
  return check_product(command);
}

static npu_status check_sort(const npu_command* command) {
  const int64_t n = command->size[command->rank - 1], count = command->u.sort.count;
  REQUIRE(count >= 0 && count <= n, "expected a count of 0 to %" PRId64 ", got %" PRId64, n, count);
  for (int i = 1; i <= 3; i += 2) {
    const int dtype = command->operands[i].dtype;
    REQUIRE(dtype != NPU_BOOL && !is_float(dtype), "operand %d: expected an integer type, got %s", i,
            dtype_name(dtype));
  }
  const npu_status status = check_written(command, 2);
  return status == NPU_OK ? check_written(command, 3) : status;
}

npu_status check_kind(const npu_command* command) {
  switch (command->kind) {
    case NPU_COPY: return check_written(command, 0);
    case NPU_SORT: return check_sort(command);
    case NPU_MATMUL: return check_matmul(command);
    case NPU_CONV: return check_conv(command);
    default: return NPU_OK;
  }
}

/* Which commands may hold an instruction that not all may. NULL: it stands in a right one. */
static const char* belongs_elsewhere(const npu_command* command, const npu_instr* in, int each_segments) {
  const int reduce = command->kind == NPU_REDUCE, scan = command->kind == NPU_SCAN;
  switch (in->op) {
    case NPU_OP_SEGMENT:
      if (in->imm == NPU_SEGMENT_ROW) return reduce ? NULL : "REDUCE";
      return reduce || scan || (in->imm == NPU_SEGMENT_EACH && each_segments <= 1) ? NULL : "REDUCE and SCAN";
    case NPU_OP_FOLD: return reduce ? NULL : "REDUCE";
    case NPU_OP_SCAN: return scan ? NULL : "SCAN";
    case NPU_OP_ACC: return is_product(command) ? NULL : "MATMUL and CONV";
    case NPU_OP_STORE_AT: return command->kind == NPU_SCATTER ? NULL : "SCATTER";
    default: return NULL;
  }
}

/* What an instruction asks of the command's operands and dimensions. */
static npu_status check_use(const npu_command* command, const npu_instr* in, int in_row) {
  const int touches = in->op == NPU_OP_LOAD || in->op == NPU_OP_LOAD_AT || in->op == NPU_OP_STORE;
  REQUIRE(!touches || !is_product(command) || in->imm >= 2,
          "%s: expected operand 2 or above in an epilogue: 0 and 1 have other shapes", op_name(in->op));
  if (in->op == NPU_OP_STORE || in->op == NPU_OP_STORE_AT) return check_written(command, in->imm);
  REQUIRE(in->op != NPU_OP_LOAD_AT || !(command->operands[in->imm].flags & NPU_OPERAND_IMMEDIATE),
          "load_at: expected memory, got an immediate");
  REQUIRE(in->op != NPU_OP_ACC || in->dtype == acc_dtype(command), "acc: expected acc_dtype %s, got %s",
          dtype_name(acc_dtype(command)), dtype_name(in->dtype));
  if (in->op == NPU_OP_INDEX || in->op == NPU_OP_SIZE) {
    const int kept_only = in->op == NPU_OP_INDEX && in_row;
    const int dims = kept_only ? command->rank - command->inner_rank : command->rank;
    REQUIRE((int)in->imm < dims, "%s: expected a dimension below %d, got %u", op_name(in->op), dims, in->imm);
  }
  return NPU_OK;
}

npu_status check_program_use(const npu_command* command, const npu_program_desc* program) {
  int each = 0, kind = 0, scatters = 0;
  for (const npu_instr* in = program->instrs; in < program->instrs + program->instr_count; in++) {
    if (in->op == NPU_OP_SEGMENT) {
      kind = (int)in->imm;
      each += kind == NPU_SEGMENT_EACH;
    }
    scatters |= in->op == NPU_OP_STORE_AT;
    const char* elsewhere = belongs_elsewhere(command, in, each);
    REQUIRE(!elsewhere, "%s: expected it in %s only", op_name(in->op), elsewhere);
    if (check_use(command, in, kind == NPU_SEGMENT_ROW) != NPU_OK) return NPU_ERROR_INVALID;
  }
  REQUIRE(command->kind != NPU_SCATTER || scatters, "expected a store_at in the program, got none");
  return NPU_OK;
}
