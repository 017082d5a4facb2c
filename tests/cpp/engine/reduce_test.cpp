// REDUCE and SCAN against the reference. Values are small multiples of 1/8, so sums are exact in any order.
#include "tests/cpp/engine/program_fuzz.h"

namespace {

using namespace engine_test;

int fold_type(Fuzz& z, int kind) {
  static const int numbers[] = {NPU_I32, NPU_I64, NPU_U64, NPU_F32, NPU_F64, NPU_F32};
  static const int bits[] = {NPU_BOOL, NPU_I32, NPU_I64, NPU_U64};
  if (kind == NPU_FOLD_WELFORD) return z.chance(60) ? NPU_F32 : NPU_F64;
  if (kind == NPU_FOLD_AND || kind == NPU_FOLD_OR || kind == NPU_FOLD_XOR) return bits[z.pick(0, 3)];
  if (kind == NPU_FOLD_SUM || kind == NPU_FOLD_PROD || kind == NPU_FOLD_CUSTOM) return numbers[z.pick(0, 5)];
  return z.compute();
}

struct Builder {
  Builder(Fuzz& fuzz, Case& c) : z(fuzz), k(c) {}
  Fuzz& z;
  Case& k;
  npu::Program p;
  int combine_count = 0;
  bool inexact = false;

