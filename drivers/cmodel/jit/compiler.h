// Writes the code of a compiled loop (jit.h).
#pragma once
#include <algorithm>
#include <cstddef>

#include "drivers/cmodel/jit/instructions.h"
#include "drivers/cmodel/jit/jit.h"
#include "drivers/cmodel/jit/tuning.h"
#include "drivers/cmodel/simd/isa_level.h"

namespace cmodel {

// General registers of the loop's pointers; further ones stay in the arguments. rdi holds the arguments and is free
// afterwards, rsi stays, rdx counts.
constexpr int kPointerRegister[] = {0, 1, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15};
constexpr size_t kRegisterPointers = sizeof kPointerRegister / sizeof *kPointerRegister;
constexpr size_t kFirstSaved = 6;  // of these, rbx and what follows belong to the caller
constexpr int kRdi = Encoder::kRdi, kRsi = Encoder::kRsi, kRdx = Encoder::kRdx, kAll = Vectors::kAll;

// What a loop is made of, beside its form.
struct Layout {
  uint64_t storage = 0;
  bool constants_in_registers = true;
  int together = 1;    // vectors that advance side by side: one does not wait for the other
  bool keeps = false;  // what finds no register waits in the arguments
};

class Compiler {
 public:
  Compiler(const CompiledLoop& loop, Form form, Layout layout)
      : in_(*loop.program),
        loop_(loop),
        form_(form),
        layout_(layout),
        outputs_(form == Form::kFolding   ? loop.stored
                 : form == Form::kColumns ? none_
                                          : loop.outputs),
        folds_(form == Form::kFolding || form == Form::kColumns ? loop.folds : none_),
        e_(isa_level() == IsaLevel::kAvx512),
        uses_(in_.size()) {
    for (auto& place : place_) place.assign(in_.size(), -1);
    kept_.assign(in_.size(), -1);
    for (int i : loop.members) each_argument(in_[i], [&](int id) { uses_[id].push_back(i); });
    if (layout.constants_in_registers)
      for (int i : loop.constants) uses_[i].push_back(static_cast<int>(in_.size()));
  }

  std::unique_ptr<Code> run() {
    for (int k = e_.values(); k > 0; --k) free_values_.push_back(k - 1);
    for (int k = 6; k >= 2; --k) free_masks_.push_back(k);
    for (int k = kLoopKept; k > 0; --k) free_kept_.push_back(k - 1);
    const bool columns = form_ == Form::kColumns;
    const size_t pointers = loop_.inputs.size() + (columns ? folds_.size() : outputs_.size());
    if (pointers > (columns ? kRegisterPointers : kLoopPointers)) return nullptr;
    const size_t held = std::min(pointers, kRegisterPointers);
    for (size_t k = kFirstSaved; k < held; ++k) e_.push(kPointerRegister[k]);
    for (size_t k = 0; k < held; ++k) e_.load_pointer(kPointerRegister[k], kRdi, static_cast<int32_t>(8 * k));
    for (size_t k = 0; k < loop_.constants.size() && layout_.constants_in_registers; ++k) {
      const int reg = take(free_values_);
      for (auto& place : place_) place[loop_.constants[k]] = reg;
      if (reg >= 0) e_.broadcast(reg, kRsi, constant_at(k));
    }
    take_sums();
    if (failed_) return nullptr;
    columns ? points() : rows();
    for (size_t k = held; k > kFirstSaved; --k) e_.pop(kPointerRegister[k - 1]);
    e_.finish();
    return failed_ ? nullptr : Code::make(e_.code);
  }

 private:
  void points() {
    if (layout_.together > e_.per_unit()) loop(2);
    loop(1);
    e_.compare(kRdx, 0);
    const size_t done = e_.jump(Encoder::kEqual);
    e_.begin_rest();
    form_ == Form::kColumns ? column(true) : body(true, e_.per_unit());
    e_.land(done);
  }
  void rows() {
    e_.store_pointer(kRsi, offsetof(LoopArguments, points), kRdx);
    const size_t top = e_.code.size();
    e_.load_pointer(kRdx, kRsi, offsetof(LoopArguments, points));
    begin_sums();
    points();
    end_sums();
    add_to_pointers(loop_.inputs.size() + outputs_.size(), offsetof(LoopArguments, turn));
    e_.add_to_memory_number(kRsi, offsetof(LoopArguments, rows), -1);
    e_.jump(Encoder::kNotEqual, top);
  }

