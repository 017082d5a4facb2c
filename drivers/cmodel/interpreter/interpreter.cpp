#include "drivers/cmodel/interpreter/interpreter.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <vector>

#include "drivers/cmodel/interpreter/repeat.h"
#include "drivers/cmodel/interpreter/tile_memory.h"

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
  f.streams = 0;
  f.folding = f.folds_tile = false;
  f.hoists = false;
  f.next_row = nullptr;
  f.row_buffer = nullptr;
  f.part = 0;
  f.parts = 1;
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

uint64_t streamed_operands(const Job& job, bool buffered) {
  uint64_t large = 0;
  const Plan& plan = *job.program->plan;
  for (const Op& op : plan.ops) {
    if (op.step != Step::kStore) continue;
    const Operand& operand = job.operands[op.imm];
    int64_t bytes = int64_t{1} << log_size_of(operand.dtype);
    for (int d = 0; d < job.command.rank; ++d)
      if (operand.stride[d] != 0) bytes *= job.command.size[d];
    if (bytes >= kStreamBytes && op.mask == NPU_NO_VALUE) large |= uint64_t{1} << op.imm;
  }
  if (large == 0) return 0;
  for (const Op& op : plan.ops) {
    if ((op.step != Step::kLoad && op.step != Step::kLoadAt) || (op.is(Trait::kRowBuffer) && buffered)) continue;
    for (uint64_t k = 0; k < NPU_MAX_OPERANDS; ++k)
      if ((large >> k & 1) && job.operands[k].ptr == job.operands[op.imm].ptr) large &= ~(uint64_t{1} << k);
  }
  return large;
}

const char* dense(Frame& f, Ref ref, int dtype, int64_t n, char* to) {
  if (!ref.uniform || n == 1) return ref.ptr;
  f.k->gather[log_size_of(dtype)](to, ref.ptr, 0, n);
  return to;
}

namespace {

// Memory for a value that cannot take a slot of its own: one of a row that a tile of several rows needs at every point.
char* spill(const Frame& f, int id) {
  thread_local std::unordered_map<int, std::vector<char>> memory;
  std::vector<char>& own = memory[id];
  own.resize(static_cast<size_t>(f.slot_bytes));
  return own.data();
}

}  // namespace

void expand_to_points(Frame& f, int id, const Tile& tile) {
  const Ref from = f.val[id];
  if (from.axis == kBoth) return;
  const Op& op = f.plan->ops[id];
  const int log_size = log_size_of(op.dtype);
  char* slot = op.slot != kNone && !from.kept ? f.slot(op.slot) : spill(f, id);
  const int64_t bytes = tile.cols << log_size;
  if (from.axis == kRows && (from.ptr < slot || from.ptr >= slot + f.slot_bytes)) {
    repeat_values(slot, from.ptr, log_size, 1, tile.rows, tile.cols);
  } else if (from.axis == kRows) {
    // From the end: the values may lie at the start of the slot that they fill.
    for (int64_t r = tile.rows - 1; r >= 0; --r) {
      uint64_t value = 0;
      std::memcpy(&value, from.ptr + (r << log_size), size_t{1} << log_size);
      f.k->gather[log_size](slot + r * bytes, &value, 0, tile.cols);
    }
  } else if (from.axis == kSum) {
    for (int64_t r = 0; r < tile.rows; ++r)
      f.k->op[NPU_OP_ADD][kI64](slot + r * bytes, from.ptr, &f.row_part[id][r], nullptr, tile.cols, 2);
  } else {
    if (slot != from.ptr) std::memcpy(slot, from.ptr, static_cast<size_t>(bytes));
    repeat_row(slot, bytes, tile.rows);
  }
  f.val[id] = {slot, false};
}