  int push(npu_instr in) {
    p.instrs.push_back(in);
    return static_cast<int>(p.instrs.size()) - 1;
  }
  int load() {
    const uint32_t operand = inputs[static_cast<size_t>(z.pick(0, static_cast<int>(inputs.size()) - 1))];
    npu_instr in = z.make(NPU_OP_LOAD, npu::compute_dtype(k.operands[operand].dtype));
    in.imm = operand;
    return push(in);
  }
  int cast(int value, int type) {
    if (p.instrs[static_cast<size_t>(value)].dtype == type) return value;
    npu_instr in = z.make(NPU_OP_CAST, type);
    in.a = static_cast<uint16_t>(value);
    in.imm = NPU_DTYPE_NONE;
    return push(in);
  }
  // A fold (or scan) of a random kind over `value`. Products of many values are limited to bits.
  int fold(int op, int value, bool mask_allowed) {
    int kind = z.pick(0, NPU_FOLD_COUNT - 1);
    if (kind == NPU_FOLD_PROD) kind = NPU_FOLD_SUM;
    if (kind == NPU_FOLD_WELFORD && special) kind = NPU_FOLD_SUM;  // what infinities give depends on the order
    const int type = fold_type(z, kind);
    const int a = cast(value, type);
    npu_instr in = z.make(op, type);
    in.imm = static_cast<uint32_t>(kind);
    if (kind == NPU_FOLD_ARGMAX || kind == NPU_FOLD_ARGMIN) {
      npu_instr index = z.make(NPU_OP_INDEX, NPU_I64);
      index.imm = static_cast<uint32_t>(k.c.rank - 1);
      in.b = static_cast<uint16_t>(k.c.rank > 0 ? push(index) : cast(value, NPU_I64));
    }
    if (kind == NPU_FOLD_CUSTOM) {
      in.imm |= static_cast<uint32_t>(combine_count++) << 8;
      // (sum, last): not commutative, so the order shows
      in.b = static_cast<uint16_t>(a);
      custom_types.push_back(type);
    }
    if (kind == NPU_FOLD_WELFORD) inexact = true;
    in.a = static_cast<uint16_t>(a);
    if (mask_allowed && z.chance(25)) {
      npu_instr test = z.make(NPU_OP_LT, NPU_BOOL);
      test.a = static_cast<uint16_t>(value);
      test.b = static_cast<uint16_t>(load_same(value));
      in.mask = static_cast<uint16_t>(push(test));
    }
    const int at = push(in);
    return at;
  }
  int load_same(int value) { return cast(load(), p.instrs[static_cast<size_t>(value)].dtype); }
  void append_combines() {
    for (int type : custom_types) {
      npu_instr segment = z.make(NPU_OP_SEGMENT, NPU_DTYPE_NONE);
      segment.imm = NPU_SEGMENT_COMBINE;
      push(segment);
      int arg[4];
      for (int i = 0; i < 4; ++i) {
        npu_instr in = z.make(NPU_OP_ARG, type);
        in.imm = static_cast<uint32_t>(i);
        arg[i] = push(in);
      }
      npu_instr add = z.make(NPU_OP_ADD, type);
      add.a = static_cast<uint16_t>(arg[0]);
      add.b = static_cast<uint16_t>(arg[2]);
      const int sum = push(add);
      for (int i = 0; i < 2; ++i) {
        npu_instr yield = z.make(NPU_OP_YIELD, NPU_DTYPE_NONE);
        yield.imm = static_cast<uint32_t>(i);
        yield.a = static_cast<uint16_t>(i == 0 ? sum : arg[3]);
        push(yield);
      }
    }
  }
  void segment(int kind) {
    npu_instr in = z.make(NPU_OP_SEGMENT, NPU_DTYPE_NONE);
    in.imm = static_cast<uint32_t>(kind);
    push(in);
  }
  int get(int fold, int member, int type) {
    npu_instr in = z.make(NPU_OP_GET, type);
    in.a = static_cast<uint16_t>(fold);
    in.imm = static_cast<uint32_t>(member);
    return push(in);
  }
  void store(int value, bool row) {
    npu_instr in = z.make(NPU_OP_STORE, NPU_DTYPE_NONE);
    in.a = static_cast<uint16_t>(value);
    in.imm = static_cast<uint32_t>(k.operands.size());
    const int type = p.instrs[static_cast<size_t>(value)].dtype;
    z.output(k, type);
    if (row)
      for (int d = k.c.rank - k.c.inner_rank; d < k.c.rank; ++d) k.operands.back().stride[d] = 0;
    push(in);
  }
  std::vector<uint32_t> inputs;
  std::vector<int> custom_types;
  bool special = false;
};

std::vector<int> members_of(const Builder& b, int fold) {
  const npu_instr& in = b.p.instrs[static_cast<size_t>(fold)];
  const int kind = static_cast<int>(in.imm & 255);
  if (kind == NPU_FOLD_ARGMAX || kind == NPU_FOLD_ARGMIN) return {in.dtype, NPU_I64};
  if (kind == NPU_FOLD_WELFORD) return {in.dtype, in.dtype, in.dtype};
  if (kind == NPU_FOLD_CUSTOM) return {in.dtype, in.dtype};
  return {in.dtype};
}

Case random_reduce(uint32_t seed, bool& inexact) {
  Fuzz z(seed);
  const bool special = z.chance(20);
  z.specials(special);
  Case k(NPU_REDUCE, z.shape(4));
  k.c.inner_rank = static_cast<uint8_t>(z.pick(0, k.c.rank));
  Builder b(z, k);
  b.special = b.inexact = special;
  b.p.name = "fuzz";
  const int inputs = z.pick(1, 3);
  for (int i = 0; i < inputs; ++i) {
    b.inputs.push_back(static_cast<uint32_t>(k.operands.size()));
    z.input(k, z.storage());
  }
  b.segment(NPU_SEGMENT_EACH);
  std::vector<int> folds;
  const int value = b.load();
  for (int i = z.pick(1, 3); i > 0; --i) folds.push_back(b.fold(NPU_OP_FOLD, value, true));
  if (z.chance(20)) b.store(value, false);
  b.segment(NPU_SEGMENT_ROW);
  std::vector<int> row;
  for (int fold : folds) {
    const std::vector<int> types = members_of(b, fold);
    for (size_t m = 0; m < types.size(); ++m) row.push_back(b.get(fold, static_cast<int>(m), types[m]));
  }
  for (int value_of_row : row) b.store(value_of_row, true);
  if (z.chance(40)) {
    const int extra = z.chance(50) ? b.load_same(row[0]) : row[0];
    npu_instr max = z.make(NPU_OP_MAX, b.p.instrs[static_cast<size_t>(row[0])].dtype);
    max.a = static_cast<uint16_t>(row[0]);
    max.b = static_cast<uint16_t>(extra);
    const int scaled = b.push(max);
    b.segment(NPU_SEGMENT_EACH);
    const int x = b.load_same(scaled);
    npu_instr min = z.make(NPU_OP_MIN, b.p.instrs[static_cast<size_t>(scaled)].dtype);
    min.a = static_cast<uint16_t>(x);
    min.b = static_cast<uint16_t>(scaled);
    b.store(b.push(min), false);
  }
  b.append_combines();
  b.p.operand_count = static_cast<uint32_t>(k.operands.size());
  inexact = b.inexact;
  return k.with(b.p);
}

Case random_scan(uint32_t seed, bool& inexact) {
  Fuzz z(seed);
  const bool special = z.chance(20);
  z.specials(special);
  std::vector<int64_t> shape = z.shape(4);
  if (shape.empty()) shape.push_back(5);
  Case k(NPU_SCAN, shape, 1);
  Builder b(z, k);
  b.special = b.inexact = special;
  b.p.name = "fuzz";
  b.inputs.push_back(0);
  z.input(k, z.storage());
  b.segment(NPU_SEGMENT_EACH);
  const int value = b.load();
  const int scan = b.fold(NPU_OP_SCAN, value, false);
  b.segment(NPU_SEGMENT_EACH);
  const std::vector<int> types = members_of(b, scan);
  for (size_t m = 0; m < types.size(); ++m) b.store(b.get(scan, static_cast<int>(m), types[m]), false);
  b.append_combines();
  b.p.operand_count = static_cast<uint32_t>(k.operands.size());
  inexact = b.inexact;
  return k.with(b.p);
}

void run(Case (*make)(uint32_t, bool&), uint32_t count) {
  int bad = 0;
  for (uint32_t seed = 1; seed <= count && bad < 3; ++seed) {
    bool inexact = false;
    Case k = make(seed, inexact);
    const std::string text = k.compare(inexact ? Tolerance{1e-4, 1000} : Tolerance{});
    if (text.empty()) continue;
    ++bad;
    std::string shape;
    for (int d = 0; d < k.c.rank; ++d) shape += std::to_string(k.c.size[d]) + " ";
    fail("seed " + std::to_string(seed) + " [" + shape + "] inner " + std::to_string(k.c.inner_rank) + ": " + text +
         "\n" + npu::to_text(k.program.desc()));
  }
}

}  // namespace

