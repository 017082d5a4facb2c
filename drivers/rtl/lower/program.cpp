// Programs: one packet, or a few, for each instruction. Values between packets lie in scratch memory as f32 or i32;
// truth values are i32, 0 or 1. All stores come last, so a program that works in place has read everything before.
#include <algorithm>
#include <cstring>

#include "drivers/rtl/lower/lower.h"
#include "drivers/rtl/packet/packet_model.h"
#include "support/reference/value.h"

using namespace npu_hw;

namespace rtl {

// An instruction that is one operation of the vector unit: of its arguments in this order or the other, with a result
// of their type or a truth value, as it is or inverted.
struct Direct {
  uint32_t instruction, operation;
  enum { kNumber, kTruth, kInverted } result = kNumber;
  bool swapped = false;
};
namespace {

constexpr uint32_t kSign = 0x80000000;

[[noreturn]] void no_instruction(const npu_instr& in) {
  throw Unsupported{std::string("the instruction ") + npu::op_name(in.op) + " of type " + npu::dtype_name(in.dtype)};
}

bool computes(int dtype) {
  return dtype == NPU_F32 || dtype == NPU_I32 || dtype == NPU_I64 || dtype == NPU_BOOL;
}

int arguments(uint32_t op) {
  switch (op) {
    case VEC_FMA:
    case VEC_SELECT:
      return 3;
    case VEC_MOV:
    case VEC_I2F:
    case VEC_F2I:
    case VEC_F2L:
    case VEC_F2H:
    case VEC_FLOOR:
    case VEC_ROUND:
    case VEC_SQRT:
      return 1;
    default:
      return 2;
  }
}

constexpr Direct kOfFloats[] = {
    {NPU_OP_ADD, VEC_ADD},
    {NPU_OP_SUB, VEC_SUB},
    {NPU_OP_MUL, VEC_MUL},
    {NPU_OP_FMA, VEC_FMA},
    {NPU_OP_MIN, VEC_MIN},
    {NPU_OP_MAX, VEC_MAX},
    {NPU_OP_EQ, VEC_EQ, Direct::kTruth},
    {NPU_OP_NE, VEC_EQ, Direct::kInverted},
    {NPU_OP_LT, VEC_LT, Direct::kTruth},
    {NPU_OP_LE, VEC_LE, Direct::kTruth},
    {NPU_OP_GT, VEC_LT, Direct::kTruth, true},
    {NPU_OP_GE, VEC_LE, Direct::kTruth, true},
};
constexpr Direct kOfIntegers[] = {
    // and of truth values
    {NPU_OP_AND, VEC_AND},
    {NPU_OP_OR, VEC_OR},
    {NPU_OP_XOR, VEC_XOR},
    {NPU_OP_MIN, VEC_IMIN},
    {NPU_OP_MAX, VEC_IMAX},
    {NPU_OP_EQ, VEC_IEQ, Direct::kTruth},
    {NPU_OP_NE, VEC_IEQ, Direct::kInverted},
    {NPU_OP_LT, VEC_ILT, Direct::kTruth},
    {NPU_OP_GT, VEC_ILT, Direct::kTruth, true},
    {NPU_OP_LE, VEC_ILT, Direct::kInverted, true},
    {NPU_OP_GE, VEC_ILT, Direct::kInverted},
};
constexpr Direct kOfI32[] = {
    {NPU_OP_ADD, VEC_IADD}, {NPU_OP_SUB, VEC_ISUB}, {NPU_OP_MUL, VEC_IMUL},
    {NPU_OP_SHL, VEC_SHL},  {NPU_OP_SHR, VEC_SHR},
};

template <size_t N>
const Direct* find(const Direct (&table)[N], uint32_t instruction) {
  const Direct* row = std::find_if(table, table + N, [&](const Direct& d) { return d.instruction == instruction; });
  return row == table + N ? nullptr : row;
}

}  // namespace

Lowering::Value Lowering::scalar(npu_scalar bits, int dtype) {
  const npu::Value value = npu::scalar_value(bits, dtype);
  if (dtype == NPU_I64) return integer(value.i);
  uint32_t pattern = static_cast<uint32_t>(value.u);
  if (dtype == NPU_F32) std::memcpy(&pattern, &value.f32, sizeof pattern);
  return {immediate(pattern), dtype};
}

// What is the same for all points is computed here, by the model of packets, and what is the same along a dimension
// once.
Lowering::Value Lowering::apply(int dtype, uint32_t op, const View& a, const View& b, const View& c) {
  View sources[3] = {a, b, c};
  const int count = arguments(op);
  for (int i = count; i < 3; i++) sources[i] = immediate(0);
  bool fixed = true;
  for (const View& source : sources) fixed = fixed && source.immediate;
  if (fixed) return {immediate(run_operation(op, a.bits, b.bits, c.bits)), dtype};
  // Words of wide integers are often 0.
  const bool zero_a = a.immediate && a.bits == 0, zero_b = count > 1 && b.immediate && b.bits == 0;
  if ((op == VEC_IMUL || op == VEC_UMULH || op == VEC_AND) && (zero_a || zero_b)) return {immediate(0), dtype};
  if (op == VEC_ULT && zero_b) return {immediate(0), dtype};
  if ((op == VEC_IADD || op == VEC_OR || op == VEC_XOR) && zero_a) return {b, dtype};
  if ((op == VEC_IADD || op == VEC_OR || op == VEC_XOR || op == VEC_ISUB) && zero_b) return {a, dtype};
  if (op == VEC_AND && b.immediate && b.bits == ~0u) return {a, dtype};
  settle(sources, count);
  for (int i = count; i < 3; i++) sources[i] = View();  // not looked at, and no immediate beside another one
  const Space space = varying({&sources[0], &sources[1], &sources[2]});
  const View result = contiguous_over(space, dtype == NPU_F32 ? TYPE_F32 : TYPE_I32);
  const size_t first = packets.size();
  emit(OP_VECTOR, op, space, result, sources[0], sources[1], sources[2]);
  last_ = {first, packets.size(), op, result, sources[0], sources[1], sources[2]};
  return {result, dtype};
}

Lowering::Value Lowering::invert(const Value& value) {
  return apply(NPU_BOOL, VEC_XOR, value.view, immediate(1));
}

Lowering::Value Lowering::apply_direct(const Direct& row, const Value* v) {
  const View &a = v[row.swapped].view, &b = v[!row.swapped].view;
  const int dtype = row.result == Direct::kNumber ? v[0].dtype : NPU_BOOL;
  const Value made = apply(dtype, row.operation, a, b, v[2].view);
  return row.result == Direct::kInverted ? invert(made) : made;
}

Lowering::Value Lowering::select(const Value& which, const Value& yes, const Value& no) {
  if (which.view.immediate) return which.view.bits ? yes : no;
  const Range a = range_of(yes), b = range_of(no);
  Value made = apply(yes.dtype, VEC_SELECT, which.view, yes.view, no.view);
  made.range = {std::min(a.least, b.least), std::max(a.most, b.most)};
  made.wide = yes.wide || no.wide;
  if (made.wide) {
    const View high_yes = high_word(yes), high_no = high_word(no);
    const bool same = high_yes.immediate && high_no.immediate && high_yes.bits == high_no.bits;
    made.high = same ? high_yes : apply(NPU_I32, VEC_SELECT, which.view, high_yes, high_no).view;
  }
  return made;
}

Lowering::Value Lowering::convert(const Value& value, int dtype) {
  if (value.dtype == dtype) return value;
  if (!computes(dtype) || !computes(value.dtype))
    throw Unsupported{std::string("a conversion from ") + npu::dtype_name(value.dtype) + " to " +
                      npu::dtype_name(dtype)};
  if (dtype == NPU_I64 || value.dtype == NPU_I64) return convert_long(value, dtype);
  if (dtype == NPU_F32) return apply(dtype, VEC_I2F, value.view);
  if (dtype == NPU_BOOL) return invert(apply(dtype, value.dtype == NPU_F32 ? VEC_EQ : VEC_IEQ, value.view));
  if (value.dtype == NPU_F32) return apply(dtype, VEC_F2I, value.view);
  return {value.view, dtype};
}

// As if stored as `storage` and loaded from it.
Lowering::Value Lowering::via(const Value& value, int storage, int dtype) {
  if (storage == NPU_I64) return convert(convert(value, NPU_I64), dtype);
  const int type = hardware_type(storage);
  if (type < 0) throw Unsupported{std::string("a cast through ") + npu::dtype_name(storage)};
  const Value exact = convert(value, npu::compute_dtype(storage));
  if (storage == exact.dtype) return convert(exact, dtype);  // it loses nothing there
  const Space space = varying({&exact.view});
  const View cell = contiguous_over(space, static_cast<uint32_t>(type));
  emit(OP_VECTOR, VEC_MOV, space, cell, exact.view);
  return convert({cell, exact.dtype}, dtype);
}

Lowering::Value Lowering::compute_float(const npu_instr& in, const Value* v) {
  if (const Direct* row = find(kOfFloats, in.op)) return apply_direct(*row, v);
  const View& a = v[0].view;
  switch (in.op) {
    case NPU_OP_NEG:
      return apply(NPU_F32, VEC_XOR, a, immediate(kSign));
    case NPU_OP_ABS:
      return apply(NPU_F32, VEC_AND, a, immediate(~kSign));
    case NPU_OP_ISNAN:
      return invert(apply(NPU_BOOL, VEC_EQ, a, a));
    case NPU_OP_SIGNBIT:
      return apply(NPU_BOOL, VEC_ILT, a, immediate(0));
    default:
      return compute_function(in, v);
  }
}

Lowering::Value Lowering::compute_integer(const npu_instr& in, const Value* v) {
  if (const Direct* row = find(kOfIntegers, in.op)) return apply_direct(*row, v);
  const View &a = v[0].view, &b = v[1].view;
  const int dtype = v[0].dtype;
  if (in.op == NPU_OP_NOT) return apply(dtype, VEC_XOR, a, immediate(dtype == NPU_BOOL ? 1 : ~0u));
  if (dtype != NPU_I32) no_instruction(in);
  if (const Direct* row = find(kOfI32, in.op)) return apply_direct(*row, v);
  switch (in.op) {
    case NPU_OP_NEG:
      return apply(dtype, VEC_ISUB, immediate(0), a);
    case NPU_OP_FMA:
      return apply(dtype, VEC_IADD, apply(dtype, VEC_IMUL, a, b).view, v[2].view);
    case NPU_OP_DIV:
    case NPU_OP_FLOORDIV:
    case NPU_OP_MOD:
    case NPU_OP_FMOD:
      return divide(in.op, v[0], v[1]);
    default:
      no_instruction(in);
  }
}

Lowering::Value Lowering::compute(const npu_instr& in) {
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
    case NPU_OP_LOAD:
    case NPU_OP_LOAD_AT:
      return load(in);
    case NPU_OP_INDEX:
      return coordinate(static_cast<int>(in.imm), in.dtype);
    case NPU_OP_CHECK_INDEX:
      return check_index(in, v[0], v[1]);
    case NPU_OP_SIZE: {
      npu_scalar bits;
      bits.i = command_.size[in.imm];
      return scalar(bits, in.dtype);
    }
    case NPU_OP_GET:
      return members_[in.a][in.imm];
    default:
      return compute(in, v);
  }
}

