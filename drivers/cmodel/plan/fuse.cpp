#include "drivers/cmodel/plan/planner.h"

namespace cmodel {

// Neighbours that run as one kernel: two of add, sub, mul, max; exp(a - b); erf(a * b). The first one's value must
// have no other use; its arguments then live until the second runs.
void Planner::fuse_pairs(const Segment& segment, const std::vector<int>& uses) {
  const Kernels& k = kernels();
  auto row_of = [](int op) { return op == NPU_OP_ADD ? 0 : op == NPU_OP_SUB ? 1 : op == NPU_OP_MUL ? 2 : kNone; };
  for (int i = segment.begin; i < segment.end; ++i) {
    Op& op = plan_.ops[i];
    if (op.step != Step::kCompute || op.dtype != NPU_F32) continue;
    for (const bool second : {true, false}) {
      if (second && in_[i].b == NPU_NO_VALUE) continue;
      const int from = second ? in_[i].b : in_[i].a;
      Op& inner = plan_.ops[from];
      const int row = row_of(inner.op);
      if (from < segment.begin || uses[from] != 1 || inner.step != Step::kCompute || inner.dtype != NPU_F32 ||
          row == kNone || inner.is(Trait::kFused))
        continue;
      Kernel kernel = nullptr;
      uint16_t other = 0;
      if (op.op == NPU_OP_EXP && inner.op == NPU_OP_SUB) {
        kernel = k.exp_sub;
      } else if (op.op == NPU_OP_ERF && inner.op == NPU_OP_MUL) {
        kernel = k.erf_mul;
      } else if (row_of(op.op) != kNone || (op.op == NPU_OP_MAX && !second)) {
        kernel = k.pair[row][op.op == NPU_OP_MAX ? 4 : op.op == NPU_OP_SUB && second ? 3 : row_of(op.op)];
        other = second ? in_[i].a : in_[i].b;
      }
      if (!kernel) continue;
      op.kernel = kernel;
      op.used = op.op == NPU_OP_EXP || op.op == NPU_OP_ERF ? 3 : 7;
      op.a = inner.a;
      op.b = inner.b;
      op.c = other;
      op.set(Trait::kFused);
      for (int id : {inner.a, inner.b}) last_[id] = std::max(last_[id], i);
      inner.step = Step::kNothing;
      break;
    }
  }
}

// gelu: (1 + erf(x * k)) * (x * h) with constants, in one loop.
void Planner::fuse_gelu(const Segment& segment, const std::vector<int>& uses) {
  const Kernels& k = kernels();
  for (int i = segment.begin; i < segment.end; ++i) {
    Op& op = plan_.ops[i];
    if (op.step != Step::kCompute || op.kernel != k.pair[0][2] || in_[op.a].op != NPU_OP_CONST ||
        plan_.consts[in_[op.a].imm] != __builtin_bit_cast(uint64_t, 1.0))
      continue;
    Op &erf = plan_.ops[op.b], &half = plan_.ops[op.c];
    if (op.b < segment.begin || op.c < segment.begin || erf.kernel != k.erf_mul || half.step != Step::kCompute ||
        half.op != NPU_OP_MUL || half.is(Trait::kFused) || half.dtype != NPU_F32 || half.a != erf.a ||
        uses[op.b] != 1 || uses[op.c] != 1 || in_[erf.b].op != NPU_OP_CONST || in_[half.b].op != NPU_OP_CONST)
      continue;
    erf.step = half.step = Step::kNothing;
    op.kernel = k.gelu;
    op.used = 7;
    op.a = erf.a;
    op.b = erf.b;
    op.c = half.b;
    last_[op.a] = std::max(last_[op.a], i);
  }
}

// Normalisation, the end of every norm: two such pairs in one loop.
void Planner::fuse_normalize(const Segment& segment, const std::vector<int>& uses) {
  const Kernels& k = kernels();
  for (int i = segment.begin; i < segment.end; ++i) {
    Op& op = plan_.ops[i];
    if (op.step != Step::kCompute || op.kernel != k.pair[2][0]) continue;
    for (const uint16_t from : {op.a, op.b}) {
      Op& inner = plan_.ops[from];
      if (from < segment.begin || uses[from] != 1 || inner.step != Step::kCompute || inner.kernel != k.pair[1][2])
        continue;
      op.step = Step::kNormalize;
      op.d = from == op.a ? op.b : op.a;
      op.e = op.c;
      op.a = inner.a;
      op.b = inner.b;
      op.c = inner.c;
      for (int id : {inner.a, inner.b, inner.c}) last_[id] = std::max(last_[id], i);
      inner.step = Step::kNothing;
      break;
    }
  }
}

void Planner::fuse(const Segment& segment) {
  std::vector<int> uses(in_.size());
  for (const npu_instr& in : in_) each_argument(in, [&](uint16_t id) { ++uses[id]; });
  fuse_pairs(segment, uses);
  fuse_gelu(segment, uses);
  fuse_normalize(segment, uses);
}

// Two words of one counter cost as much as one.
void Planner::pair_philox(const Segment& segment) {
  for (int i = segment.begin; i + 1 < segment.end; ++i) {
    Op &first = plan_.ops[i], &second = plan_.ops[i + 1];
    if (first.step != Step::kCompute || first.op != NPU_OP_PHILOX || second.op != NPU_OP_PHILOX ||
        first.a != second.a || first.b != second.b || first.c != second.c)
      continue;
    first.step = Step::kPhilox;
    first.d = static_cast<uint16_t>(i + 1);
    second.step = Step::kNothing;
    second.slot = static_cast<int16_t>(plan_.slots++);  // written before its turn, so never shared
    ++i;
  }
}

}  // namespace cmodel