TEST(random_reductions_agree_with_the_reference) {
  run(random_reduce, 3000);
}
TEST(random_scans_agree_with_the_reference) {
  run(random_scan, 1500);
}
TEST(large_reductions_and_scans_agree_with_the_reference) {
  Fuzz::large() = true;
  run(random_reduce, 60);
  run(random_scan, 30);
  Fuzz::large() = false;
}

// Rows of a plain running sum or product go side by side, the last few alone; bits are those of one row after the
// other.
TEST(scans_of_several_rows) {
  std::mt19937 random(4);
  for (const int64_t rows : {3, 4, 9, 40})
    for (const int64_t n : {1, 511, 513, 1700})
      for (const int64_t step : {1, 2, -1})
        for (const char* kind : {"sum", "prod", "max"})
          for (const int out : {NPU_F32, NPU_BF16}) {
            Case k(NPU_SCAN, {rows, n}, 1);
            const int64_t width = n * 2;
            std::vector<float> values(static_cast<size_t>(rows * width));
            static const float factors[] = {1, -1, 2, 0.5f};
            for (float& x : values)
              x = kind == std::string("prod") ? factors[random() % 4] : static_cast<float>(random() % 41) / 8 - 2;
            const int block = k.block(values);
            k.add(block, NPU_F32, {width, step}, step < 0 ? n - 1 : 0);
            if (out == NPU_F32 && step == 1)
              k.add(block, NPU_F32, {width, 1});  // in place
            else
              k.add(k.block(rows * width, out), out, {width, step == 2 ? 1 : 2});
            k.with(("program p(x, out)\neach:\n  %x = load x : f32\n  %s = scan " + std::string(kind) +
                    " %x\neach:\n  store out, %s\n")
                       .c_str());
            const std::string text = k.compare({});
            if (!text.empty())
              fail(std::string(kind) + " " + std::to_string(rows) + " x " + std::to_string(n) + " step " +
                   std::to_string(step) + ": " + text);
          }
}