Lowering::Value Lowering::compute(const npu_instr& in, const Value* v) {
  switch (in.op) {
    case NPU_OP_CAST:
      return in.imm == NPU_DTYPE_NONE ? convert(v[0], in.dtype) : via(v[0], static_cast<int>(in.imm), in.dtype);
    case NPU_OP_WHERE:
      return select(v[0], v[1], v[2]);
    case NPU_OP_BITCAST: {
      // Between f32 and i32 nothing happens: a lane has no type.
      const uint32_t from = in.imm & 0xff, to = in.imm >> 8;
      if ((from != NPU_F32 && from != NPU_I32) || (to != NPU_F32 && to != NPU_I32)) no_instruction(in);
      return {v[0].view, in.dtype};
    }
    default:
      if (v[0].dtype == NPU_I64) return compute_long(in, v);
      return v[0].dtype == NPU_F32 ? compute_float(in, v) : compute_integer(in, v);
  }
}

void Lowering::store(uint32_t index, const Value& value, bool only) {
  const int storage = command_.operands[index].dtype;
  if (storage == NPU_I64 || storage == NPU_U32) {
    const Value exact = convert(value, NPU_I64);
    vector(VEC_MOV, operand(index), exact.view);
    if (storage == NPU_I64)
      vector(VEC_MOV, operand(index, space_, command_.operands[index].stride, 1), high_word(exact));
    return;
  }
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
  const auto keep = [&](View& view) {
    if (!view.immediate && view.addr >= end) view = apply(NPU_I32, VEC_MOV, view).view;
  };
  for (const Store& one : stores_) {
    space_ = one.space;
    for (uint16_t id : {one.in->a, one.in->b, one.in->mask})
      if (stores_.size() > 1 && id != NPU_NO_VALUE) {
        keep(values_[id].view);
        if (values_[id].wide) keep(values_[id].high);
      }
  }
  for (const Store& one : stores_) {
    space_ = one.space;
    if (one.in->op == NPU_OP_STORE_AT || one.in->mask != NPU_NO_VALUE)
      store_at(*one.in, values_[one.in->a]);
    else
      store(one.in->imm, values_[one.in->a], stores_.size() == 1);
  }
  space_ = all;
}

