#include "drivers/cmodel/exec.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "drivers/cmodel/tile_memory.h"

namespace cmodel {

void FailureSink::report(npu_status status, std::string text, int64_t position) {
  std::lock_guard lock(mutex_);
  if (failed_ && position_ <= position) return;
  failure_ = {status, std::move(text)};
  position_ = position;
  failed_ = true;
}

bool FailureSink::finish(Failure& failure) const {
  if (!failed_) return true;
  failure = failure_;
  return false;
}

uint64_t scalar_bits(uint64_t bits, int dtype) {
  uint64_t out = 0;
  switch (dtype) {
    case NPU_F32: {
      const float f = static_cast<float>(__builtin_bit_cast(double, bits));
      std::memcpy(&out, &f, sizeof f);
      return out;
    }
    case NPU_BOOL:
      return bits != 0;
    case NPU_I32:
      return bits & 0xffffffffu;
    default:
      return bits;
  }
}

namespace {

struct FreeAligned {
  void operator()(char* p) const { std::free(p); }
};

struct Owned {
  Frame frame;
  std::unique_ptr<char, FreeAligned> memory;
  size_t capacity = 0;
};

}  // namespace

Frame& prepare(const Job& job, FailureSink& sink, int64_t block, int extra) {
  thread_local Owned owned;
  Frame& f = owned.frame;
  const Plan& plan = *job.program->plan;
  f.job = &job;
  f.plan = &plan;
  f.k = &kernels();
  f.sink = &sink;
  f.acc = nullptr;
  f.direct_stores = true;
  f.streams = false;
  f.in_combine = false;
  f.block = block;
  f.slot_bytes = block * 8 + 64;  // the 64 keep slots from sharing cache sets
  const size_t need = static_cast<size_t>(f.slot_bytes) * static_cast<size_t>(plan.slots + kTemps + extra);
  if (owned.capacity < need) {
    owned.memory.reset(static_cast<char*>(std::aligned_alloc(64, (need + 63) / 64 * 64)));
    owned.capacity = need;
  }
  f.slots = owned.memory.get();
  for (int i : plan.constants) {
    const Op& op = plan.ops[i];
    uint64_t bits;
    if (op.op == NPU_OP_CONST)
      bits = scalar_bits(plan.consts[op.imm], op.dtype);
    else if (op.op == NPU_OP_PARAM)
      bits = scalar_bits(job.params[op.imm].u, op.dtype);
    else
      bits = scalar_bits(static_cast<uint64_t>(job.command.size[op.imm]), op.dtype);
    f.scalar[i] = bits;
    f.val[i] = {reinterpret_cast<char*>(&f.scalar[i]), true};
  }
  return f;
}

const char* dense(Frame& f, Ref ref, int dtype, int64_t n, char* to) {
  if (!ref.uniform || n == 1) return ref.ptr;
  f.k->gather[log_size_of(dtype)](to, ref.ptr, 0, n);
  return to;
}

void run_tile(Frame& f, int begin, int end, const Tile& tile) {
  const int64_t n = tile.n;
  for (int i = begin; i < end; ++i) {
    const Op& op = f.plan->ops[i];
    switch (op.step) {
      case Step::kNothing:
        break;
      case Step::kCompute: {
        const Ref a = f.val[op.a], b = f.val[op.b], c = f.val[op.c];
        const unsigned uniform = (a.uniform | b.uniform << 1 | c.uniform << 2) & op.used;
        const unsigned extra = op.imm << 8;  // philox: which word
        if (uniform == op.used) {
          op.kernel(&f.scalar[i], a.ptr, b.ptr, c.ptr, 1, extra);
          f.val[i] = {reinterpret_cast<char*>(&f.scalar[i]), true};
        } else {
          char* out = op.store != kNone ? direct_target(f, op, tile) : nullptr;
          if (!out) out = f.slot(op.slot);
          op.kernel(out, a.ptr, b.ptr, c.ptr, n, uniform | extra);
          f.val[i] = {out, false};
        }
        break;
      }
      case Step::kLoad:
        load(f, i, tile);
        break;
      case Step::kStore:
        store(f, i, tile);
        break;
      case Step::kIndex:
        index(f, i, tile);
        break;
      case Step::kAcc:
        load_acc(f, i, tile);
        break;
      case Step::kCast:
      case Step::kBitcast:
        cast(f, i, n);
        break;
      case Step::kLoadAt:
        load_at(f, i, tile);
        break;
      case Step::kStoreAt:
        store_at(f, i, tile);
        break;
      case Step::kCheck:
        check_index(f, i, tile);
        break;
      case Step::kFold:
      case Step::kScan:
        break;  // the caller looks at their arguments when the segment is through
    }
  }
}

void combine(Frame& f, const Segment& segment, const Ref* left, const Ref* right, int64_t n) {
  int members = 0;
  while (members < NPU_MAX_TUPLE && segment.yield[members] != kNone) ++members;
  for (int k = 0; k < members; ++k) {
    if (segment.arg[k] != kNone) f.val[segment.arg[k]] = left[k];
    if (segment.arg[members + k] != kNone) f.val[segment.arg[members + k]] = right[k];
  }
  Tile tile;
  tile.cols = tile.n = n;
  tile.row_stride = tile.col_stride = kZeroStrides;
  run_tile(f, segment.begin, segment.end, tile);
}

}  // namespace cmodel
