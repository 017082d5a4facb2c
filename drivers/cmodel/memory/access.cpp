#include "drivers/cmodel/memory/access.h"

#include <cstring>

#include "support/driver/address_text.h"

namespace cmodel {

using npu::driver::hex;
namespace {

using Use = ProgramAccess;

constexpr uint8_t kSizes[NPU_DTYPE_COUNT] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};

// The bytes [lo, hi) around element (0, ..., 0) that a walk touches.
struct Box {
  int64_t lo = 0, hi = 0;
  bool empty = false, overflow = false;
};

inline Box box_of(const int64_t* stride, const int64_t* size, int rank, int64_t element) {
  Box box;
  int64_t lo = 0, hi = 0;
  for (int d = 0; d < rank; ++d) {
    if (size[d] <= 0) {
      box.empty = true;
      return box;
    }
    int64_t reach;
    box.overflow |= __builtin_mul_overflow(stride[d], size[d] - 1, &reach);
    if (reach < 0)
      box.overflow |= __builtin_add_overflow(lo, reach, &lo);
    else
      box.overflow |= __builtin_add_overflow(hi, reach, &hi);
  }
  box.overflow |= __builtin_add_overflow(hi, 1, &hi);
  box.overflow |= __builtin_mul_overflow(lo, element, &box.lo);
  box.overflow |= __builtin_mul_overflow(hi, element, &box.hi);
  return box;
}

class Binder {
 public:
  Binder(const Memory& memory, const npu_command& command, std::string* error)
      : memory_(memory), command_(command), error_(error) {}

  // Operand `i` walks `rank` dimensions of `size`, in ROW segments the first `row_rank`; `use` says how.
  npu_status bind(uint32_t i, uint8_t use, const int64_t* size, int rank, int row_rank, Operand* out) {
    const npu_operand& in = command_.operands[i];
    out->dtype = in.dtype;
    if (in.flags & NPU_OPERAND_IMMEDIATE) return bind_immediate(i, use, out);
    out->immediate = false;
    out->bits = 0;
    out->limit = in.limit;
    out->parts = nullptr;
    out->ptr = out->begin = out->end = nullptr;
    std::memcpy(out->stride, in.stride, sizeof out->stride);
    const int64_t element = kSizes[in.dtype];
    if (use & (Use::kEach | Use::kRow)) {
      Box box;
      box.empty = true;
      if (use & Use::kEach) box = box_of(in.stride, size, rank, element);
      // Where there is nothing to fold there are still rows to write.
      if (box.empty && use & Use::kRow) box = box_of(in.stride, size, row_rank, element);
      if (!box.empty) {
        Span span;
        if (box.overflow || !inside(in.addr, box, &span)) return refuse(i, use, box);
        out->ptr = span.ptr - box.lo;
        out->begin = span.begin;
        out->end = span.end;
      }
    }
    npu_status status = NPU_OK;
    if (use & (Use::kLoose | Use::kAt)) status = bind_loose(i, use, size, rank, row_rank, element, out);
    // Nothing of the operand is touched, but offsets are still added to its address.
    if (!out->ptr) out->ptr = out->begin = out->end = &nothing_;
    return status;
  }

 private:
  inline static char nothing_ = 0;

  bool inside(npu_addr addr, const Box& box, Span* span) const {
    return memory_.find(addr + static_cast<uint64_t>(box.lo), static_cast<uint64_t>(box.hi - box.lo), span);
  }

  npu_status bind_immediate(uint32_t i, uint8_t use, Operand* out) {
    if (use & Use::kWrite) {
      *error_ = describe(command_) + ": expected memory for operand " + std::to_string(i) +
                ", which is written, got an immediate";
      return NPU_ERROR_INVALID;
    }
    out->immediate = true;
    out->limit = 0;
    out->parts = nullptr;
    out->bits = command_.operands[i].addr;
    out->ptr = out->begin = reinterpret_cast<char*>(&out->bits);
    out->end = out->begin + sizeof out->bits;
    std::memset(out->stride, 0, sizeof out->stride);
    return NPU_OK;
  }

  // What the host promised for computed addresses must be live; without a promise, the address itself. An absent
  // operand (address 0) is one that the program's masks never reach.
  npu_status bind_loose(uint32_t i, uint8_t use, const int64_t* size, int rank, int row_rank, int64_t element,
                        Operand* out) {
    const npu_operand& in = command_.operands[i];
    if (in.addr == 0) return NPU_OK;
    Box box = box_of(in.stride, size, rank, element);
    if (box.empty && row_rank < rank) box = box_of(in.stride, size, row_rank, element);
    if (box.empty) return NPU_OK;
    Span span;
    if (use & Use::kAt) {
      Box promised;
      promised.hi = element;
      if (in.limit != 0) promised.overflow = in.limit < 0 || __builtin_mul_overflow(in.limit, element, &promised.hi);
      if (promised.overflow || !inside(in.addr, promised, &span)) return refuse(i, use, promised);
      out->ptr = span.ptr;
      out->begin = span.begin;
      out->end = span.end;
      return NPU_OK;
    }
    if (out->ptr) return NPU_OK;
    if (!box.overflow && inside(in.addr, box, &span)) {
      out->ptr = span.ptr - box.lo;
    } else {
      // Only some points count, so the rest may lie anywhere; but there must be something to touch.
      npu_addr live;
      if (box.overflow || !memory_.first_live(in.addr + box.lo, in.addr + box.hi, &live) ||
          !memory_.region_at(live, &span))
        return refuse(i, use, box);
      out->ptr = reinterpret_cast<char*>(reinterpret_cast<uint64_t>(span.ptr) + (in.addr - live));
      out->parts = &memory_;
    }
    out->begin = span.begin;
    out->end = span.end;
    return NPU_OK;
  }

