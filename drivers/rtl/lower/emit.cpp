#include <algorithm>
#include <cstdio>

#include "drivers/rtl/lower/lower.h"

using namespace npu_hw;

namespace rtl {
namespace {

constexpr size_t kMostPackets = 1 << 16;  // of one command

}  // namespace

int64_t Space::points() const {
  int64_t n = 1;
  for (int d = 0; d < rank; d++) n *= size[d];
  return n;
}

View immediate(uint32_t bits) {
  View view;
  view.immediate = true;
  view.bits = bits;
  return view;
}

int hardware_type(int dtype) {
  switch (dtype) {
    case NPU_BOOL:
      return TYPE_BOOL;
    case NPU_U8:
      return TYPE_U8;
    case NPU_I8:
      return TYPE_I8;
    case NPU_U16:
      return TYPE_U16;
    case NPU_I16:
      return TYPE_I16;
    case NPU_I32:
      return TYPE_I32;
    case NPU_F16:
      return TYPE_F16;
    case NPU_BF16:
      return TYPE_BF16;
    case NPU_F32:
      return TYPE_F32;
    default:
      return -1;
  }
}

uint64_t Lowering::take_scratch(uint64_t bytes) {
  bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
  if (bytes > device_->scratch_size - scratch_used_)
    throw Unsupported{"a command that needs more than " + std::to_string(device_->scratch_size >> 20) +
                      " MiB for its intermediate values"};
  scratch_used_ += bytes;
  return device_->scratch + scratch_used_ - bytes;
}

View Lowering::contiguous(const Space& space, uint32_t type) {
  View view;
  view.type = type;
  int64_t step = type_width(type);
  for (int d = space.rank - 1; d >= 0; d--) {
    view.stride[d] = step;
    step *= space.size[d];
  }
  view.addr = take_scratch(static_cast<uint64_t>(step));
  return view;
}

Space Lowering::varying(std::initializer_list<const View*> views) const {
  Space space = space_;
  for (int d = 0; d < space.rank; d++) {
    bool moves = false;
    for (const View* view : views) moves = moves || (!view->immediate && view->stride[d] != 0);
    if (!moves) space.size[d] = 1;
  }
  return space;
}

View Lowering::contiguous_over(const Space& space, uint32_t type) {
  View view = contiguous(space, type);
  for (int d = 0; d < space.rank; d++)
    if (space.size[d] == 1) view.stride[d] = 0;
  return view;
}

View Lowering::materialize(const View& view) {
  const View made = contiguous(space_, view.type <= TYPE_F16 ? TYPE_F32 : TYPE_I32);
  vector(VEC_MOV, made, view);
  return made;
}

// A packet has room for one immediate: others go through memory. 0 is one like any other.
void Lowering::settle(View* sources, int count) {
  const View* first = nullptr;
  for (int i = 0; i < count; i++) {
    if (!sources[i].immediate) continue;
    if (!first) {
      first = &sources[i];
    } else if (sources[i].bits != first->bits) {
      Space one;
      const View cell = contiguous(one, TYPE_I32);
      emit(OP_VECTOR, VEC_MOV, one, cell, sources[i]);
      sources[i] = cell;
    }
  }
}

View Lowering::operand(uint32_t index, const Space& space, const int64_t* stride, int word, bool checked) {
  const npu_operand& o = command_.operands[index];
  const bool words = o.dtype == NPU_I64 || o.dtype == NPU_U32;
  const int type = words ? static_cast<int>(TYPE_I32) : hardware_type(o.dtype);
  if (type < 0) throw Unsupported{std::string("operands of type ") + npu::dtype_name(o.dtype)};
  View view;
  view.type = static_cast<uint32_t>(type);
  if (o.flags & NPU_OPERAND_IMMEDIATE) throw Unsupported{"an immediate operand here"};
  const int64_t width = npu::dtype_size(o.dtype);
  __int128 low = 0, high = 0;
  for (int d = 0; d < space.rank; d++) {
    const __int128 reach = static_cast<__int128>(space.size[d] - 1) * stride[d] * width;
    (reach < 0 ? low : high) += reach;
    // May wrap: what reaches so far lies in no allocation, and is refused below.
    const uint64_t bytes = static_cast<uint64_t>(stride[d]) * static_cast<uint64_t>(width);
    view.stride[d] = space.size[d] == 1 ? 0 : static_cast<int64_t>(bytes);
  }
  if (dry_) {
    view.addr = device_->scratch;
    return view;
  }
  const __int128 first = static_cast<__int128>(o.addr) + low, bytes = high - low + width;
  uint64_t at = 0;
  if (!checked) {
    view.addr = (device_->memory->own(o.addr) + static_cast<uint64_t>(4 * word)) & ((uint64_t{1} << ADDR_WIDTH) - 1);
    if (view.addr % type_width(view.type)) throw Unsupported{"an operand that is not aligned to its elements"};
    return view;
  }
  if (first < 0 || bytes > INT64_MAX ||
      !device_->memory->find(static_cast<npu_addr>(first), static_cast<uint64_t>(bytes), &at)) {
    char text[160];
    std::snprintf(text, sizeof text, "expected a live allocation around operand %u at 0x%llx, got none", index,
                  static_cast<unsigned long long>(o.addr));
    throw Refused{NPU_ERROR_ADDRESS, text};
  }
  view.addr = at - static_cast<uint64_t>(static_cast<int64_t>(low)) + static_cast<uint64_t>(4 * word);
  if (view.addr % type_width(view.type)) throw Unsupported{"an operand that is not aligned to its elements"};
  return view;
}

// One packet, or several where more than four dimensions are left when neighbours have been merged.
void Lowering::emit(uint32_t opcode, uint32_t op, const Space& space, const View& result, const View& a, const View& b,
                    const View& c) {
  const View* views[4] = {&result, &a, &b, &c};
  struct Dimension {
    int64_t size, stride[4];
  };
  std::vector<Dimension> dims;
  for (int d = 0; d < space.rank; d++) {
    if (space.size[d] == 1 && !(opcode == OP_REDUCE && d == space.rank - 1)) continue;
    Dimension next{space.size[d], {}};
    for (int i = 0; i < 4; i++) next.stride[i] = views[i]->immediate ? 0 : views[i]->stride[d];
    bool merge = !dims.empty() && opcode != OP_REDUCE && dims.back().size * next.size <= INT32_MAX;
    for (int i = 0; merge && i < 4; i++) merge = dims.back().stride[i] == next.stride[i] * next.size;
    if (merge)
      next.size *= dims.back().size, dims.back() = next;
    else
      dims.push_back(next);
  }
  Packet packet;
  packet.opcode = static_cast<uint8_t>(opcode);
  packet.op = static_cast<uint8_t>(op);
  for (int i = 0; i < 4; i++) {
    packet.set_type(i, views[i]->type);
    packet.addr[i] = views[i]->addr;
    if (i > 0 && views[i]->immediate) {
      packet.flags |= static_cast<uint16_t>(FLAG_IMM_A << (i - 1));
      packet.imm |= views[i]->bits;  // one for all: see settle()
    }
  }
  const size_t outer = dims.size() > 4 ? dims.size() - 4 : 0;
  for (size_t d = outer; d < dims.size(); d++) {
    const size_t place = 4 - (dims.size() - d);
    if (dims[d].size > INT32_MAX) throw Unsupported{"a dimension of 2^31 elements or more"};
    packet.size[place] = static_cast<uint32_t>(dims[d].size);
    for (int i = 0; i < 4; i++) {
      if (dims[d].stride[i] != static_cast<int32_t>(dims[d].stride[i])) throw Unsupported{"a stride of 2 GiB or more"};
      packet.stride[i][place] = static_cast<int32_t>(dims[d].stride[i]);
    }
  }
  std::vector<int64_t> point(outer, 0);
  while (true) {
    if (packets.size() >= kMostPackets) throw Unsupported{"a command of more than 65536 packets"};
    packets.push_back(packet);
    size_t d = outer;
    while (d > 0) {
      d--;
      for (int i = 0; i < 4; i++) packet.addr[i] += static_cast<uint64_t>(dims[d].stride[i]);
      if (++point[d] < dims[d].size) break;
      for (int i = 0; i < 4; i++) packet.addr[i] -= static_cast<uint64_t>(dims[d].stride[i] * dims[d].size);
      point[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

}  // namespace rtl
