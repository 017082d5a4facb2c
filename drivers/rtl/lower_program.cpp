// Programs: one packet, or a few, for each instruction. Values between packets lie in scratch memory as f32 or i32;
// truth values are i32, 0 or 1. All stores come last, so a program that works in place has read everything before.
#include <cstring>

#include "drivers/rtl/lower.h"
#include "support/value.h"

using namespace npu_hw;

namespace rtl {
namespace {

constexpr uint32_t kSign = 0x80000000;

[[noreturn]] void no_instruction(const npu_instr& in) {
  throw Unsupported{std::string("the instruction ") + npu::op_name(in.op) + " of type " + npu::dtype_name(in.dtype)};
}

bool computes(int dtype) {
  return dtype == NPU_F32 || dtype == NPU_I32 || dtype == NPU_BOOL;
}

}  // namespace

Lowering::Value Lowering::scalar(npu_scalar bits, int dtype) {
  const npu::Value value = npu::scalar_value(bits, dtype);
  uint32_t pattern = static_cast<uint32_t>(value.u);
  if (dtype == NPU_F32) std::memcpy(&pattern, &value.f32, sizeof pattern);
  return {immediate(pattern), dtype};
}

// A packet has room for one immediate: a second one goes through memory.
Lowering::Value Lowering::apply(int dtype, uint32_t op, const View& a, const View& b, const View& c) {
  const View* given[3] = {&a, &b, &c};
  View sources[3];
  bool taken = false;
  for (int i = 0; i < 3; i++) {
    sources[i] = *given[i];
    if (!sources[i].immediate || sources[i].bits == 0) continue;
    if (taken) {
      Space one;
      View cell = contiguous(one, TYPE_I32);
      emit(OP_VECTOR, VEC_MOV, one, cell, sources[i]);
      sources[i] = cell;
    }
    taken = true;
  }
  // An immediate 0 beside another one would take its value.
  for (View& source : sources)
    if (taken && source.immediate && source.bits == 0 &&
        &source <= &sources[op == VEC_FMA || op == VEC_SELECT ? 2 : 1]) {
      Space one;
      View cell = contiguous(one, TYPE_I32);
      emit(OP_VECTOR, VEC_MOV, one, cell, immediate(0));
      source = cell;
    }
  const View result = contiguous(space_, dtype == NPU_F32 ? TYPE_F32 : TYPE_I32);
  const size_t first = packets.size();
  vector(op, result, sources[0], sources[1], sources[2]);
  last_ = {first, packets.size(), op, result, sources[0], sources[1], sources[2]};
  return {result, dtype};
}

Lowering::Value Lowering::invert(const Value& value) {
  return apply(NPU_BOOL, VEC_XOR, value.view, immediate(1));
}

Lowering::Value Lowering::convert(const Value& value, int dtype) {
  if (value.dtype == dtype) return value;
  if (!computes(dtype) || !computes(value.dtype))
    throw Unsupported{std::string("a conversion from ") + npu::dtype_name(value.dtype) + " to " +
                      npu::dtype_name(dtype)};
  if (dtype == NPU_F32) return apply(dtype, VEC_I2F, value.view);
  if (dtype == NPU_BOOL) return invert(apply(dtype, value.dtype == NPU_F32 ? VEC_EQ : VEC_IEQ, value.view));
  if (value.dtype == NPU_F32) return apply(dtype, VEC_F2I, value.view);
  return {value.view, dtype};
}

// As if stored as `storage` and loaded from it.
Lowering::Value Lowering::via(const Value& value, int storage, int dtype) {
  const int type = hardware_type(storage);
  if (type < 0) throw Unsupported{std::string("a cast through ") + npu::dtype_name(storage)};
  const Value exact = convert(value, npu::compute_dtype(storage));
  if (storage == exact.dtype) return convert(exact, dtype);  // it loses nothing there
  View cell = contiguous(space_, static_cast<uint32_t>(type));
  vector(VEC_MOV, cell, exact.view);
  return convert({cell, exact.dtype}, dtype);
}

Lowering::Value Lowering::compute_float(const npu_instr& in, const Value* v) {
  const View &a = v[0].view, &b = v[1].view, &c = v[2].view;
  switch (in.op) {
    case NPU_OP_ADD:
      return apply(NPU_F32, VEC_ADD, a, b);
    case NPU_OP_SUB:
      return apply(NPU_F32, VEC_SUB, a, b);
    case NPU_OP_MUL:
      return apply(NPU_F32, VEC_MUL, a, b);
    case NPU_OP_FMA:
      return apply(NPU_F32, VEC_FMA, a, b, c);
    case NPU_OP_MIN:
      return apply(NPU_F32, VEC_MIN, a, b);
    case NPU_OP_MAX:
      return apply(NPU_F32, VEC_MAX, a, b);
    case NPU_OP_NEG:
      return apply(NPU_F32, VEC_XOR, a, immediate(kSign));
    case NPU_OP_ABS:
      return apply(NPU_F32, VEC_AND, a, immediate(~kSign));
    case NPU_OP_EQ:
      return apply(NPU_BOOL, VEC_EQ, a, b);
    case NPU_OP_NE:
      return invert(apply(NPU_BOOL, VEC_EQ, a, b));
    case NPU_OP_LT:
      return apply(NPU_BOOL, VEC_LT, a, b);
    case NPU_OP_LE:
      return apply(NPU_BOOL, VEC_LE, a, b);
    case NPU_OP_GT:
      return apply(NPU_BOOL, VEC_LT, b, a);
    case NPU_OP_GE:
      return apply(NPU_BOOL, VEC_LE, b, a);
    case NPU_OP_ISNAN:
      return invert(apply(NPU_BOOL, VEC_EQ, a, a));
    case NPU_OP_SIGNBIT:
      return apply(NPU_BOOL, VEC_ILT, a, immediate(0));
    default:
      return compute_function(in, v);
  }
}

Lowering::Value Lowering::compute_integer(const npu_instr& in, const Value* v) {
  const View &a = v[0].view, &b = v[1].view;
  const int dtype = v[0].dtype;
  switch (in.op) {
    case NPU_OP_AND:
      return apply(dtype, VEC_AND, a, b);
    case NPU_OP_OR:
      return apply(dtype, VEC_OR, a, b);
    case NPU_OP_XOR:
      return apply(dtype, VEC_XOR, a, b);
    case NPU_OP_NOT:
      return apply(dtype, VEC_XOR, a, immediate(dtype == NPU_BOOL ? 1 : ~0u));
    case NPU_OP_EQ:
      return apply(NPU_BOOL, VEC_IEQ, a, b);
    case NPU_OP_NE:
      return invert(apply(NPU_BOOL, VEC_IEQ, a, b));
    case NPU_OP_LT:
      return apply(NPU_BOOL, VEC_ILT, a, b);
    case NPU_OP_GT:
      return apply(NPU_BOOL, VEC_ILT, b, a);
    case NPU_OP_LE:
      return invert(apply(NPU_BOOL, VEC_ILT, b, a));
    case NPU_OP_GE:
      return invert(apply(NPU_BOOL, VEC_ILT, a, b));
    case NPU_OP_MIN:
      return apply(dtype, VEC_IMIN, a, b);
    case NPU_OP_MAX:
      return apply(dtype, VEC_IMAX, a, b);
    default:
      break;
  }
  if (dtype != NPU_I32) no_instruction(in);
  switch (in.op) {
    case NPU_OP_ADD:
      return apply(dtype, VEC_IADD, a, b);
    case NPU_OP_SUB:
      return apply(dtype, VEC_ISUB, a, b);
    case NPU_OP_MUL:
      return apply(dtype, VEC_IMUL, a, b);
    case NPU_OP_NEG:
      return apply(dtype, VEC_ISUB, immediate(0), a);
    case NPU_OP_SHL:
      return apply(dtype, VEC_SHL, a, b);
    case NPU_OP_SHR:
      return apply(dtype, VEC_SHR, a, b);
    default:
      no_instruction(in);
  }
}

Lowering::Value Lowering::compute(const npu_instr& in) {
  if (in.mask != NPU_NO_VALUE && in.op != NPU_OP_FOLD) throw Unsupported{"masks"};
  if (!computes(in.dtype)) no_instruction(in);
  const uint16_t ids[3] = {in.a, in.b, in.c};
  Value v[3];
  for (int i = 0; i < 3; i++)
    if (ids[i] != NPU_NO_VALUE) v[i] = values_[ids[i]];
  switch (in.op) {
    case NPU_OP_CONST: {
      npu_scalar bits;
      bits.u = program_->consts[in.imm];
      return scalar(bits, in.dtype);
    }
    case NPU_OP_PARAM:
      return scalar(dry_ ? npu_scalar{} : command_.params[in.imm], in.dtype);
    case NPU_OP_ACC:
      return {*acc_, in.dtype};
    case NPU_OP_LOAD: {
      const npu_operand& o = command_.operands[in.imm];
      const int exact = npu::compute_dtype(o.dtype);
      if (!(o.flags & NPU_OPERAND_IMMEDIATE)) return convert({operand(in.imm), exact}, in.dtype);
      const npu::Value value = npu::load_value(&o.addr, o.dtype, in.dtype);
      uint32_t pattern = static_cast<uint32_t>(value.u);
      if (in.dtype == NPU_F32) std::memcpy(&pattern, &value.f32, sizeof pattern);
      return {immediate(pattern), in.dtype};
    }
    case NPU_OP_SIZE: {
      npu_scalar bits;
      bits.i = command_.size[in.imm];
      return scalar(bits, in.dtype);
    }
    case NPU_OP_GET:
      return members_[in.a][in.imm];
    case NPU_OP_CAST:
      return in.imm == NPU_DTYPE_NONE ? convert(v[0], in.dtype) : via(v[0], static_cast<int>(in.imm), in.dtype);
    case NPU_OP_WHERE:
      return apply(in.dtype, VEC_SELECT, v[0].view, v[1].view, v[2].view);
    default:
      return v[0].dtype == NPU_F32 ? compute_float(in, v) : compute_integer(in, v);
  }
}

void Lowering::store(uint32_t index, const Value& value, bool only) {
  const int storage = command_.operands[index].dtype;
  if (hardware_type(storage) < 0) throw Unsupported{std::string("a store as ") + npu::dtype_name(storage)};
  const Value exact = convert(value, npu::compute_dtype(storage));
  const View result = operand(index);
  const bool is_last = last_.first < last_.end && last_.end == packets.size();
  if (only && is_last && !exact.view.immediate && exact.view.addr == last_.result.addr) {
    packets.resize(last_.first);  // compute it where it belongs
    vector(last_.op, result, last_.a, last_.b, last_.c);
  } else {
    vector(VEC_MOV, result, exact.view);
  }
}

// Everything that is stored has been computed, but for loads that are only stored elsewhere: these must be safe from
// the stores before them.
void Lowering::store_all() {
  const Space all = space_;
  const uint64_t end = device_->scratch + device_->scratch_size;
  for (const Store& one : stores_) {
    Value& value = values_[one.in->a];
    space_ = one.space;
    if (stores_.size() > 1 && !value.view.immediate && value.view.addr >= end)
      value = apply(value.dtype, VEC_MOV, value.view);
  }
  for (const Store& one : stores_) {
    space_ = one.space;
    store(one.in->imm, values_[one.in->a], stores_.size() == 1);
  }
  space_ = all;
}

// Stores come last, so a load of what an earlier segment has stored takes the value itself, as it is after the storage
// type.
Lowering::Value Lowering::load_behind_stores(const npu_instr& in) {
  for (const Store& one : stores_) {
    const npu_operand &stored = command_.operands[one.in->imm], &loaded = command_.operands[in.imm];
    if (one.in->imm == in.imm && one.space.rank == space_.rank && in.mask == NPU_NO_VALUE)
      return via(values_[one.in->a], stored.dtype, in.dtype);
    if (one.in->imm == in.imm || (stored.addr == loaded.addr && !(loaded.flags & NPU_OPERAND_IMMEDIATE)))
      throw Unsupported{"a load behind a store to the same memory"};
  }
  return compute(in);
}

void Lowering::lower_program(const View* acc) {
  acc_ = acc;
  values_.resize(program_->instrs.size());
  members_.resize(program_->instrs.size());
  const Space all = space_;
  for (size_t i = 0; i < program_->instrs.size(); i++) {
    const npu_instr& in = program_->instrs[i];
    switch (in.op) {
      case NPU_OP_SEGMENT:
        if (in.imm == NPU_SEGMENT_COMBINE) throw Unsupported{"folds with a program of their own"};
        space_ = all;
        if (in.imm == NPU_SEGMENT_ROW) space_.rank -= command_.inner_rank;
        break;
      case NPU_OP_STORE:
        if (in.mask != NPU_NO_VALUE) throw Unsupported{"masks"};
        std::erase_if(stores_, [&](const Store& s) { return s.in->imm == in.imm && s.space.rank == space_.rank; });
        stores_.push_back({&in, space_});
        break;
      case NPU_OP_FOLD: {
        const int kind = static_cast<int>(in.imm & 0xff);
        Value value = values_[in.a];
        if (kind == NPU_FOLD_WELFORD && in.b == NPU_NO_VALUE && in.mask == NPU_NO_VALUE) {
          members_[i] = welford(value);
        } else {
          if (in.b != NPU_NO_VALUE) throw Unsupported{std::string("the fold ") + npu::fold_name(kind) + " of a tuple"};
          if (in.mask != NPU_NO_VALUE) throw Unsupported{"masks"};
          members_[i][0] = fold(kind, value);
        }
        values_[i] = members_[i][0];
        break;
      }
      case NPU_OP_LOAD:
        values_[i] = load_behind_stores(in);
        break;
      default:
        values_[i] = compute(in);
    }
    // Of a value that is one per row, inner coordinates move nothing.
    for (int d = space_.rank; d < NPU_MAX_RANK; d++) values_[i].view.stride[d] = 0;
  }
  space_ = all;
  store_all();
}

}  // namespace rtl