  npu_status refuse(uint32_t i, uint8_t use, const Box& box) {
    const npu_addr addr = command_.operands[i].addr;
    const char* verb = !(use & Use::kWrite) ? " reads " : use & Use::kRead ? " reads and writes " : " writes ";
    const std::string who = describe(command_) + ": operand " + std::to_string(i) + verb;
    if (box.overflow) {
      *error_ = who + "more than an address space from " + hex(addr) + " on; expected strides and sizes that fit";
      return NPU_ERROR_ADDRESS;
    }
    const npu_addr begin = addr + static_cast<uint64_t>(box.lo), end = addr + static_cast<uint64_t>(box.hi);
    *error_ = who + memory_.why_not(begin, end);
    return NPU_ERROR_ADDRESS;
  }

  const Memory& memory_;
  const npu_command& command_;
  std::string* error_;
};

// Shapes of the operands that do not walk the command's index space.
struct Shape {
  int64_t size[NPU_MAX_RANK];
};

Shape matmul_shape(const npu_command& c, uint32_t operand) {
  Shape shape;
  std::memcpy(shape.size, c.size, sizeof shape.size);
  shape.size[c.rank - (operand == 0 ? 1 : 2)] = c.u.matmul.k;
  return shape;
}

Shape conv_shape(const npu_conv& v, uint32_t operand) {
  enum { kInput, kWeight, kOutput } what;
  if (operand == 0)
    what = v.mode == NPU_CONV_FORWARD ? kInput : kOutput;
  else
    what = v.mode == NPU_CONV_GRAD_WEIGHT ? kInput : kWeight;
  Shape shape;
  shape.size[0] = what == kWeight ? v.out_channels : v.batch;
  shape.size[1] = what == kOutput ? v.out_channels : what == kInput ? v.in_channels : v.in_channels / v.groups;
  const int64_t* spatial = what == kInput ? v.in_size : what == kOutput ? v.out_size : v.kernel;
  for (uint32_t d = 0; d < v.spatial_rank; ++d) shape.size[2 + d] = spatial[d];
  return shape;
}

Shape sort_shape(const npu_command& c) {
  Shape shape;
  std::memcpy(shape.size, c.size, sizeof shape.size);
  shape.size[c.rank - 1] = c.u.sort.count;
  return shape;
}

}  // namespace

ProgramAccess ProgramAccess::of(const npu::Program& program) {
  ProgramAccess access;
  uint32_t segment = NPU_SEGMENT_EACH;
  for (const npu_instr& instr : program.instrs) {
    const uint8_t where = instr.mask != NPU_NO_VALUE ? kLoose : segment == NPU_SEGMENT_ROW ? kRow : kEach;
    switch (instr.op) {
      case NPU_OP_SEGMENT:
        segment = instr.imm;
        break;
      case NPU_OP_LOAD:
        access.use[instr.imm] |= where | kRead;
        break;
      case NPU_OP_STORE:
        access.use[instr.imm] |= where | kWrite;
        break;
      case NPU_OP_LOAD_AT:
        access.use[instr.imm] |= kAt | kRead;
        break;
      case NPU_OP_STORE_AT:
        access.use[instr.imm] |= kAt | kWrite | (instr.flags ? kRead : 0);
        break;
      default:
        break;
    }
  }
  return access;
}

npu_status bind_operands(const Memory& memory, const npu_command& c, const ProgramAccess* access, Operand* out,
                         std::string* error) {
  Binder binder(memory, c, error);
  const int row_rank = c.rank - c.inner_rank;
  for (uint32_t i = 0; i < c.operand_count; ++i) {
    npu_status status;
    if (i < 2 && (c.kind == NPU_MATMUL || c.kind == NPU_CONV)) {
      const Shape shape = c.kind == NPU_MATMUL ? matmul_shape(c, i) : conv_shape(c.u.conv, i);
      status = binder.bind(i, Use::kEach | Use::kRead, shape.size, c.rank, c.rank, &out[i]);
    } else if (i >= 2 && c.kind == NPU_SORT) {
      const Shape shape = sort_shape(c);
      status = binder.bind(i, i < 4 ? Use::kEach | Use::kWrite : 0, shape.size, c.rank, c.rank, &out[i]);
    } else {
      uint8_t use = 0;
      if (access)
        use = access->use[i];
      else if (c.kind == NPU_COPY && i < 2)
        use = Use::kEach | (i == 0 ? Use::kWrite : Use::kRead);
      else if (c.kind == NPU_SORT)
        use = Use::kEach | Use::kRead;
      else if (i == 2)  // the result of MATMUL or CONV
        use = Use::kEach | Use::kWrite;
      status = binder.bind(i, use, c.size, c.rank, row_rank, &out[i]);
    }
    if (status != NPU_OK) return status;
  }
  return NPU_OK;
}

}  // namespace cmodel
