#include "csrc/core/observe/sanitizer/computed.h"

#include <algorithm>
#include <cstring>

#include "support/program/program.h"
#include "support/reference/evaluate.h"

namespace torch_npu::sanitizer {
namespace {

constexpr int64_t kMostSteps = 40'000'000;  // instructions to evaluate for one access: some half a second

bool is_access_at(const npu_instr& in) {
  return in.op == NPU_OP_LOAD_AT || in.op == NPU_OP_STORE_AT;
}

uint16_t offset_of(const npu_instr& in) {
  return in.op == NPU_OP_LOAD_AT ? in.a : in.b;
}

// The values that an instruction takes, for those that compute addresses.
template <class Visit>
void each_argument(const npu_instr& in, const Visit& visit) {
  for (const uint16_t argument : {in.a, in.b, in.c, in.mask}) {
    if (argument != NPU_NO_VALUE) visit(argument);
  }
}

}  // namespace

Computed::Computed(const npu_command& command, const npu_program_desc& program, const ReadMemory& read)
    : command_(command),
      program_(program),
      read_(read),
      rank_of_(program.instr_count),
      sources_(program.instr_count),
      values_(program.instr_count) {
  int rank = command.rank;
  for (uint32_t id = 0; id < program.instr_count; ++id) {
    const npu_instr& in = program.instrs[id];
    if (in.op == NPU_OP_SEGMENT) rank = command.rank - (in.imm == NPU_SEGMENT_ROW ? command.inner_rank : 0);
    rank_of_[id] = rank;
  }
}

Computed::Source Computed::source_of(uint16_t id) {
  if (sources_[id]) return *sources_[id];
  const npu_instr& in = program_.instrs[id];
  Source source;
  each_argument(in, [&](uint16_t argument) {
    const Source other = source_of(argument);
    source.dims |= other.dims;
    source.known &= other.known;
  });
  switch (in.op) {
    case NPU_OP_FOLD:
    case NPU_OP_SCAN:
    case NPU_OP_GET:
    case NPU_OP_ACC:
    case NPU_OP_ARG:
      source.known = false;
      break;
    case NPU_OP_INDEX:
      source.dims |= 1u << in.imm;
      break;
    case NPU_OP_LOAD:
    case NPU_OP_LOAD_AT: {
      const npu_operand& operand = command_.operands[in.imm];
      for (int d = 0; d < rank_of_[id]; ++d) {
        if (operand.stride[d] != 0 && command_.size[d] > 1) source.dims |= 1u << d;
      }
      for (uint32_t k = 0; k < id; ++k) {  // what the command has stored before is not what memory holds now
        const npu_instr& store = program_.instrs[k];
        const bool stores = store.op == NPU_OP_STORE || store.op == NPU_OP_STORE_AT;
        if (stores && command_.operands[store.imm].addr == operand.addr) source.known = false;
      }
      break;
    }
    default:
      break;
  }
  sources_[id] = source;
  return source;
}

void Computed::collect(uint16_t id, std::vector<bool>& needed) const {
  if (needed[id]) return;
  needed[id] = true;
  each_argument(program_.instrs[id], [&](uint16_t argument) { collect(argument, needed); });
}

// The memory that a load of the slice reads. Where that is computed too, what it may read.
bool Computed::fetch(uint16_t id, int rank) {
  const npu_instr& in = program_.instrs[id];
  const npu_operand& operand = command_.operands[in.imm];
  if ((operand.flags & NPU_OPERAND_IMMEDIATE) || images_.count(in.imm)) return true;
  const auto width = static_cast<uint64_t>(npu::dtype_size(operand.dtype));
  Bytes bytes;
  if (in.op == NPU_OP_LOAD && in.mask == NPU_NO_VALUE) {
    bytes.add(Box(operand.addr, command_.size, operand.stride, rank, width));
  } else if (in.op == NPU_OP_LOAD_AT && operand.limit > 0) {
    bytes.add(Run{operand.addr, operand.addr + static_cast<uint64_t>(operand.limit) * width});
  } else {
    const std::optional<Bytes> found = touched(id, rank);
    if (!found) return false;
    bytes = *found;
  }
  if (bytes.empty()) return true;  // all masked off
  Image image{bytes.begin(), std::vector<unsigned char>(bytes.end() - bytes.begin())};
  if (!read_(image.begin, image.bytes.size(), image.bytes.data())) return false;
  images_[in.imm] = std::move(image);
  return true;
}

int64_t Computed::offset_at(uint32_t operand, const int64_t* point) const {
  uint64_t offset = 0;
  for (int d = 0; d < command_.rank; ++d) {
    offset += static_cast<uint64_t>(point[d]) * static_cast<uint64_t>(command_.operands[operand].stride[d]);
  }
  return static_cast<int64_t>(offset);
}

// False: the command fails at this point, or has nothing to load there.
bool Computed::evaluate_at(uint16_t id, const int64_t* point) {
  const npu_instr& in = program_.instrs[id];
  npu::Value& out = values_[id];
  const bool off = in.mask != NPU_NO_VALUE && !values_[in.mask].i;
  const auto number = [&](int64_t value) {
    npu::Value made{};
    made.i = value;
    return npu::convert(made, NPU_I64, in.dtype);
  };
  switch (in.op) {
    case NPU_OP_SEGMENT:
      return true;
    case NPU_OP_CONST: {
      npu_scalar scalar;
      scalar.u = program_.consts[in.imm];
      out = npu::scalar_value(scalar, in.dtype);
      return true;
    }
    case NPU_OP_PARAM:
      out = npu::scalar_value(command_.params[in.imm], in.dtype);
      return true;
    case NPU_OP_SIZE:
      out = number(command_.size[in.imm]);
      return true;
    case NPU_OP_INDEX:
      out = number(point[in.imm]);
      return true;
    case NPU_OP_CHECK_INDEX: {
      out = values_[in.a];
      if (off) return true;
      const int64_t size = values_[in.b].i;
      if ((in.flags & NPU_INDEX_WRAP) && out.i < 0) out.i += size;
      return !(in.flags & NPU_INDEX_CHECK) || (out.i >= 0 && out.i < size);
    }
    case NPU_OP_LOAD:
    case NPU_OP_LOAD_AT: {
      out = npu::Value{};
      if (off) return true;
      const npu_operand& operand = command_.operands[in.imm];
      if (operand.flags & NPU_OPERAND_IMMEDIATE) {
        out = npu::load_value(&operand.addr, operand.dtype, in.dtype);
        return true;
      }
      const auto image = images_.find(in.imm);
      if (image == images_.end()) return false;
      int64_t at = offset_at(in.imm, point);
      if (in.op == NPU_OP_LOAD_AT) at += values_[in.a].i;
      const auto width = static_cast<uint64_t>(npu::dtype_size(operand.dtype));
      const uint64_t place = operand.addr + static_cast<uint64_t>(at) * width - image->second.begin;
      if (place > image->second.bytes.size() || image->second.bytes.size() - place < width) return false;
      out = npu::load_value(image->second.bytes.data() + place, operand.dtype, in.dtype);
      return true;
    }
    default: {
      const npu::Value none{};
      const auto value = [&](uint16_t argument) { return argument == NPU_NO_VALUE ? none : values_[argument]; };
      const int type = in.a == NPU_NO_VALUE ? in.dtype : program_.instrs[in.a].dtype;
      out = npu::evaluate(in, type, value(in.a), value(in.b), value(in.c));
      return true;
    }
  }
}

std::optional<Bytes> Computed::touched(uint16_t id, int rank) {
  return walk(id, rank, {}, false, [](const int64_t*) { return true; });
}

bool Computed::is_choice(uint16_t id) const {
  bool chosen = false;
  for (uint32_t k = id + 1u; k < program_.instr_count; ++k) {
    const npu_instr& in = program_.instrs[k];
    bool takes = false;
    each_argument(in, [&](uint16_t argument) { takes |= argument == id; });
    if (!takes) continue;
    if (in.op != NPU_OP_WHERE || in.a == id) return false;
    chosen = true;
  }
  return chosen;
}

// The conditions behind which a value is chosen.
void Computed::add_conditions(uint16_t id, std::vector<uint16_t>& deciders) const {
  for (uint32_t k = id + 1u; k < program_.instr_count; ++k) {
    const npu_instr& in = program_.instrs[k];
    if (in.op != NPU_OP_WHERE || (in.b != id && in.c != id)) continue;
    deciders.push_back(in.a);
    add_conditions(static_cast<uint16_t>(k), deciders);
  }
}

// At the point whose conditions were just evaluated.
bool Computed::is_used_now(uint16_t id) const {
  for (uint32_t k = id + 1u; k < program_.instr_count; ++k) {
    const npu_instr& in = program_.instrs[k];
    bool takes = false;
    each_argument(in, [&](uint16_t argument) { takes |= argument == id; });
    if (!takes || (in.op == NPU_OP_STORE && in.a == id)) continue;
    if (in.op != NPU_OP_WHERE || in.a == id) return true;
    const bool is_chosen = (values_[in.a].i ? in.b : in.c) == id;
    if (is_chosen && is_used_now(static_cast<uint16_t>(k))) return true;
  }
  return false;
}

std::optional<Bytes> Computed::used(uint16_t id, int rank) {
  std::vector<uint16_t> deciders;
  add_conditions(id, deciders);
  return walk(id, rank, deciders, false, [&](const int64_t*) { return is_used_now(id); });
}

std::optional<Bytes> Computed::unwritten(uint16_t id, int rank, const std::function<bool(Run)>& is_written) {
  std::vector<uint16_t> deciders;
  std::vector<uint16_t> open{program_.instrs[id].a};
  while (!open.empty()) {
    const npu_instr& in = program_.instrs[open.back()];
    open.pop_back();
    if (in.op != NPU_OP_WHERE) continue;
    deciders.push_back(in.a);
    open.insert(open.end(), {in.b, in.c});
  }
  if (deciders.empty()) return Bytes();
  return walk(id, rank, deciders, true, [&](const int64_t* point) {
    uint16_t value = program_.instrs[id].a;
    while (program_.instrs[value].op == NPU_OP_WHERE) {
      const npu_instr& in = program_.instrs[value];
      value = values_[in.a].i ? in.b : in.c;
    }
    const npu_instr& in = program_.instrs[value];
    if (in.op != NPU_OP_LOAD || in.mask != NPU_NO_VALUE) return false;
    const npu_operand& operand = command_.operands[in.imm];
    if (operand.flags & NPU_OPERAND_IMMEDIATE) return false;
    const auto width = static_cast<uint64_t>(npu::dtype_size(operand.dtype));
    const npu_addr from = operand.addr + static_cast<uint64_t>(offset_at(in.imm, point)) * width;
    return !is_written({from, from + width});
  });
}

std::optional<Bytes> Computed::walk(uint16_t id, int rank, std::vector<uint16_t> deciders, bool every_point,
                                    const std::function<bool(const int64_t*)>& takes_part) {
  const npu_instr& in = program_.instrs[id];
  const npu_operand& operand = command_.operands[in.imm];
  const auto width = static_cast<uint64_t>(npu::dtype_size(operand.dtype));
  // What decides: the mask, and the offset.
  Source source;
  std::vector<bool> needed(program_.instr_count);
  if (in.mask != NPU_NO_VALUE) deciders.push_back(in.mask);
  if (is_access_at(in)) deciders.push_back(offset_of(in));
  for (const uint16_t value : deciders) {
    const Source other = source_of(value);
    source.dims |= other.dims;
    source.known &= other.known;
    collect(value, needed);
  }
  if (!source.known) return std::nullopt;

  // Along the other dimensions it is the same box, moved.
  int64_t walked[NPU_MAX_RANK], size[NPU_MAX_RANK];
  int64_t points = 1;
  for (int d = 0; d < rank; ++d) {
    const bool differs = every_point || (source.dims >> d & 1);
    walked[d] = differs ? command_.size[d] : 1;
    size[d] = differs ? 1 : command_.size[d];
    points *= walked[d];
  }
  if (points * std::count(needed.begin(), needed.end(), true) > kMostSteps) return std::nullopt;
  std::vector<uint16_t> slice;
  for (uint32_t k = 0; k < program_.instr_count; ++k) {
    if (!needed[k]) continue;
    const auto step = static_cast<uint16_t>(k);
    slice.push_back(step);
    const npu_instr& other = program_.instrs[k];
    const bool loads = other.op == NPU_OP_LOAD || other.op == NPU_OP_LOAD_AT;
    if (loads && !fetch(step, rank_of_[k])) return std::nullopt;
  }

  const Box box(operand.addr, size, operand.stride, rank, width);
  Bytes bytes;
  int64_t point[NPU_MAX_RANK] = {};
  while (true) {
    const bool evaluated =
        std::all_of(slice.begin(), slice.end(), [&](uint16_t step) { return evaluate_at(step, point); });
    if (evaluated && (in.mask == NPU_NO_VALUE || values_[in.mask].i) && takes_part(point)) {
      int64_t at = offset_at(in.imm, point);
      if (is_access_at(in)) at += values_[offset_of(in)].i;
      // Outside of the limit the driver fails the command, with its own words.
      if (!is_access_at(in) || operand.limit == 0 || (at >= 0 && at < operand.limit)) {
        const Box moved = box.moved(at * static_cast<int64_t>(width));
        if (moved.is_run()) {
          bytes.add(Run{moved.begin(), moved.end()});
        } else {
          bytes.add(moved);
        }
      }
    }
    int d = rank - 1;
    while (d >= 0 && ++point[d] == walked[d]) point[d--] = 0;
    if (d < 0) break;
  }
  bytes.finish();
  return bytes;
}

}  // namespace torch_npu::sanitizer