namespace {

// A kernel whose result is streamed out while it is computed.
void compute_streamed(Frame& f, int i, const Tile& tile, const StreamTarget& target, unsigned uniform) {
  const Op& op = f.plan->ops[i];
  const int log_size = log_size_of(op.dtype);
  const int64_t piece = kStreamBlock >> log_size;
  const uint16_t ids[3] = {op.a, op.b, op.c};
  const char* arg[3];
  int64_t step[3];
  for (int k = 0; k < 3; ++k) {
    arg[k] = f.val[ids[k]].ptr;
    const bool moves = (op.used >> k & 1) && !(uniform >> k & 1);
    step[k] = moves ? piece << log_size_of(f.plan->ops[ids[k]].dtype) : 0;
  }
  char* out = f.slot(op.slot);
  for (int64_t from = 0; from < tile.n; from += piece) {
    const int64_t to = std::min(tile.n, from + piece);
    op.kernel(out + (from << log_size), arg[0], arg[1], arg[2], to - from, uniform);
    target.write(f, out, log_size, from, to);
    for (int k = 0; k < 3; ++k) arg[k] += step[k];
  }
  f.val[i] = {out, false};
}

// All arguments vary along one direction, of m values, or not at all.
void compute_along(Frame& f, int i, int64_t m, Axis axis, unsigned uniform) {
  const Op& op = f.plan->ops[i];
  char* out = f.slot(op.slot);
  op.kernel(out, f.val[op.a].ptr, f.val[op.b].ptr, f.val[op.c].ptr, m, uniform);
  f.val[i] = {out, false, axis};
  // Inside an image no border is near: a mask that is the same everywhere costs the rest of the program nothing.
  if (op.dtype != NPU_BOOL) return;
  int64_t set = 0;
  for (int64_t k = 0; k < m; ++k) set += out[k] != 0;
  if (set != 0 && set != m) return;
  f.scalar[i] = set != 0;
  f.val[i] = {reinterpret_cast<char*>(&f.scalar[i]), true};
}

// An instruction with an argument that varies along one direction only. Where all of them share the direction, so does
// the result; else the kernel runs row by row, and nothing is written out.
void compute_by_axis(Frame& f, int i, const Tile& tile) {
  const Op& op = f.plan->ops[i];
  const uint16_t ids[3] = {op.a, op.b, op.c};
  unsigned both = 0, uniform = 0, kind[3] = {};
  for (int k = 0; k < 3; ++k) {
    if (!(op.used >> k & 1)) continue;
    const Ref& ref = f.val[ids[k]];
    kind[k] = ref.uniform ? 0u : ref.axis == kBoth ? 3u : unsigned{ref.axis};
    both |= kind[k];
    uniform |= (ref.uniform ? 1u : 0u) << k;
  }
  const unsigned extra = op.imm << 8;
  if (both != 3)
    return compute_along(f, i, both == kRows ? tile.rows : tile.cols, static_cast<Axis>(both), uniform | extra);
  if (op.is(Trait::kAddress) && kind[0] + kind[1] == kRows + kCols && kind[0] && kind[1]) {
    const bool first = kind[0] == kRows;
    f.row_part[i] = reinterpret_cast<const int64_t*>(f.val[first ? op.a : op.b].ptr);
    f.val[i] = {f.val[first ? op.b : op.a].ptr, false, kSum};
    return;
  }
  const StreamTarget stream = stream_target(f, op, tile);
  char* out = op.store != kNone ? store_target(f, op, tile) : nullptr;
  if (!out) out = f.slot(op.slot);
  int64_t step[3] = {}, rows = tile.rows, cols = tile.cols;
  if (cols < kShortKernelRow) {
    for (int k = 0; k < 3; ++k)
      if (kind[k] == kRows || kind[k] == kCols) expand_to_points(f, ids[k], tile);
    rows = 1;
    cols = tile.n;
  } else {
    for (int k = 0; k < 3; ++k) {
      if (kind[k] == 0) continue;
      const int64_t size = int64_t{1} << log_size_of(f.plan->ops[ids[k]].dtype);
      step[k] = kind[k] == kRows ? size : kind[k] == kCols ? 0 : cols * size;
      if (kind[k] == kRows) uniform |= 1u << k;
    }
  }
  const char *a = f.val[op.a].ptr, *b = f.val[op.b].ptr, *c = f.val[op.c].ptr;
  const int log_size = log_size_of(op.dtype);
  const int64_t out_step = cols << log_size;
  char* to = out;
  int64_t done = 0;
  for (int64_t r = 0; r < rows; ++r, to += out_step, a += step[0], b += step[1], c += step[2]) {
    op.kernel(to, a, b, c, cols, uniform | extra);
    if (!stream.at || ((r + 1) * cols - done < kStreamBlock >> log_size && r + 1 < rows)) continue;
    stream.write(f, out, log_size, done, (r + 1) * cols);
    done = (r + 1) * cols;
  }
  f.val[i] = {out, false};
}

void philox(Frame& f, int i, const Tile& tile) {
  const Op& op = f.plan->ops[i];
  const Op& other = f.plan->ops[op.d];
  for (uint16_t id : {op.a, op.b, op.c}) expand_to_points(f, id, tile);
  const Ref a = f.val[op.a], b = f.val[op.b], c = f.val[op.c];
  const unsigned uniform = a.uniform | b.uniform << 1 | c.uniform << 2;
  const bool one = uniform == 7;
  char *first = one ? reinterpret_cast<char*>(&f.scalar[i]) : f.slot(op.slot),
       *second = one ? reinterpret_cast<char*>(&f.scalar[op.d]) : f.slot(other.slot);
  f.k->philox_pair(reinterpret_cast<int64_t*>(first), reinterpret_cast<int64_t*>(second), a.ptr, b.ptr, c.ptr,
                   one ? 1 : tile.n, uniform, op.imm, other.imm);
  f.val[i] = {first, one};
  f.val[op.d] = {second, one};
}

// ((x - mean) * scale) * weight + bias, row by row of the tile.
void normalize(Frame& f, int i, const Tile& tile) {
  const Op& op = f.plan->ops[i];
  const Ref x = f.val[op.a];
  const auto per_row = [](const Ref& ref) { return ref.uniform || ref.axis == kRows; };
  if (x.uniform || x.axis != kBoth || !per_row(f.val[op.b]) || !per_row(f.val[op.c])) {
    // Anything else: as the four instructions that it stands for.
    for (uint16_t id : {op.a, op.b, op.c, op.d, op.e}) expand_to_points(f, id, tile);
    const Ref *a = &f.val[op.a], *b = &f.val[op.b], *c = &f.val[op.c], *d = &f.val[op.d], *e = &f.val[op.e];
    const unsigned first = a->uniform | b->uniform << 1 | c->uniform << 2, all = d->uniform << 1 | e->uniform << 2;
    const bool one = first == 7 && all == 6;
    char* out = one ? reinterpret_cast<char*>(&f.scalar[i]) : f.slot(op.slot);
    const int64_t n = one ? 1 : tile.n;
    f.k->pair[1][2](out, a->ptr, b->ptr, c->ptr, n, one ? 0 : first);
    f.k->pair[2][0](out, out, d->ptr, e->ptr, n, one ? 0 : all);
    f.val[i] = {out, one};
    return;
  }
  StreamTarget stream = stream_target(f, op, tile);
  char* target = op.store != kNone ? store_target(f, op, tile) : nullptr;
  const Ref by[4] = {f.val[op.b], f.val[op.c], f.val[op.d], f.val[op.e]};
  bool rows = false;
  for (const Ref& ref : by) rows |= ref.axis != kBoth;
  const int64_t count = rows ? tile.rows : 1, cols = rows ? tile.cols : tile.n;
  int64_t step[4];
  unsigned uniform = 0;
  // The kernel streams whole lines of memory itself; else they go out piece by piece.
  if (stream.whole_lines(count, cols)) {
    target = stream.at;
    stream = {};
    uniform = 4;
  }
  float* out = reinterpret_cast<float*>(target ? target : f.slot(op.slot));
  f.val[i] = {reinterpret_cast<char*>(out), false};
  for (int k = 0; k < 4; ++k) {
    step[k] = by[k].uniform || by[k].axis == kCols ? 0 : by[k].axis == kRows ? 1 : cols;
    if (k >= 2 && per_row(by[k])) uniform |= 1u << (k - 2);
  }
  const auto at = [&](int k, int64_t r) { return reinterpret_cast<const float*>(by[k].ptr) + r * step[k]; };
  const int64_t piece = stream.at ? kStreamBlock / 4 : cols;
  int64_t done = 0;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < cols; c += piece) {
      const int64_t m = std::min(piece, cols - c), first = r * cols + c;
      f.k->normalize(out + first, reinterpret_cast<const float*>(x.ptr) + first, *at(0, r), *at(1, r),
                     at(2, r) + (uniform & 1 ? 0 : c), at(3, r) + (uniform & 2 ? 0 : c), m, uniform);
      if (!stream.at || (first + m - done < piece && first + m < count * cols)) continue;
      stream.write(f, reinterpret_cast<const char*>(out), 2, done, first + m);
      done = first + m;
    }
}

