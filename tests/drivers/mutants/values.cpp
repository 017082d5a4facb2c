// Wrong values: rounding, conversion, arithmetic, NaN.
#include "tests/drivers/mutants/mutant.h"

namespace mutant {
namespace {

using npu::Rewrite;

bool real(int dtype) {
  return dtype == NPU_F32 || dtype == NPU_F64;
}

// Changes a value of F32 on its way into an operand of this storage type.
template <class Change>
npu_status before_store(Work& work, std::string* why, int storage, Change change) {
  work.need_program();
  const std::vector<npu_operand>& operands = work.operands;
  work.rewrite([&](Rewrite& out, npu_instr in) {
    if ((in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT) && operands[in.imm].dtype == storage &&
        out.type(in.a) == NPU_F32)
      in.a = change(out, in.a);
    return out.emit(in);
  });
  return run_right(work, why);
}

// (bits + add) & mask of an F32; a NaN stays one.
uint16_t masked_bits(Rewrite& out, uint16_t value, double add, double mask) {
  const uint16_t bits = out.op(NPU_OP_BITCAST, NPU_I32, value, NPU_NO_VALUE, NPU_NO_VALUE, NPU_F32 | NPU_I32 << 8);
  const uint16_t more = out.op(NPU_OP_ADD, NPU_I32, bits, out.constant(NPU_I32, add));
  const uint16_t cut = out.op(NPU_OP_AND, NPU_I32, more, out.constant(NPU_I32, mask));
  const uint16_t made = out.op(NPU_OP_BITCAST, NPU_F32, cut, NPU_NO_VALUE, NPU_NO_VALUE, NPU_I32 | NPU_F32 << 8);
  return out.op(NPU_OP_WHERE, NPU_F32, out.op(NPU_OP_ISNAN, NPU_BOOL, value), value, made);
}

uint16_t clamped(Rewrite& out, uint16_t value, double low, double high) {
  const int type = out.type(value);
  const uint16_t least = out.op(NPU_OP_MAX, type, value, out.constant(type, low));
  return out.op(NPU_OP_MIN, type, least, out.constant(type, high));
}

// Every instruction `from` on these types becomes `to`.
template <int From, int To, bool Whole, bool Real>
npu_status instead(Work& work, std::string* why) {
  work.rewrite([&](Rewrite& out, npu_instr in) {
    const bool fits = in.a != NPU_NO_VALUE && (real(out.type(in.a)) ? Real : Whole);
    if (in.op == From && fits) in.op = To;
    return out.emit(in);
  });
  return run_right(work, why);
}

// What every value of a type becomes as soon as it is there.
template <class Change>
npu_status behind(Work& work, std::string* why, int type, std::vector<int> ops, Change change) {
  work.rewrite([&](Rewrite& out, const npu_instr& in) {
    const uint16_t value = out.emit(in);
    bool fits = in.dtype == type && in.op != NPU_OP_CONST;
    if (!ops.empty()) fits = fits && std::find(ops.begin(), ops.end(), int{in.op}) != ops.end();
    if (in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN || in.op == NPU_OP_GET || in.op == NPU_OP_SEGMENT) fits = false;
    return fits ? change(out, value) : value;
  });
  return run_right(work, why);
}

uint16_t flushed(Rewrite& out, uint16_t value) {
  const uint16_t small =
      out.op(NPU_OP_LT, NPU_BOOL, out.op(NPU_OP_ABS, NPU_F32, value), out.constant(NPU_F32, 0x1p-126));
  return out.op(NPU_OP_WHERE, NPU_F32, small, out.constant(NPU_F32, 0), value);
}

npu_status rounds_to_int(Work& work, std::string* why) {
  work.need_program();
  const std::vector<npu_operand>& operands = work.operands;
  work.rewrite([&](Rewrite& out, npu_instr in) {
    const bool store = (in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT) && operands[in.imm].dtype < NPU_F16 &&
                       operands[in.imm].dtype != NPU_BOOL;
    const bool cast = in.op == NPU_OP_CAST && in.dtype != NPU_BOOL && !real(in.dtype);
    if ((store || cast) && real(out.type(in.a))) in.a = out.op(NPU_OP_ROUND, out.type(in.a), in.a);
    return out.emit(in);
  });
  return run_right(work, why);
}

npu_status shifts_logically(Work& work, std::string* why) {
  work.rewrite([&](Rewrite& out, const npu_instr& in) {
    if (in.op != NPU_OP_SHR || in.dtype != NPU_I32) return out.emit(in);
    const uint16_t wide = out.op(NPU_OP_AND, NPU_I64, out.cast(in.a, NPU_I64), out.constant(NPU_I64, 4294967295.0));
    return out.cast(out.op(NPU_OP_SHR, NPU_I64, wide, out.cast(in.b, NPU_I64)), NPU_I32);
  });
  return run_right(work, why);
}

npu_status fma_in_two_steps(Work& work, std::string* why) {
  work.rewrite([&](Rewrite& out, const npu_instr& in) {
    if (in.op != NPU_OP_FMA || !real(in.dtype)) return out.emit(in);
    return out.op(NPU_OP_ADD, in.dtype, out.op(NPU_OP_MUL, in.dtype, in.a, in.b), in.c);
  });
  return run_right(work, why);
}

npu_status rounds_half_up(Work& work, std::string* why) {
  work.rewrite([&](Rewrite& out, const npu_instr& in) {
    if (in.op != NPU_OP_ROUND) return out.emit(in);
    return out.op(NPU_OP_FLOOR, in.dtype, out.op(NPU_OP_ADD, in.dtype, in.a, out.constant(in.dtype, 0.5)));
  });
  return run_right(work, why);
}

npu_status negates_from_zero(Work& work, std::string* why) {
  work.rewrite([&](Rewrite& out, const npu_instr& in) {
    if (in.op != NPU_OP_NEG || !real(in.dtype)) return out.emit(in);
    return out.op(NPU_OP_SUB, in.dtype, out.constant(in.dtype, 0), in.a);
  });
  return run_right(work, why);
}

npu_status copies_bools_as_bytes(Work& work, std::string* why) {
  if (work.kind() == NPU_COPY && work.operands[1].dtype == NPU_BOOL && work.operands[0].dtype != NPU_BOOL)
    work.operands[1].dtype = NPU_U8;
  return run_right(work, why);
}

npu_status reads_params_as_floats(Work& work, std::string* why) {
  work.rewrite([&](Rewrite& out, npu_instr in) {
    if (in.op != NPU_OP_PARAM || in.dtype != NPU_I64) return out.emit(in);
    in.dtype = NPU_F64;
    return out.cast(out.emit(in), NPU_I64);
  });
  return run_right(work, why);
}

}  // namespace

std::vector<Bug> value_bugs() {
  return {
      {"bf16-truncates", "", "a store of bf16 cuts the low bits off", "store truncates",
       [](Work& w, std::string* why) {
         return before_store(w, why, NPU_BF16,
                             [](Rewrite& out, uint16_t v) { return masked_bits(out, v, 0, -65536.0); });
       }},
      {"f16-truncates", "", "a store of f16 cuts the low bits off", "store truncates",
       [](Work& w, std::string* why) {
         return before_store(w, why, NPU_F16, [](Rewrite& out, uint16_t v) { return masked_bits(out, v, 0, -8192.0); });
       }},
      {"bf16-half-away", "", "a store of bf16 rounds halves away from zero", "halves away from zero",
       [](Work& w, std::string* why) {
         return before_store(w, why, NPU_BF16,
                             [](Rewrite& out, uint16_t v) { return masked_bits(out, v, 32768.0, -65536.0); });
       }},
      {"u8-saturates", "", "a store of a float as u8 saturates", "saturates",
       [](Work& w, std::string* why) {
         return before_store(w, why, NPU_U8, [](Rewrite& out, uint16_t v) { return clamped(out, v, 0, 255); });
       }},
      {"float-to-int-rounds", "", "a float becomes the nearest integer", "rounds to the nearest", rounds_to_int},
      {"bool-as-byte", "COPY", "a bool other than 0 and 1 is read as that number", "bool", copies_bools_as_bytes},
      {"i64-as-i32", "", "64-bit integers are loaded as 32 bits", "i32 instead of i64",
       [](Work& w, std::string* why) {
         return behind(w, why, NPU_I64, {NPU_OP_LOAD},
                       [](Rewrite& out, uint16_t v) { return out.cast(out.cast(v, NPU_I32), NPU_I64); });
       }},
      {"f64-as-f32", "", "doubles are loaded as floats", "f32 instead of f64",
       [](Work& w, std::string* why) {
         return behind(w, why, NPU_F64, {NPU_OP_LOAD},
                       [](Rewrite& out, uint16_t v) { return out.cast(out.cast(v, NPU_F32), NPU_F64); });
       }},
      {"flushes-subnormals", "MAP", "subnormal numbers are taken for zero", "subnormal",
       [](Work& w, std::string* why) { return behind(w, why, NPU_F32, {NPU_OP_LOAD}, flushed); }},
      {"int-div-floors", "MAP", "integer division rounds down", "division floors",
       instead<NPU_OP_DIV, NPU_OP_FLOORDIV, true, false>},
      {"mod-as-fmod", "MAP", "the rest has the sign of the dividend", "mod",
       instead<NPU_OP_MOD, NPU_OP_FMOD, true, true>},
      {"shr-logical", "MAP", "a shift to the right fills with zeros", "shr", shifts_logically},
      {"trunc-as-floor", "MAP", "trunc rounds down", "trunc", instead<NPU_OP_TRUNC, NPU_OP_FLOOR, false, true>},
      {"round-half-up", "MAP", "round takes halves up", "round", rounds_half_up},
      {"fma-rounds-twice", "MAP", "fma rounds its product", "fma", fma_in_two_steps},
      {"max-loses-nan", "MAP", "max takes the number beside a NaN", "NaN",
       instead<NPU_OP_MAX, NPU_OP_FMAX, false, true>},
      {"lt-as-le", "MAP", "lt is true of equals", "lt", instead<NPU_OP_LT, NPU_OP_LE, true, true>},
      {"neg-from-zero", "MAP", "neg of +0 is +0", "", negates_from_zero},
      {"exp-poor", "MAP", "exp has the precision of bf16", "",
       [](Work& w, std::string* why) {
         return behind(w, why, NPU_F32, {NPU_OP_EXP},
                       [](Rewrite& out, uint16_t v) { return out.cast(v, NPU_F32, NPU_BF16); });
       }},
      {"params-as-floats", "", "whole params are read as floats", "param", reads_params_as_floats},
  };
}

}  // namespace mutant
