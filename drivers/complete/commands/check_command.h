/* The rules of docs/isa.md that a command must keep and that need no memory. */
#ifndef COMMANDS_CHECK_COMMAND_H
#define COMMANDS_CHECK_COMMAND_H

#include "program/program.h"

/* NPU_OK, or NPU_ERROR_INVALID with its error set. Parameters may be absent, as in `supports`. */
npu_status command_check(const npu_command* command);
/* The rules of one kind, behind those of every kind. */
npu_status check_kind(const npu_command* command);
/* What a kind asks of its program. */
npu_status check_program_use(const npu_command* command, const npu_program_desc* program);

__attribute__((format(printf, 2, 3))) npu_status refuse(const npu_command* command, const char* format, ...);
npu_status check_written(const npu_command* command, uint32_t operand);

static inline int is_product(const npu_command* command) {
  return command->kind == NPU_MATMUL || command->kind == NPU_CONV;
}
static inline int acc_dtype(const npu_command* command) {
  return command->kind == NPU_MATMUL ? command->u.matmul.acc_dtype : command->u.conv.acc_dtype;
}

#endif