// An instruction that one kernel computes.
void compute(Frame& f, int i, const Tile& tile) {
  const Op& op = f.plan->ops[i];
  const Ref a = f.val[op.a], b = f.val[op.b], c = f.val[op.c];
  if (a.axis | b.axis | c.axis) return compute_by_axis(f, i, tile);
  const unsigned uniform = (a.uniform | b.uniform << 1 | c.uniform << 2) & op.used;
  const unsigned extra = op.imm << 8;  // philox: which word
  if (uniform == op.used) {
    op.kernel(&f.scalar[i], a.ptr, b.ptr, c.ptr, 1, extra);
    f.val[i] = {reinterpret_cast<char*>(&f.scalar[i]), true};
  } else if (const StreamTarget stream = stream_target(f, op, tile); stream.at) {
    compute_streamed(f, i, tile, stream, uniform | extra);
  } else {
    char* out = op.store != kNone ? store_target(f, op, tile) : nullptr;
    if (!out) out = f.slot(op.slot);
    op.kernel(out, a.ptr, b.ptr, c.ptr, tile.n, uniform | extra);
    f.val[i] = {out, false};
  }
}

void nothing(Frame&, int, const Tile&) {}

void loop(Frame& f, int i, const Tile& tile) {
  run_loop(f, f.plan->loops[f.plan->ops[i].d], tile);
}

// A fold or scan: the caller looks at its arguments when the segment is through.
void folded(Frame& f, int i, const Tile& tile) {
  const Op& op = f.plan->ops[i];
  for (uint16_t id : {op.a, op.b, op.c}) expand_to_points(f, id, tile);
  if (op.mask != NPU_NO_VALUE) expand_to_points(f, op.mask, tile);
}

// In the order of Step.
constexpr void (*kSteps[])(Frame&, int, const Tile&) = {
    nothing,   load, load_at, store, store_at, index,  check_index, compute,
    normalize, loop, philox,  cast,  cast,     folded, folded,      load_acc,
};
static_assert(std::size(kSteps) == static_cast<size_t>(Step::kAcc) + 1);

}  // namespace

void run_tile(Frame& f, int begin, int end, const Tile& tile) {
  for (int i = begin; i < end; i = f.plan->ops[i].next)
    if (!f.hoists || !f.fixed[i]) kSteps[static_cast<size_t>(f.plan->ops[i].step)](f, i, tile);
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
