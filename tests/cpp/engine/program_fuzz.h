// Random programs, shapes, strides and types for the engine's tests. Arithmetic is limited to instructions whose result
// is one exact value, so that the engine and the reference must agree in every bit.
#pragma once
#include "tests/cpp/engine/engine_case.h"

namespace engine_test {

class Fuzz {
 public:
  explicit Fuzz(uint32_t seed) : random_(seed) {}

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

  std::vector<int64_t> shape(int max_rank) {
    const int64_t most = large() ? 600000 : 20000;
    std::vector<int64_t> s(static_cast<size_t>(pick(0, max_rank)));
    int64_t total = 1;
    for (int64_t& d : s) {
      d = chance(15)   ? 1
          : chance(3)  ? 0
          : chance(60) ? pick(2, 9)
          : chance(70) ? pick(10, 150)
                       : pick(150, large() ? 300000 : 3000);
      while (total * d > most) d = d / 2;
      total *= std::max<int64_t>(d, 1);
    }
    std::shuffle(s.begin(), s.end(), random_);
    return s;
  }

  // Fills a block with values that every type can hold and that sum up exactly.
  void fill(Bytes& bytes, int dtype) {
    const size_t size = static_cast<size_t>(npu::dtype_size(dtype));
    for (size_t i = 0; i + size <= bytes.size(); i += size) {
      npu::Value v{};
      if (dtype == NPU_BOOL) {
        bytes[i] = static_cast<unsigned char>(chance(50) ? 0 : chance(80) ? 1 : 7);
        continue;
      }
      const bool real = dtype >= NPU_F16;
      const int special = specials_ ? pick(0, 40) : 99;
      v.f64 = pick(-64, 64) / (real ? 8.0 : 1.0);
      if (real && special == 0) v.f64 = NAN;
      if (real && special == 1) v.f64 = INFINITY;
      if (real && special == 2) v.f64 = -INFINITY;
      if (real && special == 3) v.f64 = 1e30;
      if (real && special == 4) v.f64 = -0.0;
      if (!real && special == 5) v.f64 = -9e18;
      npu::store_value(&bytes[i], dtype, v, NPU_F64);
    }
  }
  // Shapes that several threads share.
  static bool& large() {
    static bool on = false;
    return on;
  }
  void specials(bool on) { specials_ = on; }

  // Strides for a read operand: dense, permuted, broadcast, reversed or with gaps.
  void input(Case& k, int dtype) {
    const int rank = k.c.rank;
    if (chance(10)) {
      npu::Value v{};
      v.f64 = pick(-4, 4);
      uint64_t bits = 0;
      npu::store_value(&bits, dtype, v, NPU_F64);
      k.immediate(dtype, bits);
      return;
    }
    layout(k, dtype, chance(35), true);
    (void)rank;
  }
  void output(Case& k, int dtype) { layout(k, dtype, false, false); }

  npu_instr make(int op, int dtype) {
    npu_instr in{};
    in.op = static_cast<uint8_t>(op);
    in.dtype = static_cast<uint8_t>(dtype);
    in.a = in.b = in.c = in.mask = NPU_NO_VALUE;
    return in;
  }
  int storage() {
    static const int types[] = {NPU_BOOL, NPU_U8,  NPU_I8,   NPU_U16, NPU_I16, NPU_U32, NPU_I32, NPU_U64,
                                NPU_I64,  NPU_F16, NPU_BF16, NPU_F32, NPU_F64, NPU_F32, NPU_F32, NPU_I64};
    return types[pick(0, 15)];
  }