  // As long as there are points for it: sixteen each.
  void loop(int units) {
    const int8_t points = static_cast<int8_t>(16 * units);
    const bool columns = form_ == Form::kColumns;
    e_.compare(kRdx, points);
    const size_t short_one = e_.jump(Encoder::kLess);
    const size_t top = e_.code.size();
    if (loop_.ahead && !columns) fetch(units);
    columns ? column(false) : body(false, units * e_.per_unit());
    for (int unit = 0; unit < units; ++unit) columns ? turn() : step();
    e_.sub(kRdx, points);
    e_.compare(kRdx, points);
    e_.jump(Encoder::kNotLess, top);
    e_.land(short_one);
  }

  template <class F>
  static void each_argument(const npu_instr& in, F f) {
    for (uint16_t id : {in.a, in.b, in.c})
      if (id != NPU_NO_VALUE) f(id);
  }
  static int32_t pointer_at(size_t k) { return static_cast<int32_t>(offsetof(LoopArguments, pointer) + 8 * k); }
  static int32_t constant_at(size_t k) { return static_cast<int32_t>(offsetof(LoopArguments, constant) + 4 * k); }
  // Of vector k of all sums: the folds' first vectors, of sixteen chains each, then their second ones.
  int32_t sum_at(size_t k) const {
    const size_t folds = folds_.size();
    return static_cast<int32_t>(offsetof(LoopArguments, sums) + 64 * (k % folds) + 32 * (k / folds));
  }
  static int32_t kept_at(int slot) { return static_cast<int32_t>(offsetof(LoopArguments, kept)) + 64 * slot; }

  // The register that holds pointer k. Changes rdi if none did.
  int pointer(size_t k) {
    if (k < kRegisterPointers) return kPointerRegister[k];
    e_.load_pointer(kRdi, kRsi, pointer_at(k));
    return kRdi;
  }

  int take(std::vector<int>& from) {
    if (from.empty() && layout_.keeps) make_room(from);
    if (from.empty()) {
      failed_ = true;
      return -1;
    }
    const int reg = from.back();
    from.pop_back();
    return reg;
  }
  std::vector<int>& registers_of(int id) {
    return in_[id].dtype == NPU_BOOL && e_.has_masks() ? free_masks_ : free_values_;
  }

  // The value that is not read for the longest time goes to memory. Bodies that keep values work on one vector.
  void make_room(std::vector<int>& registers) {
    int best = -1, next = -1;
    for (int id : live_) {
      if (place_[current_][id] < 0 || &registers_of(id) != &registers || is_argument(id)) continue;
      const auto use = std::upper_bound(uses_[id].begin(), uses_[id].end(), at_);
      const int when = use == uses_[id].end() ? static_cast<int>(in_.size()) : *use;
      if (when > next) {
        best = id;
        next = when;
      }
    }
    if (best < 0) return;
    int& place = place_[current_][best];
    if (kept_[best] < 0) {  // else it is there already
      if (free_kept_.empty()) return;
      kept_[best] = take(free_kept_);
      e_.keep(kRsi, place, kept_at(kept_[best]), in_[best].dtype == NPU_BOOL);
    }
    registers.push_back(place);
    place = -1;
  }
  bool is_constant(int id) const {
    return std::find(loop_.constants.begin(), loop_.constants.end(), id) != loop_.constants.end();
  }
  bool is_argument(int id) const { return at_ >= 0 && (in_[at_].a == id || in_[at_].b == id || in_[at_].c == id); }

  // The register of an argument; inputs are loaded where they are used first.
  int use(int id, int rest, int vector) {
    if (place_[vector][id] >= 0 || failed_) return place_[vector][id];
    const int reg = take(registers_of(id));
    if (reg < 0) return reg;
    place_[vector][id] = reg;
    if (kept_[id] >= 0) {
      e_.fetch(reg, kRsi, kept_at(kept_[id]), in_[id].dtype == NPU_BOOL);
      return reg;
    }
    const auto constant = std::find(loop_.constants.begin(), loop_.constants.end(), id);
    if (constant != loop_.constants.end()) {
      e_.broadcast(reg, kRsi, constant_at(static_cast<size_t>(constant - loop_.constants.begin())));
      return reg;
    }
    const auto found = std::find(loop_.inputs.begin(), loop_.inputs.end(), id);
    const size_t number = static_cast<size_t>(found - loop_.inputs.begin());
    const int from = pointer(number);
    live_.push_back(id);
    --inputs_left_[vector];
    if (in_[id].dtype == NPU_BOOL) {
      e_.load_flags(reg, from, offset(id, number, vector), rest);
    } else {
      e_.load_value(reg, storage_of(layout_.storage, number), from, offset(id, number, vector), rest);
      add_up(id, rest, vector);
    }
    return reg;
  }

