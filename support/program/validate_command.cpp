// validate_command: the rules of docs/isa.md that a command must keep and that need no memory.
#include "support/program/validate.h"

#include "support/program/op_info.h"
#include "support/program/program.h"

namespace npu {
namespace {

std::string number(int64_t n) {
  return std::to_string(n);
}

std::string check_operand(const npu_command& command, uint32_t index) {
  const npu_operand& operand = command.operands[index];
  const std::string where = "operand " + number(index) + ": ";
  if (operand.dtype >= NPU_DTYPE_COUNT) return where + "expected a storage type, got " + number(operand.dtype);
  if (operand.flags & ~NPU_OPERAND_IMMEDIATE) return where + "expected known flags, got " + number(operand.flags);
  if (operand.zero0 || operand.zero1) return where + "expected reserved fields to be 0";
  if (operand.limit < 0) return where + "expected a limit of 0 or more, got " + number(operand.limit);
  if (operand.flags & NPU_OPERAND_IMMEDIATE)
    for (int d = 0; d < command.rank; ++d)
      if (operand.stride[d]) return where + "expected strides of 0 for an immediate";
  return {};
}

std::string check_written(const npu_command& command, uint32_t index) {
  if (command.operands[index].flags & NPU_OPERAND_IMMEDIATE)
    return "operand " + number(index) + ": expected memory to store to, got an immediate";
  return {};
}

bool is_acc_dtype(int dtype) {
  return dtype == NPU_F32 || dtype == NPU_F64 || dtype == NPU_I32 || dtype == NPU_I64;
}

std::string check_product(const npu_command& command, int acc, uint8_t flags) {
  if (!is_acc_dtype(acc)) return "expected acc_dtype f32, f64, i32 or i64, got " + std::string(dtype_name(acc));
  if (flags & ~NPU_MATMUL_REDUCED) return "expected known flags, got " + number(flags);
  for (int i = 0; i < 2; ++i)
    if (is_float(command.operands[i].dtype) && !is_float(acc))
      return "operand " + number(i) + ": expected an integer type for acc_dtype " + dtype_name(acc);
  return {};
}

std::string check_conv(const npu_command& command) {
  const npu_conv& conv = command.u.conv;
  if (conv.mode > NPU_CONV_GRAD_WEIGHT) return "expected a convolution mode of 0 to 2, got " + number(conv.mode);
  if (conv.spatial_rank < 1 || conv.spatial_rank > 3)
    return "expected 1 to 3 spatial dimensions, got " + number(conv.spatial_rank);
  const int spatial = static_cast<int>(conv.spatial_rank);
  if (command.rank != 2 + spatial) return "expected rank " + number(2 + spatial) + ", got " + number(command.rank);
  if (conv.batch < 0 || conv.in_channels < 0 || conv.out_channels < 0) return "expected sizes of 0 or more";
  if (conv.groups < 1 || conv.in_channels % conv.groups || conv.out_channels % conv.groups)
    return "expected groups that divide the channels, got " + number(conv.groups);
  for (int d = 0; d < spatial; ++d) {
    if (conv.in_size[d] < 0 || conv.out_size[d] < 0 || conv.kernel[d] < 1)
      return "spatial dimension " + number(d) + ": expected sizes of 0 or more and a kernel of 1 or more";
    if (conv.stride[d] < 1 || conv.dilation[d] < 1 || conv.padding[d] < 0)
      return "spatial dimension " + number(d) + ": expected stride and dilation of 1 or more, padding of 0 or more";
  }
  int64_t shape[5] = {conv.batch, conv.out_channels};
  const int64_t* extent = conv.out_size;
  if (conv.mode == NPU_CONV_GRAD_INPUT) {
    shape[1] = conv.in_channels;
    extent = conv.in_size;
  } else if (conv.mode == NPU_CONV_GRAD_WEIGHT) {
    shape[0] = conv.out_channels;
    shape[1] = conv.in_channels / conv.groups;
    extent = conv.kernel;
  }
  for (int d = 0; d < command.rank; ++d) {
    const int64_t want = d < 2 ? shape[d] : extent[d - 2];
    if (command.size[d] != want)
      return "size of dimension " + number(d) + ": expected " + number(want) + ", got " + number(command.size[d]);
  }
  return check_product(command, conv.acc_dtype, conv.flags);
}

std::string check_sort(const npu_command& command) {
  if (command.rank < 1) return "expected rank 1 or more, got 0";
  const int64_t n = command.size[command.rank - 1], count = command.u.sort.count;
  if (count < 0 || count > n) return "expected a count of 0 to " + number(n) + ", got " + number(count);
  for (int i : {1, 3}) {
    const int dtype = command.operands[i].dtype;
    if (dtype == NPU_BOOL || is_float(dtype))
      return "operand " + number(i) + ": expected an integer type, got " + dtype_name(dtype);
  }
  std::string error = check_written(command, 2);
  return error.empty() ? check_written(command, 3) : error;
}

// What the kind of the command asks of its program.
std::string check_program(const npu_command& command, const npu_program_desc& program) {
  const bool product = command.kind == NPU_MATMUL || command.kind == NPU_CONV;
  int kind = 0, each = 0;
  bool scatters = false;
  for (uint32_t i = 0; i < program.instr_count; ++i) {
    const npu_instr& in = program.instrs[i];
    const std::string where = "instruction " + number(i) + " (" + op_name(in.op) + "): ";
    auto only = [&](bool allowed, const char* commands) {
      return allowed ? std::string()
                     : where + "expected it in " + commands + " only, got " + command_name(command.kind);
    };
    std::string error;
    switch (in.op) {
      case NPU_OP_SEGMENT:
        kind = static_cast<int>(in.imm);
        each += kind == NPU_SEGMENT_EACH;
        if (kind == NPU_SEGMENT_ROW) error = only(command.kind == NPU_REDUCE, "REDUCE");
        if (kind == NPU_SEGMENT_COMBINE)
          error = only(command.kind == NPU_REDUCE || command.kind == NPU_SCAN, "REDUCE and SCAN");
        if (each > 1) error = only(command.kind == NPU_REDUCE || command.kind == NPU_SCAN, "REDUCE and SCAN");
        break;
      case NPU_OP_FOLD:
        error = only(command.kind == NPU_REDUCE, "REDUCE");
        break;
      case NPU_OP_SCAN:
        error = only(command.kind == NPU_SCAN, "SCAN");
        break;
      case NPU_OP_ACC: {
        error = only(product, "MATMUL and CONV");
        const int acc = command.kind == NPU_MATMUL ? command.u.matmul.acc_dtype : command.u.conv.acc_dtype;
        if (error.empty() && in.dtype != acc)
          error = where + "expected acc_dtype " + dtype_name(acc) + ", got " + dtype_name(in.dtype);
        break;
      }
      case NPU_OP_STORE_AT:
        scatters = true;
        error = only(command.kind == NPU_SCATTER, "SCATTER");
        [[fallthrough]];
      case NPU_OP_STORE:
        if (error.empty()) error = check_written(command, in.imm);
        break;
      case NPU_OP_LOAD_AT:
        if (command.operands[in.imm].flags & NPU_OPERAND_IMMEDIATE) error = where + "expected memory, got an immediate";
        break;
      case NPU_OP_INDEX:
      case NPU_OP_SIZE: {
        const bool row = in.op == NPU_OP_INDEX && kind == NPU_SEGMENT_ROW;
        const int dims = row ? command.rank - command.inner_rank : command.rank;
        if (static_cast<int>(in.imm) >= dims)
          error = where + "expected a dimension below " + number(dims) + ", got " + number(in.imm);
        break;
      }
      default:
        break;
    }
    const bool touches = in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT || in.op == NPU_OP_STORE;
    if (error.empty() && product && touches && in.imm < 2)
      error = where + "expected operand 2 or above in an epilogue: 0 and 1 have other shapes";
    if (!error.empty()) return error;
  }
  if (command.kind == NPU_SCATTER && !scatters) return "expected a store_at in the program of SCATTER, got none";
  return {};
}

std::string check_shape(const npu_command& command) {
  if (command.struct_size < sizeof(npu_command)) return "expected struct_size to cover npu_command";
  if (command.kind >= NPU_COMMAND_COUNT) return "expected a command kind of 0 to 7, got " + number(command.kind);
  if (command.rank > NPU_MAX_RANK) return "expected rank of at most 8, got " + number(command.rank);
  if (command.choice) return "expected choice 0 or one that the driver announced, got " + number(command.choice);
  const int inner = command.inner_rank;
  if (command.kind == NPU_REDUCE) {
    if (inner > command.rank) return "expected inner_rank of at most the rank, got " + number(inner);
  } else {
    const int want = command.kind == NPU_SCAN || command.kind == NPU_SORT ? 1 : 0;
    if (inner != want) return "expected inner_rank " + number(want) + ", got " + number(inner);
    if (command.rank < want) return "expected rank 1 or more, got 0";
  }
  for (int d = 0; d < command.rank; ++d)
    if (command.size[d] < 0)
      return "size of dimension " + number(d) + ": expected 0 or more, got " + number(command.size[d]);
  int64_t points = 1;
  for (int d = 0; d < command.rank; ++d)
    if (command.size[d] && __builtin_mul_overflow(points, command.size[d], &points))
      return "expected fewer than 2^63 points";
  if (command.operand_count > NPU_MAX_OPERANDS)
    return "expected at most 64 operands, got " + number(command.operand_count);
  if (command.param_count > NPU_MAX_PARAMS) return "expected at most 32 parameters, got " + number(command.param_count);
  if (command.operand_count && !command.operands) return "expected operands, got a null pointer";
  return {};
}

std::string check(const npu_command& command, const npu_program_desc* program) {
  std::string error = check_shape(command);
  if (!error.empty()) return error;
  const bool product = command.kind == NPU_MATMUL || command.kind == NPU_CONV;
  const bool runs = !product && command.kind != NPU_COPY && command.kind != NPU_SORT;
  if (runs && !program) return "expected a program, got none";
  if (!runs && !product && program) return "expected no program, got one";
  uint32_t least = program ? program->operand_count : 0;
  if (command.kind == NPU_COPY) least = 2;
  if (command.kind == NPU_SORT) least = 4;
  if (product && least < (program ? 2u : 3u)) least = program ? 2 : 3;
  if (command.operand_count < least)
    return "expected at least " + number(least) + " operands, got " + number(command.operand_count);
  for (uint32_t i = 0; i < command.operand_count; ++i) {
    error = check_operand(command, i);
    if (!error.empty()) return error;
  }
  // `supports` may be asked without parameters, so they count only where they are present.
  if (program && command.params && command.param_count < program->param_count)
    return "expected " + number(program->param_count) + " parameters, got " + number(command.param_count);
  switch (command.kind) {
    case NPU_COPY:
      error = check_written(command, 0);
      break;
    case NPU_SORT:
      error = check_sort(command);
      break;
    case NPU_MATMUL:
      if (command.rank < 2) return "expected rank 2 or more, got " + number(command.rank);
      if (command.u.matmul.k < 0) return "expected k of 0 or more, got " + number(command.u.matmul.k);
      error = check_product(command, command.u.matmul.acc_dtype, command.u.matmul.flags);
      break;
    case NPU_CONV:
      error = check_conv(command);
      break;
    default:
      break;
  }
  if (error.empty() && product && !program) error = check_written(command, 2);
  if (error.empty() && program) error = check_program(command, *program);
  return error;
}

}  // namespace

std::string validate_command(const npu_command& command, const npu_program_desc* program) {
  std::string error = check(command, program);
  return error.empty() ? error : std::string(command_name(command.kind)) + ": " + error;
}

}  // namespace npu