// Stores come last, so a load of what an earlier segment has stored takes the value itself, as it is after the storage
// type.
Lowering::Value Lowering::load_behind_stores(const npu_instr& in) {
  for (const Store& one : stores_) {
    const npu_operand &stored = command_.operands[one.in->imm], &loaded = command_.operands[in.imm];
    if (one.in->imm == in.imm && one.space.rank == space_.rank && one.in->op == NPU_OP_STORE &&
        one.in->mask == NPU_NO_VALUE && in.op == NPU_OP_LOAD && in.mask == NPU_NO_VALUE)
      return via(values_[one.in->a], stored.dtype, in.dtype);
    if (one.in->imm == in.imm || (stored.addr == loaded.addr && !(loaded.flags & NPU_OPERAND_IMMEDIATE)))
      throw Unsupported{"a load behind a store to the same memory"};
  }
  return compute(in);
}

void Lowering::lower_program(const View* acc, const Epilogue* begun) {
  acc_ = acc;
  values_.resize(program_->instrs.size());
  members_.resize(program_->instrs.size());
  const Space all = space_;
  for (size_t i = 0; i < program_->instrs.size(); i++) {
    const npu_instr& in = program_->instrs[i];
    if (begun && std::find(begun->done.begin(), begun->done.end(), i) != begun->done.end()) {
      values_[i] = {*acc, NPU_F32};
      continue;
    }
    if (begun && static_cast<int>(i) == begun->store) continue;
    switch (in.op) {
      case NPU_OP_SEGMENT:
        if (in.imm == NPU_SEGMENT_COMBINE) throw Unsupported{"folds with a program of their own"};
        space_ = all;
        if (in.imm == NPU_SEGMENT_ROW) space_.rank -= command_.inner_rank;
        break;
      case NPU_OP_STORE:
        if (in.mask == NPU_NO_VALUE)
          std::erase_if(stores_, [&](const Store& s) { return s.in->imm == in.imm && s.space.rank == space_.rank; });
        stores_.push_back({&in, space_});
        break;
      case NPU_OP_STORE_AT:
        // Points come in order, with all their stores each.
        for (const Store& s : stores_)
          if (command_.operands[s.in->imm].addr == command_.operands[in.imm].addr)
            throw Unsupported{"two stores of a program to one operand"};
        stores_.push_back({&in, space_});
        break;
      case NPU_OP_FOLD: {
        const int kind = static_cast<int>(in.imm & 0xff);
        Value value = values_[in.a];
        if (kind == NPU_FOLD_WELFORD && in.b == NPU_NO_VALUE && in.mask == NPU_NO_VALUE) {
          members_[i] = welford(value);
        } else {
          const bool arg = kind == NPU_FOLD_ARGMAX || kind == NPU_FOLD_ARGMIN;
          if (in.b != NPU_NO_VALUE && !arg)
            throw Unsupported{std::string("the fold ") + npu::fold_name(kind) + " of a tuple"};
          if (arg)
            members_[i] = arg_fold(kind, value, values_[in.b], mask_of(in));
          else
            members_[i][0] = fold(kind, masked(kind, value, mask_of(in)));
        }
        values_[i] = members_[i][0];
        break;
      }
      case NPU_OP_SCAN:
        if (in.b != NPU_NO_VALUE || in.imm > NPU_FOLD_XOR) throw Unsupported{"scans of tuples"};
        values_[i] = members_[i][0] = scan(static_cast<int>(in.imm), values_[in.a]);
        break;
      case NPU_OP_LOAD:
      case NPU_OP_LOAD_AT:
        values_[i] = load_behind_stores(in);
        break;
      default:
        values_[i] = compute(in);
    }
    // Of a value that is one per row, inner coordinates move nothing.
    for (int d = space_.rank; d < NPU_MAX_RANK; d++) values_[i].view.stride[d] = values_[i].high.stride[d] = 0;
  }
  space_ = all;
  store_all();
}

}  // namespace rtl
