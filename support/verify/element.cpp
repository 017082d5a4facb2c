#include "support/verify/element.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "support/program/op_info.h"
#include "support/program/program.h"
#include "support/reference/value.h"
#include "support/verify/footprint.h"

namespace npu {

uint64_t element_bits(const std::byte* memory, int dtype, int64_t index) {
  const auto size = static_cast<size_t>(dtype_size(dtype));
  uint64_t bits = 0;
  std::memcpy(&bits, memory + static_cast<size_t>(index) * size, size);
  return bits;
}

double element_number(const std::byte* memory, int dtype, int64_t index) {
  return load_value(memory + index * dtype_size(dtype), dtype, NPU_F64).f64;
}

bool is_nan(uint64_t bits, int dtype) {
  return is_float(dtype) && std::isnan(load_value(&bits, dtype, NPU_F64).f64);
}

double unit_in_last_place(double value, int dtype) {
  const int digits = dtype == NPU_F16 ? 11 : dtype == NPU_BF16 ? 8 : dtype == NPU_F32 ? 24 : 53;
  const int least = dtype == NPU_F16 ? -24 : dtype == NPU_BF16 ? -133 : dtype == NPU_F32 ? -149 : -1074;
  if (!is_float(dtype) || !std::isfinite(value)) return 0;
  return std::ldexp(1.0, value == 0 ? least : std::max(std::ilogb(value) - digits + 1, least));
}

std::string hex_text(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string element_text(uint64_t bits, int dtype) {
  char text[64];
  const int digits = dtype == NPU_F16 ? 5 : dtype == NPU_BF16 ? 4 : dtype == NPU_F32 ? 9 : 17;
  if (is_float(dtype))
    std::snprintf(text, sizeof text, "%.*g", digits, load_value(&bits, dtype, NPU_F64).f64);
  else if (dtype == NPU_U64)
    std::snprintf(text, sizeof text, "%llu", static_cast<unsigned long long>(bits));
  else
    std::snprintf(text, sizeof text, "%lld", static_cast<long long>(load_value(&bits, dtype, NPU_I64).i));
  return std::string(text) + " (" + hex_text(bits) + ")";
}

bool element_point(const npu_command& command, uint32_t operand, int64_t offset, int64_t* point) {
  const npu_operand& o = command.operands[operand];
  int64_t size[NPU_MAX_RANK];
  operand_shape(command, operand, size);
  int order[NPU_MAX_RANK];
  std::iota(order, order + command.rank, 0);
  // From the largest stride down, each coordinate takes as much as it can, counted from the lowest element.
  std::stable_sort(order, order + command.rank,
                   [&](int a, int b) { return std::abs(o.stride[a]) > std::abs(o.stride[b]); });
  int64_t rest = offset;
  for (int d = 0; d < command.rank; ++d) {
    point[d] = 0;
    if (o.stride[d] < 0) rest -= o.stride[d] * (size[d] - 1);
  }
  for (int k = 0; k < command.rank; ++k) {
    const int d = order[k];
    const int64_t step = std::abs(o.stride[d]);
    if (step == 0) continue;
    const int64_t steps = std::clamp<int64_t>(rest / step, 0, size[d] - 1);
    rest -= steps * step;
    point[d] = o.stride[d] < 0 ? size[d] - 1 - steps : steps;
  }
  return rest == 0;
}

std::string list_text(const int64_t* values, int count) {
  std::string out = "[";
  for (int i = 0; i < count; ++i) out += (i ? ", " : "") + std::to_string(values[i]);
  return out + "]";
}

std::string command_text(const npu_command& command) {
  std::string out = command_name(command.kind);
  out += std::string(" (") + (command.label ? command.label : "no label") + ") of " +
         list_text(command.size, command.rank);
  if (command.inner_rank) out += ", last " + std::to_string(command.inner_rank) + " folded";
  if (command.kind == NPU_MATMUL)
    out += ", k " + std::to_string(command.u.matmul.k) + ", acc " + dtype_name(command.u.matmul.acc_dtype);
  if (command.kind == NPU_CONV) {
    static const char* modes[] = {"forward", "grad input", "grad weight", "?"};
    out += std::string(", ") + modes[std::min(command.u.conv.mode, 3u)] + ", kernel " +
           list_text(command.u.conv.kernel, static_cast<int>(std::min(command.u.conv.spatial_rank, 3u))) + ", acc " +
           dtype_name(command.u.conv.acc_dtype);
  }
  out += ", operands";
  for (uint32_t i = 0; i < command.operand_count; ++i) {
    const npu_operand& o = command.operands[i];
    out += std::string(" ") + dtype_name(o.dtype);
    out += o.flags & NPU_OPERAND_IMMEDIATE ? " immediate" : list_text(o.stride, command.rank);
  }
  return out;
}

}  // namespace npu
