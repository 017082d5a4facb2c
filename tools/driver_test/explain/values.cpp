// Hypotheses about values: rounding, conversion, arithmetic, NaN, masks, params, indices. Each runs the reference with
// a program that has the bug.
#include <algorithm>

#include "support/program/op_info.h"
#include "tools/driver_test/explain/trial.h"
#include "tools/driver_test/frame/watched.h"

namespace driver_test {

namespace {

using npu::Rewrite;

bool real(int dtype) {
  return dtype == NPU_F32 || dtype == NPU_F64;
}

bool stores(const npu_instr& in) {
  return in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT;
}

// (bits + add) & mask of an F32; a NaN stays one.
uint16_t masked_bits(Rewrite& out, uint16_t value, double add, double mask) {
  const auto bitcast = [&](uint16_t a, int from, int to) {
    return out.op(NPU_OP_BITCAST, to, a, NPU_NO_VALUE, NPU_NO_VALUE, static_cast<uint32_t>(from | to << 8));
  };
  const uint16_t more = out.op(NPU_OP_ADD, NPU_I32, bitcast(value, NPU_F32, NPU_I32), out.constant(NPU_I32, add));
  const uint16_t cut = out.op(NPU_OP_AND, NPU_I32, more, out.constant(NPU_I32, mask));
  return out.op(NPU_OP_WHERE, NPU_F32, out.op(NPU_OP_ISNAN, NPU_BOOL, value), value, bitcast(cut, NPU_I32, NPU_F32));
}

using Value = std::function<uint16_t(Rewrite&, uint16_t)>;

// What a value becomes before it is stored to an operand of that storage type.
void at_stores(Trial& trial, const std::string& bug, int storage, int compute, const Value& change) {
  trial.suppose(bug, [&](Rewrite& out, npu_instr in) {
    if (stores(in) && trial.view().operands[in.imm].dtype == storage && out.type(in.a) == compute)
      in.a = change(out, in.a);
    return out.emit(in);
  });
}

// What every value of a type becomes; only loads if `loads`.
void at_values(Trial& trial, const std::string& bug, int type, bool loads, const Value& change) {
  trial.suppose(bug, [&](Rewrite& out, const npu_instr& in) {
    const uint16_t value = out.emit(in);
    const bool fits = in.dtype == type && in.op != NPU_OP_FOLD && in.op != NPU_OP_SCAN && in.op != NPU_OP_GET &&
                      (in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT || !loads);
    return fits ? change(out, value) : value;
  });
}

Value through(int narrow, int type) {
  return [=](Rewrite& out, uint16_t v) {
    const bool storage = !NPU_IS_COMPUTE_DTYPE(narrow);
    return storage ? out.cast(v, type, narrow) : out.cast(out.cast(v, narrow), type);
  };
}

uint16_t clamped(Rewrite& out, uint16_t v, double low, double high) {
  const int type = out.type(v);
  const uint16_t least = out.op(NPU_OP_MAX, type, v, out.constant(type, low));
  return out.op(NPU_OP_MIN, type, least, out.constant(type, high));
}

uint16_t flushed(Rewrite& out, uint16_t v) {
  const uint16_t small = out.op(NPU_OP_LT, NPU_BOOL, out.op(NPU_OP_ABS, NPU_F32, v), out.constant(NPU_F32, 0x1p-126));
  return out.op(NPU_OP_WHERE, NPU_F32, small, out.constant(NPU_F32, 0), v);
}

void suppose_stores(Trial& trial) {
  at_stores(trial, "bf16 store truncates", NPU_BF16, NPU_F32,
            [](Rewrite& out, uint16_t v) { return masked_bits(out, v, 0, -65536.0); });
  at_stores(trial, "f16 store truncates", NPU_F16, NPU_F32,
            [](Rewrite& out, uint16_t v) { return masked_bits(out, v, 0, -8192.0); });
  at_stores(trial, "bf16 store rounds halves away from zero instead of to even", NPU_BF16, NPU_F32,
            [](Rewrite& out, uint16_t v) { return masked_bits(out, v, 32768.0, -65536.0); });
  at_stores(trial, "f16 store rounds halves away from zero instead of to even", NPU_F16, NPU_F32,
            [](Rewrite& out, uint16_t v) { return masked_bits(out, v, 4096.0, -8192.0); });
  struct Range {
    int dtype;
    double low, high;
  };
  for (const Range& r : {Range{NPU_U8, 0, 255}, {NPU_I8, -128, 127}, {NPU_U16, 0, 65535}, {NPU_I16, -32768, 32767}})
    for (const int compute : {NPU_F32, NPU_I32})
      at_stores(trial, say(npu::dtype_name(r.dtype), " store saturates instead of wrapping"), r.dtype, compute,
                [&](Rewrite& out, uint16_t v) { return clamped(out, v, r.low, r.high); });
  trial.suppose("float to int rounds to the nearest instead of truncating", [&](Rewrite& out, npu_instr in) {
    const int to = stores(in) ? int{trial.view().operands[in.imm].dtype} : int{in.dtype};
    const bool whole = to != NPU_BOOL && to < NPU_F16;
    if ((stores(in) || in.op == NPU_OP_CAST) && whole && real(out.type(in.a)))
      in.a = out.op(NPU_OP_ROUND, out.type(in.a), in.a);
    return out.emit(in);
  });
  trial.suppose("the result adds onto what was there before", [&](Rewrite& out, npu_instr in) {
    if (in.op == NPU_OP_STORE && out.type(in.a) != NPU_BOOL)
      in.a = out.op(NPU_OP_ADD, out.type(in.a), in.a, out.load(in.imm, out.type(in.a)));
    return out.emit(in);
  });
}

void suppose_types(Trial& trial) {
  for (const bool loads : {true, false}) {
    const char* where = loads ? " (where it is loaded)" : "";
    at_values(trial, say("i32 instead of i64", where), NPU_I64, loads, through(NPU_I32, NPU_I64));
    at_values(trial, say("f32 instead of f64", where), NPU_F64, loads, through(NPU_F32, NPU_F64));
    at_values(trial, say("subnormal numbers are flushed to zero", where), NPU_F32, loads, flushed);
    at_values(trial, say("f32 is rounded to bf16", where), NPU_F32, loads, through(NPU_BF16, NPU_F32));
    at_values(trial, say("f32 is rounded to f16", where), NPU_F32, loads, through(NPU_F16, NPU_F32));
  }
  View bytes = trial.view();
  bool any = false;
  for (size_t k = 0; k < bytes.operands.size(); k++)
    if (bytes.operands[k].dtype == NPU_BOOL && !trial.writes(k)) any = true, bytes.operands[k].dtype = NPU_U8;
  if (any) trial.suppose("a bool is read as a byte (true is any byte but 0)", bytes);
}

void suppose_masks(Trial& trial) {
  for (const int op : {NPU_OP_LOAD, NPU_OP_STORE, NPU_OP_LOAD_AT, NPU_OP_STORE_AT, NPU_OP_FOLD, NPU_OP_CHECK_INDEX})
    trial.suppose(say("the mask of ", npu::op_name(op), " is ignored"), [&](Rewrite& out, npu_instr in) {
      if (in.op == op) in.mask = NPU_NO_VALUE;
      return out.emit(in);
    });
  trial.suppose("all masks are ignored", [&](Rewrite& out, npu_instr in) {
    in.mask = NPU_NO_VALUE;
    return out.emit(in);
  });
}

void suppose_indices(Trial& trial) {
  trial.suppose("index wraps missing: a negative index is not wrapped", [&](Rewrite& out, npu_instr in) {
    if (in.op == NPU_OP_CHECK_INDEX) in.flags &= static_cast<uint8_t>(~NPU_INDEX_WRAP);
    return out.emit(in);
  });
  trial.suppose("an index is used as 32 bits: i32 instead of i64", [&](Rewrite& out, npu_instr in) {
    if (in.op == NPU_OP_CHECK_INDEX && out.type(in.a) == NPU_I64) in.a = through(NPU_I32, NPU_I64)(out, in.a);
    return out.emit(in);
  });
  trial.suppose("check_index checks nothing", [&](Rewrite& out, npu_instr in) {
    if (in.op == NPU_OP_CHECK_INDEX) in.flags &= static_cast<uint8_t>(~NPU_INDEX_CHECK);
    return out.emit(in);
  });
  const uint32_t rank = trial.command().rank;
  trial.suppose("`index` counts dimensions from the last", [&](Rewrite& out, npu_instr in) {
    if (in.op == NPU_OP_INDEX) in.imm = rank - 1 - in.imm;
    return out.emit(in);
  });
}

void suppose_params(Trial& trial) {
  if (trial.view().params.empty()) return;
  View changed = trial.view();
  std::memset(changed.params.data(), kOverwritten, changed.params.size() * sizeof(npu_scalar));
  trial.suppose("stale params: they are read after submit has returned (the driver keeps the pointer)", changed);
  changed = trial.view();
  for (size_t i = 0; i < changed.params.size(); i++)
    changed.params[i] = i < trial.last_params().size() ? trial.last_params()[i] : npu_scalar{};
  trial.suppose("the params are those of the command before", changed);
  changed = trial.view();
  for (npu_scalar& one : changed.params) one.u = 0;
  trial.suppose("params are taken for 0", changed);
  trial.suppose("whole params are read as doubles", [&](Rewrite& out, npu_instr in) {
    const int type = in.dtype;
    if (in.op != NPU_OP_PARAM || real(type)) return out.emit(in);
    in.dtype = NPU_F64;
    return out.cast(out.emit(in), type);
  });
}

}  // namespace

void suppose_values(Trial& trial) {
  suppose_params(trial);
  suppose_stores(trial);
  suppose_masks(trial);
  suppose_indices(trial);
  suppose_types(trial);
}

void suppose_programs(Trial& trial) {
  struct Mixed {
    int op, taken;
    const char* text;
  };
  static const std::vector<Mixed> mixed = {
      {NPU_OP_MAX, NPU_OP_FMAX, "NaN is not handled in max: the number beside it wins"},
      {NPU_OP_MIN, NPU_OP_FMIN, "NaN is not handled in min: the number beside it wins"},
      {NPU_OP_FMAX, NPU_OP_MAX, "NaN is not handled in fmax: the NaN wins"},
      {NPU_OP_FMIN, NPU_OP_MIN, "NaN is not handled in fmin: the NaN wins"},
      {NPU_OP_DIV, NPU_OP_FLOORDIV, "integer division floors instead of truncating (div)"},
      {NPU_OP_FLOORDIV, NPU_OP_DIV, "integer division truncates instead of flooring (floordiv)"},
      {NPU_OP_MOD, NPU_OP_FMOD, "mod has the sign of the dividend, as fmod"},
      {NPU_OP_FMOD, NPU_OP_MOD, "fmod has the sign of the divisor, as mod"},
      {NPU_OP_LT, NPU_OP_LE, "lt is true of equals, as le"},
      {NPU_OP_LE, NPU_OP_LT, "le is false of equals, as lt"},
      {NPU_OP_GT, NPU_OP_GE, "gt is true of equals, as ge"},
      {NPU_OP_GE, NPU_OP_GT, "ge is false of equals, as gt"},
      {NPU_OP_TRUNC, NPU_OP_FLOOR, "trunc rounds down, as floor"},
      {NPU_OP_TRUNC, NPU_OP_ROUND, "trunc rounds to the nearest, as round"},
      {NPU_OP_FLOOR, NPU_OP_TRUNC, "floor rounds towards zero, as trunc"},
      {NPU_OP_CEIL, NPU_OP_TRUNC, "ceil rounds towards zero, as trunc"}};
  for (const Mixed& m : mixed)
    trial.suppose(m.text, [&](Rewrite& out, npu_instr in) {
      if (in.op == m.op) in.op = static_cast<uint8_t>(m.taken);
      return out.emit(in);
    });
  trial.suppose("round takes halves up instead of to even", [&](Rewrite& out, const npu_instr& in) {
    if (in.op != NPU_OP_ROUND) return out.emit(in);
    return out.op(NPU_OP_FLOOR, in.dtype, out.op(NPU_OP_ADD, in.dtype, in.a, out.constant(in.dtype, 0.5)));
  });
  trial.suppose("fma rounds twice, as mul and add", [&](Rewrite& out, const npu_instr& in) {
    if (in.op != NPU_OP_FMA || !real(in.dtype)) return out.emit(in);
    return out.op(NPU_OP_ADD, in.dtype, out.op(NPU_OP_MUL, in.dtype, in.a, in.b), in.c);
  });
  trial.suppose("neg of a float subtracts from +0: the sign of a zero is lost", [&](Rewrite& out, const npu_instr& in) {
    if (in.op != NPU_OP_NEG || !real(in.dtype)) return out.emit(in);
    return out.op(NPU_OP_SUB, in.dtype, out.constant(in.dtype, 0), in.a);
  });
  trial.suppose("shr fills with zeros, not with the sign", [&](Rewrite& out, const npu_instr& in) {
    if (in.op != NPU_OP_SHR || in.dtype != NPU_I32) return out.emit(in);
    const uint16_t wide = out.op(NPU_OP_AND, NPU_I64, out.cast(in.a, NPU_I64), out.constant(NPU_I64, 4294967295.0));
    return out.cast(out.op(NPU_OP_SHR, NPU_I64, wide, out.cast(in.b, NPU_I64)), NPU_I32);
  });
  const size_t length = trial.view().program ? trial.view().program->instrs.size() : 0;
  for (size_t i = 0; i < length; i++) {
    const npu_instr& one = trial.view().program->instrs[i];
    if (npu::op_info(one.op).args == 0 || one.op == NPU_OP_CAST || stores(one) || one.op >= NPU_OP_COUNT) continue;
    for (const int which : {0, 1})
      trial.suppose(
          say("instruction %", i, " (", npu::op_name(one.op), ") is left out"), [&](Rewrite& out, npu_instr in) {
            const uint16_t instead = which ? in.b : in.a;
            const bool fits = out.visited() == i && instead != NPU_NO_VALUE && out.type(instead) == in.dtype &&
                              in.op != NPU_OP_FOLD && in.op != NPU_OP_SCAN && in.op != NPU_OP_GET;
            return fits ? instead : out.emit(in);
          });
    if (one.op == NPU_OP_SUB || one.op == NPU_OP_DIV || one.op == NPU_OP_WHERE || one.op == NPU_OP_LT ||
        one.op == NPU_OP_GT)
      trial.suppose(say("instruction %", i, " (", npu::op_name(one.op), ") has its arguments exchanged"),
                    [&](Rewrite& out, npu_instr in) {
                      if (out.visited() == i) in.op == NPU_OP_WHERE ? std::swap(in.b, in.c) : std::swap(in.a, in.b);
                      return out.emit(in);
                    });
  }
}

}  // namespace driver_test
