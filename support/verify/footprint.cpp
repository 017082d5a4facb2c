#include "support/verify/footprint.h"

#include <algorithm>
#include <optional>

#include "support/program/accesses.h"
#include "support/program/program.h"

namespace npu {
namespace {

// Offsets in elements from the operand's address, both included.
struct Span {
  __int128 low = 0, high = 0;
};

struct Touch {
  std::optional<Span> span;
  bool all = false;  // load_at and store_at without a limit: the whole allocation
  bool read = false, write = false;
};

void add(Touch& touch, Span span) {
  if (touch.span) {
    span.low = std::min(span.low, touch.span->low);
    span.high = std::max(span.high, touch.span->high);
  }
  touch.span = span;
}

// The points of the first `rank` dimensions.
void add_points(Touch& touch, const npu_operand& operand, const int64_t* size, int rank) {
  Span span;
  for (int d = 0; d < rank; ++d) {
    if (size[d] <= 0) return;
    const __int128 reach = static_cast<__int128>(size[d] - 1) * operand.stride[d];
    (reach < 0 ? span.low : span.high) += reach;
  }
  add(touch, span);
}

}  // namespace

std::vector<Region> footprint(const npu_command& command, const npu_program_desc* program, const FindAllocation& find) {
  std::vector<Touch> touched(command.operand_count);
  for (const Access& access : accesses_of(command, program)) {
    Touch& touch = touched[access.operand];
    const npu_operand& operand = command.operands[access.operand];
    (access.write ? touch.write : touch.read) = true;
    if (!access.computed) {
      int64_t size[NPU_MAX_RANK];
      operand_shape(command, access.operand, size);
      add_points(touch, operand, size, access.rank);
    } else if (operand.limit > 0) {
      add(touch, {0, operand.limit - 1});
    } else {
      touch.all = true;
    }
  }

  std::vector<Region> regions;
  for (uint32_t i = 0; i < command.operand_count; ++i) {
    const npu_operand& operand = command.operands[i];
    const Touch& touch = touched[i];
    const __int128 width = dtype_size(operand.dtype), at = operand.addr;
    if ((!touch.span && !touch.all) || (operand.flags & NPU_OPERAND_IMMEDIATE) || width == 0) continue;
    const Extent block = find(operand.addr);
    if (block.size == 0) continue;
    __int128 begin = block.addr, end = begin + block.size;
    if (touch.all) {  // on the operand's grid of elements
      begin += (at - begin) % width;
      end -= (end - begin) % width;
    } else {
      begin = std::max(begin + (at - begin) % width, at + touch.span->low * width);
      end = std::min(end, at + (touch.span->high + 1) * width);
    }
    if (begin >= end) continue;
    regions.push_back(
        {i, operand.dtype, static_cast<npu_addr>(begin), static_cast<uint64_t>(end - begin), touch.read, touch.write});
  }
  return regions;
}

}  // namespace npu