  int size(int id, size_t pointer) const {
    const Storage storage = storage_of(layout_.storage, pointer);
    return in_[id].dtype == NPU_BOOL ? 1 : storage == kOwn ? 4 : storage == kSame ? 0 : 2;
  }
  int32_t offset(int id, size_t pointer, int vector) const { return size(id, pointer) * e_.lanes() * vector; }

  // Sums of 32 points at a time have sixteen chains, too. Many sums leave too few registers for anything else.
  bool sums_in_memory() const {
    return form_ == Form::kFolding && layout_.keeps && folds_.size() * static_cast<size_t>(e_.per_unit()) > 4;
  }
  size_t sum_count() const { return folds_.size() * static_cast<size_t>(e_.per_unit()); }
  void take_sums() {
    for (size_t k = 0; k < sum_count() && !sums_in_memory() && !failed_; ++k) sums_.push_back(take(free_values_));
  }
  void begin_sums() {
    for (const int reg : sums_) e_.zero(reg);
    if (!sums_in_memory()) return;
    const int reg = free_values_.back();
    e_.zero(reg);
    for (size_t k = 0; k < sum_count(); ++k) e_.store(kRsi, reg, sum_at(k));
  }
  // To where those of the row belong, as they lie in the arguments.
  void end_sums() {
    if (folds_.empty() || failed_) return;
    const int32_t first = sum_at(0);
    e_.load_pointer(kRdi, kRsi, offsetof(LoopArguments, row_sums));
    for (size_t k = 0; k < sum_count(); ++k) {
      const int reg = sums_in_memory() ? free_values_.back() : sums_[k];
      if (sums_in_memory()) e_.load(reg, kRsi, sum_at(k));
      e_.store(kRdi, reg, sum_at(k) - first);
    }
    for (size_t k = 0; k < folds_.size(); ++k) e_.add_to_memory_number(kRsi, offsetof(LoopArguments, row_sums), 64);
  }
  size_t sum(size_t fold, int vector) const {
    return fold + folds_.size() * static_cast<size_t>(vector % e_.per_unit());
  }
  void add_up(int id, int rest, int vector) {
    for (size_t k = 0; k < folds_.size(); ++k) {
      if (in_[folds_[k]].a != id) continue;
      if (sums_in_memory())
        e_.add_to_memory(kRsi, sum_at(sum(k, vector)), place_[vector][id], rest);
      else
        e_.add_to(sums_[sum(k, vector)], place_[vector][id], rest);
    }
  }

  void fetch(int units) {
    for (size_t k = 0; k < std::min(loop_.inputs.size(), kRegisterPointers); ++k) {
      if (in_[loop_.inputs[k]].op != NPU_OP_LOAD) continue;
      e_.load_pointer(kRdi, kRsi, static_cast<int32_t>(offsetof(LoopArguments, ahead) + 8 * k));
      for (int unit = 0; unit < units; ++unit) e_.prefetch(kPointerRegister[k], kRdi, static_cast<int8_t>(64 * unit));
    }
  }

  // All folded points of sixteen columns.
  void column(bool rest) {
    const size_t inputs = loop_.inputs.size();
    const auto each_sum = [&](auto f) {
      for (int v = 0; v < e_.per_unit(); ++v)
        for (size_t k = 0; k < folds_.size(); ++k)
          f(sums_[sum(k, v)], kPointerRegister[inputs + k], 4 * e_.lanes() * v, rest ? v : kAll);
    };
    each_sum([&](int reg, int from, int32_t at, int part) { e_.load_value(reg, kOwn, from, at, part); });
    e_.load_pointer(kRdi, kRsi, static_cast<int32_t>(offsetof(LoopArguments, points)));
    const size_t top = e_.code.size();
    body(rest, e_.per_unit());
    add_to_inputs(offsetof(LoopArguments, step));
    e_.sub(kRdi, 1);
    e_.jump(Encoder::kNotEqual, top);
    each_sum([&](int reg, int to, int32_t at, int part) { e_.store_value(to, reg, kOwn, at, part, false); });
  }
  void turn() {
    add_to_inputs(offsetof(LoopArguments, turn));
    for (size_t k = 0; k < folds_.size(); ++k) e_.add(kPointerRegister[loop_.inputs.size() + k], 64);
  }
  void add_to_inputs(size_t offset) { add_to_pointers(loop_.inputs.size(), offset); }
  void add_to_pointers(size_t count, size_t offset) {
    for (size_t k = 0; k < count; ++k) {
      const int32_t by = static_cast<int32_t>(offset + 8 * k);
      if (k < kRegisterPointers) {
        e_.add_memory(kPointerRegister[k], kRsi, by);
      } else {
        e_.load_pointer(kRdi, kRsi, by);
        e_.add_to_memory(kRsi, pointer_at(k), kRdi);
      }
    }
  }