  // Instructions of one segment: `values` are what it may use, and grows.
  void body(npu::Program& p, std::vector<int>& values, int count, int rank_for_index) {
    for (int k = 0; k < count; ++k) {
      const int a = values[static_cast<size_t>(pick(0, static_cast<int>(values.size()) - 1))];
      const int type = p.instrs[static_cast<size_t>(a)].dtype;
      auto same_type = [&] {
        std::vector<int> fit;
        for (int v : values)
          if (p.instrs[static_cast<size_t>(v)].dtype == type) fit.push_back(v);
        return static_cast<uint16_t>(fit[static_cast<size_t>(pick(0, static_cast<int>(fit.size()) - 1))]);
      };
      static const int any2[] = {NPU_OP_MIN, NPU_OP_MAX, NPU_OP_EQ, NPU_OP_NE,
                                 NPU_OP_LT,  NPU_OP_LE,  NPU_OP_GT, NPU_OP_GE};
      static const int number2[] = {NPU_OP_ADD, NPU_OP_SUB,  NPU_OP_MUL,  NPU_OP_DIV, NPU_OP_FLOORDIV,
                                    NPU_OP_MOD, NPU_OP_FMOD, NPU_OP_FMIN, NPU_OP_FMAX};
      static const int number1[] = {NPU_OP_NEG, NPU_OP_ABS, NPU_OP_SIGN, NPU_OP_SIGNBIT};
      static const int bits2[] = {NPU_OP_AND, NPU_OP_OR, NPU_OP_XOR};
      static const int ints2[] = {NPU_OP_SHL, NPU_OP_SHR, NPU_OP_POW};
      static const int reals1[] = {NPU_OP_FLOOR,      NPU_OP_CEIL,  NPU_OP_ROUND, NPU_OP_TRUNC,   NPU_OP_SQRT,
                                   NPU_OP_RECIPROCAL, NPU_OP_ISNAN, NPU_OP_ISINF, NPU_OP_FREXP_M, NPU_OP_FREXP_E};
      const bool is_bool = type == NPU_BOOL, real = type == NPU_F32 || type == NPU_F64;
      npu_instr in;
      const int what = pick(0, 9);
      if (what == 0 || (what == 1 && is_bool)) {
        in = make(NPU_OP_CAST, compute());
        in.a = static_cast<uint16_t>(a);
        in.imm = chance(50) ? uint32_t{NPU_DTYPE_NONE} : static_cast<uint32_t>(storage());
      } else if (what == 1) {
        in = make(number1[pick(0, real ? 2 : 3)], type);  // signbit: the sign of a NaN is exact mode's alone
        if (in.op == NPU_OP_SIGNBIT) in.dtype = NPU_BOOL;
        in.a = static_cast<uint16_t>(a);
      } else if (what == 2) {
        in = make(any2[pick(0, 7)], type);
        if (in.op >= NPU_OP_EQ) in.dtype = NPU_BOOL;
        in.a = static_cast<uint16_t>(a);
        in.b = same_type();
      } else if (what == 3 && rank_for_index > 0) {
        in = make(chance(70) ? NPU_OP_INDEX : NPU_OP_SIZE, chance(50) ? NPU_I64 : NPU_I32);
        in.imm = static_cast<uint32_t>(pick(0, rank_for_index - 1));
      } else if (what == 4) {
        in = make(NPU_OP_CONST, compute());
        in.imm = static_cast<uint32_t>(p.consts.size());
        if (p.consts.size() >= 60) continue;
        const double f = pick(-20, 20) / 4.0;
        const int64_t i = pick(-5, 5);
        p.consts.push_back(in.dtype >= NPU_F32 ? __builtin_bit_cast(uint64_t, f) : static_cast<uint64_t>(i));
      } else if (what == 5) {
        std::vector<int> conditions;
        for (int v : values)
          if (p.instrs[static_cast<size_t>(v)].dtype == NPU_BOOL) conditions.push_back(v);
        if (conditions.empty()) continue;
        in = make(NPU_OP_WHERE, type);
        in.a = static_cast<uint16_t>(conditions[static_cast<size_t>(pick(0, static_cast<int>(conditions.size()) - 1))]);
        in.b = same_type();
        in.c = static_cast<uint16_t>(a);
      } else if (is_bool || (!real && what == 6)) {
        in = make(chance(25) ? int{NPU_OP_NOT} : bits2[pick(0, 2)], type);
        in.a = static_cast<uint16_t>(a);
        if (in.op != NPU_OP_NOT) in.b = same_type();
      } else if (!real && what == 7) {
        in = make(ints2[pick(0, 2)], type);
        in.a = static_cast<uint16_t>(a);
        in.b = same_type();
      } else if (real && what == 6) {
        in = make(reals1[pick(0, 9)], type);
        if (in.op == NPU_OP_ISNAN || in.op == NPU_OP_ISINF) in.dtype = NPU_BOOL;
        if (in.op == NPU_OP_FREXP_E) in.dtype = NPU_I32;
        in.a = static_cast<uint16_t>(a);
      } else if (what == 8) {
        in = make(NPU_OP_FMA, type);
        in.a = static_cast<uint16_t>(a);
        in.b = same_type();
        in.c = same_type();
      } else {
        in = make(number2[pick(0, 8)], type);
        in.a = static_cast<uint16_t>(a);
        in.b = same_type();
      }
      p.instrs.push_back(in);
      values.push_back(static_cast<int>(p.instrs.size()) - 1);
    }
  }
  int compute() {
    static const int types[] = {NPU_BOOL, NPU_I32, NPU_I64, NPU_U64, NPU_F32, NPU_F64, NPU_F32, NPU_F32};
    return types[pick(0, 7)];
  }
  std::mt19937& random() { return random_; }

 private:
  void layout(Case& k, int dtype, bool broadcast, bool read) {
    const int rank = k.c.rank;
    std::vector<int> order(static_cast<size_t>(rank));
    for (int d = 0; d < rank; ++d) order[static_cast<size_t>(d)] = d;
    if (chance(30)) std::shuffle(order.begin(), order.end(), random_);
    std::vector<int64_t> stride(static_cast<size_t>(rank), 0);
    int64_t step = chance(15) ? 2 : 1, first = 0, last = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const int d = order[static_cast<size_t>(i)];
      const int64_t size = std::max<int64_t>(k.c.size[d], 1);
      if (broadcast && chance(50)) continue;
      const bool back = chance(8);
      stride[static_cast<size_t>(d)] = back ? -step : step;
      (back ? first : last) += step * (size - 1);
      step *= size + (chance(10) ? 1 : 0);
    }
    const int block = k.block(first + last + 1 + 3, dtype);
    fill(k.memory.back(), dtype);
    k.add(block, dtype, stride, first);
    (void)read;
  }

  std::mt19937 random_;
  bool specials_ = true;
};

}  // namespace engine_test
