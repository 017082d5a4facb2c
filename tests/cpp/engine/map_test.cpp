// MAP, SCATTER and COPY against the reference.
#include "tests/cpp/engine/program_fuzz.h"

namespace {

using namespace engine_test;

Case random_map(uint32_t seed) {
  Fuzz z(seed);
  Case k(NPU_MAP, z.shape(4));
  npu::Program p;
  p.name = "fuzz";
  p.instrs.push_back(z.make(NPU_OP_SEGMENT, NPU_DTYPE_NONE));
  std::vector<int> values;
  const int inputs = z.pick(1, 4);
  for (int i = 0; i < inputs; ++i) {
    z.input(k, z.storage());
    npu_instr in = z.make(NPU_OP_LOAD, z.chance(70) ? npu::compute_dtype(k.operands.back().dtype) : z.compute());
    in.imm = static_cast<uint32_t>(i);
    p.instrs.push_back(in);
    values.push_back(static_cast<int>(p.instrs.size()) - 1);
  }
  z.body(p, values, z.chance(50) ? z.pick(0, 2) : z.pick(0, 20), k.c.rank);
  const int outputs = z.pick(1, 2);
  for (int i = 0; i < outputs; ++i) {
    npu_instr in = z.make(NPU_OP_STORE, NPU_DTYPE_NONE);
    in.a = static_cast<uint16_t>(values[static_cast<size_t>(
        z.pick(z.chance(70) ? static_cast<int>(values.size()) - 1 : 0, static_cast<int>(values.size()) - 1))]);
    in.imm = static_cast<uint32_t>(k.operands.size());
    const int type = p.instrs[in.a].dtype;
    z.output(k, z.chance(60) ? type : z.storage());
    if (z.chance(15))
      for (int v : values)
        if (p.instrs[static_cast<size_t>(v)].dtype == NPU_BOOL) in.mask = static_cast<uint16_t>(v);
    // In place: the output is an input's memory.
    if (z.chance(20) && i == 0) {
      const int input = z.pick(0, inputs - 1);
      bool dense = k.block_of[static_cast<size_t>(input)] >= 0;
      for (int d = 0; d < k.c.rank; ++d)
        dense &= k.operands[static_cast<size_t>(input)].stride[d] != 0 || k.c.size[d] <= 1;
      if (dense) {
        k.operands.back() = k.operands[static_cast<size_t>(input)];
        k.block_of.back() = k.block_of[static_cast<size_t>(input)];
      }
    }
    p.instrs.push_back(in);
    if (z.chance(30)) z.body(p, values, z.pick(1, 3), k.c.rank);
  }
  p.operand_count = static_cast<uint32_t>(k.operands.size());
  return k.with(p);
}

}  // namespace

static void run_maps(uint32_t count) {
  for (uint32_t seed = 1; seed <= count; ++seed) {
    Case k = random_map(seed);
    const std::string text = k.compare();
    if (!text.empty()) {
      fail("seed " + std::to_string(seed) + ": " + text + "\n" + npu::to_text(k.program.desc()));
      break;
    }
  }
}

TEST(random_maps_agree_with_the_reference) {
  run_maps(3000);
}

TEST(large_maps_agree_with_the_reference) {
  Fuzz::large() = true;
  run_maps(60);
  Fuzz::large() = false;
}

TEST(random_copies_agree_with_the_reference) {
  for (uint32_t seed = 1; seed <= 1500; ++seed) {
    Fuzz z(seed);
    Case k(NPU_COPY, z.shape(5));
    const int type = z.storage();
    z.output(k, type);
    z.input(k, z.chance(50) ? type : z.storage());
    const std::string text = k.compare();
    if (!text.empty()) fail("seed " + std::to_string(seed) + ": " + text);
  }
}
