/* Rules for every command. */
#include "commands/check_command.h"

#include <stdarg.h>
#include <stdio.h>

npu_status refuse(const npu_command* command, const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char* label = command->label;
  return fail(NPU_ERROR_INVALID, "%s (%s): %s", command_name(command->kind), label ? label : "no label", text);
}

#define REQUIRE(holds, ...)                            \
  do {                                                 \
    if (!(holds)) return refuse(command, __VA_ARGS__); \
  } while (0)

static npu_status check_ranks(const npu_command* command) {
  const int rank = command->rank, inner = command->inner_rank;
  REQUIRE(rank <= NPU_MAX_RANK, "expected rank of at most 8, got %d", rank);
  if (command->kind == NPU_REDUCE) {
    REQUIRE(inner <= rank, "expected inner_rank of at most the rank, got %d", inner);
    return NPU_OK;
  }
  const int want = command->kind == NPU_SCAN || command->kind == NPU_SORT ? 1 : 0;
  REQUIRE(inner == want, "expected inner_rank %d, got %d", want, inner);
  REQUIRE(rank >= want, "expected rank 1 or more, got 0");
  return NPU_OK;
}

static npu_status check_sizes(const npu_command* command) {
  int64_t points = 1;
  for (int d = 0; d < command->rank; d++) {
    const int64_t size = command->size[d];
    REQUIRE(size >= 0, "size of dimension %d: expected 0 or more, got %" PRId64, d, size);
    REQUIRE(size == 0 || !__builtin_mul_overflow(points, size, &points), "expected fewer than 2^63 points");
  }
  return NPU_OK;
}

static npu_status check_operand(const npu_command* command, uint32_t i) {
  const npu_operand* o = &command->operands[i];
  REQUIRE(o->dtype < NPU_DTYPE_COUNT, "operand %u: expected a storage type, got %d", i, o->dtype);
  REQUIRE(!(o->flags & ~NPU_OPERAND_IMMEDIATE), "operand %u: expected known flags, got %d", i, o->flags);
  REQUIRE(!o->zero0 && !o->zero1, "operand %u: expected reserved fields to be 0", i);
  REQUIRE(o->limit >= 0, "operand %u: expected a limit of 0 or more, got %" PRId64, i, o->limit);
  for (int d = 0; d < command->rank && o->flags; d++)
    REQUIRE(o->stride[d] == 0, "operand %u: expected strides of 0 for an immediate", i);
  return NPU_OK;
}

/* How many operands a command of this kind and program must bring. */
static uint32_t least_operands(const npu_command* command, const npu_program_desc* program) {
  const uint32_t used = program ? program->operand_count : 0;
  const uint32_t own = command->kind == NPU_COPY   ? 2
                       : command->kind == NPU_SORT ? 4
                       : is_product(command)       ? (program ? 2 : 3)
                                                   : 0;
  return used > own ? used : own;
}

npu_status check_written(const npu_command* command, uint32_t operand) {
  REQUIRE(!(command->operands[operand].flags & NPU_OPERAND_IMMEDIATE),
          "operand %u: expected memory to store to, got an immediate", operand);
  return NPU_OK;
}

npu_status command_check(const npu_command* command) {
  if (command->struct_size < sizeof *command)
    return fail(NPU_ERROR_INVALID, "command: expected struct_size to cover npu_command");
  REQUIRE(command->kind < NPU_COMMAND_COUNT, "expected a command kind of 0 to 7, got %d", command->kind);
  if (check_ranks(command) != NPU_OK || check_sizes(command) != NPU_OK) return NPU_ERROR_INVALID;
  REQUIRE(command->operand_count <= NPU_MAX_OPERANDS, "expected at most 64 operands, got %u", command->operand_count);
  REQUIRE(command->param_count <= NPU_MAX_PARAMS, "expected at most 32 parameters, got %u", command->param_count);
  REQUIRE(!command->operand_count || command->operands, "expected operands, got a null pointer");
  const npu_program_desc* program = command->program ? &command->program->code->desc : NULL;
  const int plain = command->kind == NPU_COPY || command->kind == NPU_SORT;
  REQUIRE(!plain || !program, "expected no program, got one");
  REQUIRE(plain || is_product(command) || program, "expected a program, got none");
  const uint32_t least = least_operands(command, program);
  REQUIRE(command->operand_count >= least, "expected at least %u operands, got %u", least, command->operand_count);
  for (uint32_t i = 0; i < command->operand_count; i++)
    if (check_operand(command, i) != NPU_OK) return NPU_ERROR_INVALID;
  REQUIRE(!program || !command->params || command->param_count >= program->param_count,
          "expected %u parameters, got %u", program->param_count, command->param_count);
  if (check_kind(command) != NPU_OK) return NPU_ERROR_INVALID;
  return program ? check_program_use(command, program) : NPU_OK;
}