  // As many vectors together as the layout says; of the rest one after the other, since the last may have no points.
  void body(bool rest, int vectors) {
    const int together = rest ? 1 : std::min(layout_.together, vectors);
    std::vector<size_t> ends;
    for (int first = 0; first < vectors; first += together) {
      const int behind = first + together;
      if (rest && first > 0) {
        e_.compare(kRdx, static_cast<int8_t>(first * e_.lanes()));
        ends.push_back(e_.jump(Encoder::kNotGreater));
      }
      live_.clear();
      for (int v = first; v < behind; ++v) {
        inputs_left_[v] = loop_.inputs.size();
        written_[v] = 0;
      }
      for (int i : loop_.members)
        for (int v = first; v < behind && !failed_; ++v) compute(i, rest ? v : kAll, v);
      for (int v = first; v < behind && !failed_; ++v)
        for (int i : outputs_) release(i, static_cast<int>(in_.size()), v);
    }
    for (const size_t end : ends) e_.land(end);
  }

  void compute(int i, int rest, int vector) {
    const npu_instr& in = in_[i];
    current_ = vector;
    at_ = i;
    int arg[3] = {0, 0, 0}, count = 0;
    each_argument(in, [&](int id) { arg[count++] = use(id, rest, vector); });
    const int to = take(registers_of(i));
    int temporaries[kMostTemporaries] = {};
    const int wanted = temporaries_of(in);
    for (int k = 0; k < wanted; ++k) temporaries[k] = take(free_values_);
    if (failed_) return;
    place_[vector][i] = to;
    live_.push_back(i);
    emit_instruction(e_, in, in_[in.a].dtype, to, arg[0], arg[1], arg[2], temporaries);
    free_values_.insert(free_values_.end(), temporaries, temporaries + wanted);
    add_up(i, rest, vector);
    write(i, rest, vector);
    each_argument(in, [&](int id) { release(id, i, vector); });
    release(i, i, vector);  // a value that nobody reads
  }

  // Writes what can be written: in order, and when everything is loaded, since an output may lie where an input does.
  void write(int at, int rest, int vector) {
    if (inputs_left_[vector] != 0) return;
    size_t& written = written_[vector];
    while (written < outputs_.size() && outputs_[written] <= at) {
      const int i = outputs_[written], reg = use(i, rest, vector);
      if (failed_) return;
      const size_t number = loop_.inputs.size() + written;
      const int to = pointer(number);
      const int32_t by = offset(i, number, vector);
      if (in_[i].dtype == NPU_BOOL)
        e_.store_flags(to, reg, by, rest);
      else
        e_.store_value(to, reg, storage_of(layout_.storage, number), by, rest, form_ == Form::kStreaming);
      ++written;
      release(i, at, vector);
    }
  }

  void release(int id, int at, int vector) {
    int& place = place_[vector][id];
    if (place < 0 && kept_[id] < 0) return;
    if ((layout_.constants_in_registers || !is_constant(id)) && !uses_[id].empty() && uses_[id].back() > at) return;
    const auto waits = outputs_.begin() + static_cast<std::ptrdiff_t>(written_[vector]);
    if (std::find(waits, outputs_.end(), id) != outputs_.end()) return;
    if (place >= 0) registers_of(id).push_back(place);
    if (kept_[id] >= 0) free_kept_.push_back(kept_[id]);
    place = kept_[id] = -1;
  }

  void step() {
    add_to_inputs(offsetof(LoopArguments, step));
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const size_t number = loop_.inputs.size() + k;
      const int8_t by = static_cast<int8_t>(16 * size(outputs_[k], number));
      if (number < kRegisterPointers)
        e_.add(kPointerRegister[number], by);
      else
        e_.add_to_memory_number(kRsi, pointer_at(number), by);
    }
  }

  const std::vector<npu_instr>& in_;
  const CompiledLoop& loop_;
  const Form form_;
  const Layout layout_;
  const std::vector<int> none_;
  const std::vector<int>&outputs_, &folds_;
  Vectors e_;
  std::vector<std::vector<int>> uses_;           // members that read it
  std::vector<int> sums_;                        // registers
  std::vector<int> place_[kMostVectors], kept_;  // registers, and places in memory
  std::vector<int> live_;                        // what the body has loaded and computed
  std::vector<int> free_values_, free_masks_, free_kept_;
  size_t inputs_left_[kMostVectors] = {}, written_[kMostVectors] = {};  // inputs to be loaded; outputs that are written
  int current_ = 0, at_ = -1;                                           // vector and member that are being computed
  bool failed_ = false;
};

}  // namespace cmodel
