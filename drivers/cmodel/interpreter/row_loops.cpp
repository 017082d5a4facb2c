#include "drivers/cmodel/interpreter/row_loops.h"

#include <algorithm>
#include <cstring>

#include "drivers/cmodel/interpreter/tile_memory.h"

namespace cmodel {

bool RowLoops::plan(const Segment& segment) {
  const Plan& plan = *f_.plan;
  if (plan.ops.size() > kMost) return false;
  segment_ = &segment;
  for (int i : plan.constants) row_values_[i] = constant(f_.val[i].ptr);
  for (int i = segment.begin; i < segment.end; ++i)
    if (!add(i, plan.ops[i])) return false;
  size_t folds = 0;
  for (int k = 0; k < loops_; ++k) folds += loop_[k].folds ? loop_[k].folds->size() : 0;
  return folds == segment.folds.size();
}

void RowLoops::run_row(const int64_t* offset, int64_t number) {
  for (int64_t c = 0; c < cols_; c += kPiece) {
    const int64_t n = std::min(kPiece, cols_ - c);
    for (int k = 0; k < count_; ++k) {
      const Action& a = action_[k];
      if (a.loop) {
        for (int j = 0; j < a.loop->pointers; ++j) a.loop->args.pointer[j] = at(a.loop->values[j], offset, number, c);
        (*a.loop->code)(a.loop->args, n);
        if (a.loop->folds) add_sums(*a.loop, a.loop->args.sums[0], n);
        continue;
      }
      char* out = at(a.out, offset, number, c);
      const char* in[5];
      for (int j = 0; j < (a.normalizes ? 5 : 3); ++j) in[j] = at(a.in[j], offset, number, c);
      const auto f32 = [&](int j) { return reinterpret_cast<const float*>(in[j]); };
      if (a.normalizes)
        f_.k->normalize(reinterpret_cast<float*>(out), f32(0), *f32(1), *f32(2), f32(3), f32(4), n, a.uniform);
      else if (a.kernel)
        a.kernel(out, in[0], in[1], in[2], a.one ? 1 : n, a.uniform);
      else
        a.convert(out, in[0], n);
    }
  }
}

void RowLoops::run_loop(Loop& loop, const Rows& rows, int64_t first, int64_t count, float* sums) const {
  for (int k = 0; k < loop.pointers; ++k) {
    const RowValue& row_value = loop.values[k];
    int64_t step = row_value.size == 0 ? 0 : rows.step[row_value.view] * row_value.size;
    if (row_value.value != 0) step = f_.val[row_value.value - 1].uniform ? 0 : rows.numbers * 4;
    loop.args.pointer[k] = at(row_value, rows.offset, rows.number, 0) + first * step;
    loop.args.turn[k] = step - cols_ / kLanes * loop.args.step[k];
  }
  (*loop.code)(loop.args, cols_, count, sums);
}

void RowLoops::add_sums(Loop& loop, const float* sums, int64_t points) {
  if (loop.points + points > kPlainBlock) settle(loop);
  for (size_t k = 0; k < loop.folds->size(); ++k)
    for (int i = 0; i < kLanes; ++i) loop.chains[k][i] += sums[k * kLanes + static_cast<size_t>(i)];
  loop.points += points;
}

void RowLoops::settle(Loop& loop) {
  for (size_t k = 0; k < loop.folds->size(); ++k) {
    loop.sums[k] += total(loop.chains[k]);
    std::fill_n(loop.chains[k], kLanes, 0.0f);
  }
  loop.points = 0;
}

namespace {

size_t place_of(int fold, const Segment& segment) {
  size_t s = 0;
  while (segment.folds[s].at != fold) ++s;
  return s;
}

}  // namespace

void RowLoops::take_sums(const Segment& segment, Acc* acc) {
  for (int l = 0; l < loops_; ++l) {
    Loop& loop = loop_[l];
    if (!loop.folds) continue;
    settle(loop);
    for (size_t k = 0; k < loop.folds->size(); ++k) {
      acc[place_of((*loop.folds)[k], segment)].sum += loop.sums[k];
      loop.sums[k] = 0;
    }
  }
}

void RowLoops::run(const Rows& rows, const Segment& segment, float* const* out) {
  const size_t folds = segment.folds.size();
  if (!is_one_loop())
    return run(rows, [&](int64_t r) {
      Acc acc[NPU_MAX_FOLDS] = {};
      take_sums(segment, acc);
      for (size_t k = 0; k < folds; ++k) out[k][r] = static_cast<float>(acc[k].sum);
    });
  float* to[NPU_MAX_FOLDS];
  for (size_t k = 0; k < folds; ++k) to[k] = out[place_of((*loop_[0].folds)[k], segment)];
  each_sums(rows, [&](int64_t r, const float* sums) {
    for (size_t k = 0; k < folds; ++k) to[k][r] = static_cast<float>(0.0 + total(sums + k * kLanes));
  });
}

bool RowLoops::add(int i, const Op& op) {
  if (f_.hoists && f_.fixed[i]) {
    row_values_[i] = constant(f_.val[i].ptr);
    return true;
  }
  switch (op.step) {
    case Step::kNothing:
      return true;
    case Step::kLoad:
      return add_load(i, op);
    case Step::kAcc:
      row_values_[i] = RowValue{};
      row_values_[i].at = views_[op.view].first;
      row_values_[i].size = 1 << log_size_of(op.dtype);
      row_values_[i].view = op.view;
      return f_.acc_dtype == op.dtype;
    case Step::kCompute:
      return add_kernel(i, op);
    case Step::kNormalize:
      return add_normalize(i, op);
    case Step::kLoop:
      return add_loop(f_.plan->loops[op.d]);
    case Step::kStore:
      return add_store(op);
    case Step::kFold:
      return folds_;  // plan() looks whether a loop adds it up
    default:
      return false;
  }
}

bool RowLoops::find(int id, RowValue& row_value) const {
  const Op& op = f_.plan->ops[id];
  const auto has = [id](const auto& list) { return std::find(list.begin(), list.end(), id) != list.end(); };
  if ((id >= segment_->begin && !has(segment_->row_values)) || has(f_.plan->constants)) {
    row_value = row_values_[id];
    return true;
  }
  // Of another segment, which a `get` may have named in this one. A load may stand as it lies in memory.
  if (op.dtype != NPU_F32 || (op.step == Step::kLoad && f_.job->operands[op.imm].dtype != NPU_F32)) return false;
  row_value = RowValue{};
  row_value.value = static_cast<int16_t>(id + 1);
  row_value.uniform = row_value.changes = true;
  return true;
}

bool RowLoops::add_load(int i, const Op& op) {
  const Operand& operand = f_.job->operands[op.imm];
  const RowView& view = views_[op.view];
  if (op.mask != NPU_NO_VALUE || (view.along != 0 && view.along != 1)) return false;
  const Convert convert = f_.k->convert[operand.dtype][op.dtype];
  // One value for all rows, which no other segment can have written.
  if (operand.immediate || (view.along == 0 && !view.moves && f_.plan->segments.size() == 1)) {
    convert(&f_.scalar[i], operand.immediate ? static_cast<const void*>(&operand.bits) : view.first, 1);
    row_values_[i] = constant(reinterpret_cast<char*>(&f_.scalar[i]));
    return true;
  }
  if (is_one_of(f_, op.overwritten, operand)) return false;
  row_values_[i] = in_memory(op, operand);
  if (operand.dtype == op.dtype) return true;
  if (view.along == 0) return false;
  if (op.is(Trait::kOnlyLooped) && is_narrow(operand.dtype)) {
    row_values_[i].stored = operand.dtype;
    return true;
  }
  Action* action = next();
  if (!action) return false;
  action->convert = convert;
  action->in[0] = row_values_[i];
  action->out = row_values_[i] = in_slot(op);
  return true;
}

RowLoops::RowValue RowLoops::target(const Op& op, bool loop) const {
  if (op.store == kNone) return in_slot(op);
  const Op& store = f_.plan->ops[op.store];
  const Operand& operand = f_.job->operands[store.imm];
  const bool narrow = loop && op.is(Trait::kOnlyStored) && op.dtype == NPU_F32 && is_narrow(operand.dtype);
  if ((operand.dtype != op.dtype && !narrow) || views_[store.view].along != 1 || store.mask != NPU_NO_VALUE ||
      is_one_of(f_, op.loaded_meanwhile, operand))
    return in_slot(op);
  RowValue row_value = in_memory(store, operand);
  row_value.stored = narrow ? operand.dtype : uint8_t{0};
  return row_value;
}

bool RowLoops::add_kernel(int i, const Op& op) {
  Action* action = next();
  if (!action) return false;
  const uint16_t ids[3] = {op.a, op.b, op.c};
  for (int k = 0; k < 3; ++k) {
    if (!(op.used >> k & 1)) continue;
    if (!find(ids[k], action->in[k]) || action->in[k].stored) return false;
    if (action->in[k].uniform) action->uniform |= 1u << k;
  }
  action->kernel = op.kernel;
  if (action->uniform == op.used) {
    action->one = true;
    action->uniform = op.imm << 8;
    action->out = row_values_[i] = constant(reinterpret_cast<char*>(&f_.scalar[i]));
    row_values_[i].changes = row_values_[i].computed = true;
    return true;
  }
  action->uniform |= op.imm << 8;
  action->out = row_values_[i] = target(op, false);
  return true;
}

bool RowLoops::add_normalize(int i, const Op& op) {
  Action* action = next();
  if (!action) return false;
  const uint16_t ids[5] = {op.a, op.b, op.c, op.d, op.e};
  for (int k = 0; k < 5; ++k)
    if (!find(ids[k], action->in[k]) || action->in[k].stored) return false;
  const RowValue* in = action->in;
  if (in[0].uniform || !in[1].uniform || !in[2].uniform) return false;
  action->normalizes = true;
  action->uniform = in[3].uniform | in[4].uniform << 1;
  action->out = row_values_[i] = target(op, false);
  return true;
}

bool RowLoops::add_loop(const CompiledLoop& compiled) {
  Action* action = next();
  const bool folds = folds_ && !compiled.folds.empty();
  if (!action || loops_ == kLoops || (!compiled.folds.empty() && !(folds && compiled.folding))) return false;
  Loop& loop = loop_[loops_++];
  const Plan& plan = *f_.plan;
  const std::vector<int>& written = folds ? compiled.stored : compiled.outputs;
  const int inputs = static_cast<int>(compiled.inputs.size()), outputs = static_cast<int>(written.size());
  loop.pointers = inputs + outputs;
  loop.folds = folds ? &compiled.folds : nullptr;
  std::fill_n(loop.sums, NPU_MAX_FOLDS, 0.0);
  std::fill_n(loop.chains[0], NPU_MAX_FOLDS * kLanes, 0.0f);
  loop.points = 0;
  for (size_t k = 0; k < compiled.constants.size(); ++k)
    std::memcpy(&loop.args.constant[k], &f_.scalar[compiled.constants[k]], sizeof(float));
  uint64_t storage = 0;
  bool varies = false;
  for (int k = 0; k < inputs; ++k) {
    const int id = compiled.inputs[k];
    RowValue& row_value = loop.values[k];
    if (!find(id, row_value)) return false;
    const bool flag = plan.ops[id].dtype == NPU_BOOL;
    if (row_value.changes && flag) return false;
    if (row_value.uniform && !row_value.changes) {
      loop.copies[k].set(row_value.at, flag);
      row_value.at = loop.copies[k].bytes;
    }
    varies |= !row_value.uniform;
    loop.args.step[k] = row_value.uniform ? 0 : (flag ? 1 : row_value.stored ? 2 : 4) * kLanes;
    loop.args.ahead[k] = 0;
    storage |= row_value.changes ? uint64_t{kSame} << (2 * k) : storage_bits(row_value.stored, k);
  }
  for (int k = 0; k < outputs; ++k) {
    const int id = written[k];
    loop.values[inputs + k] = row_values_[id] = target(plan.ops[id], true);
    loop.args.step[inputs + k] = (plan.ops[id].dtype == NPU_BOOL ? 1 : row_values_[id].stored ? 2 : 4) * kLanes;
    storage |= storage_bits(row_values_[id].stored, inputs + k);
  }
  const Form form = folds ? Form::kFolding : Form::kPlain;
  loop.code = storage == 0 ? (folds ? compiled.folding : compiled.code).get() : compiled.variant(form, storage);
  action->loop = &loop;
  return varies && loop.code;
}

bool RowLoops::add_store(const Op& op) {
  const Operand& operand = f_.job->operands[op.imm];
  RowValue value{};
  if (op.mask != NPU_NO_VALUE || views_[op.view].along != 1 || !find(op.a, value)) return false;
  const int from = f_.plan->ops[op.a].dtype;
  const RowValue to = in_memory(op, operand);
  if (value.size != 0 && value.view == to.view && value.at == to.at &&
      (value.stored ? value.stored == operand.dtype : operand.dtype == from && from != NPU_BOOL))
    return true;  // written by its kernel
  Action* action = next();
  if (!action || value.uniform || value.stored) return false;
  action->convert = f_.k->convert[from][operand.dtype];
  action->in[0] = value;
  action->out = to;
  return true;
}

}  // namespace cmodel
