#include "drivers/cmodel/jit.h"

#include <algorithm>
#include <cstddef>

#include "drivers/cmodel/jit_encoder.h"
#include "drivers/cmodel/jit_instructions.h"

namespace cmodel {
namespace {

// General registers of the loop's pointers; further ones stay in the arguments. rdi holds the arguments and is free
// afterwards, rsi stays, rdx counts.
constexpr int kPointerRegister[] = {0, 1, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15};
constexpr size_t kRegisterPointers = sizeof kPointerRegister / sizeof *kPointerRegister;
constexpr size_t kFirstSaved = 6;  // of these, rbx and what follows belong to the caller
constexpr int kRdi = 7, kRsi = 6, kRdx = 2;
constexpr int kTailMask = 1, kSpareMask = 7, kSpare = 31;  // k1, k7, zmm31

// What a loop is made of, beside its form.
struct Layout {
  uint64_t storage = 0;
  bool constants_in_registers = true;
  bool paired = false;  // 32 points at a time: one half does not wait for the other
};

// Points on which a body works, in units of sixteen.
constexpr int kMostHalves = 2;

class Compiler {
 public:
  Compiler(const Group& group, Form form, Layout layout)
      : in_(*group.program),
        group_(group),
        form_(form),
        layout_(layout),
        outputs_(form == Form::kFolding   ? group.stored
                 : form == Form::kColumns ? none_
                                          : group.outputs),
        folds_(form == Form::kFolding || form == Form::kColumns ? group.folds : none_) {
    last_.assign(in_.size(), -1);
    for (auto& place : place_) place.assign(in_.size(), -1);
    for (int i : group.members) each_argument(in_[i], [&](int id) { last_[id] = i; });
    if (layout.constants_in_registers)
      for (int i : group.constants) last_[i] = static_cast<int>(in_.size());
  }

  std::unique_ptr<Code> run() {
    for (int k = 0; k < 31; ++k) free_values_.push_back(30 - k);
    for (int k = 6; k >= 2; --k) free_masks_.push_back(k);
    const bool columns = form_ == Form::kColumns;
    const size_t pointers = group_.inputs.size() + (columns ? folds_.size() : outputs_.size());
    if (pointers > (columns ? kRegisterPointers : kLoopPointers)) return nullptr;
    const size_t held = std::min(pointers, kRegisterPointers);
    for (size_t k = kFirstSaved; k < held; ++k) e_.push(kPointerRegister[k]);
    for (size_t k = 0; k < held; ++k) e_.load_pointer(kPointerRegister[k], kRdi, static_cast<int32_t>(8 * k));
    for (size_t k = 0; k < group_.constants.size() && layout_.constants_in_registers; ++k) {
      const int reg = take(free_values_);
      for (auto& place : place_) place[group_.constants[k]] = reg;
      if (reg >= 0) e_.broadcast(reg, kRsi, constant_at(k));
    }
    bool bytes = false;
    for (int i : outputs_) bytes |= in_[i].dtype == NPU_BOOL;
    if (bytes) ones_ = fixed(0x01010101u);
    for (size_t k = 0; k < folds_.size(); ++k) sums_.push_back(fixed(0));
    if (failed_) return nullptr;
    if (layout_.paired) loop(kMostHalves);
    loop(1);
    e_.compare(kRdx, 0);
    const size_t done = e_.jump(Encoder::kEqual);
    e_.mask_of_rest();
    columns ? column(kTailMask) : body(kTailMask, 1);
    e_.land(done);
    for (size_t k = 0; k < folds_.size() && !columns; ++k) e_.store_at(kRsi, sums_at(k), sums_[k]);
    for (size_t k = held; k > kFirstSaved; --k) e_.pop(kPointerRegister[k - 1]);
    e_.finish();
    return failed_ ? nullptr : Code::make(e_.code);
  }

 private:
  // As long as there are points for it.
  void loop(int halves) {
    const int8_t points = static_cast<int8_t>(16 * halves);
    const bool columns = form_ == Form::kColumns;
    e_.compare(kRdx, points);
    const size_t short_one = e_.jump(Encoder::kLess);
    const size_t top = e_.code.size();
    if (group_.ahead && !columns) fetch(halves);
    columns ? column(0) : body(0, halves);
    for (int half = 0; half < halves; ++half) columns ? turn() : step();
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
  static int32_t sums_at(size_t k) { return static_cast<int32_t>(offsetof(LoopArguments, sums) + 64 * k); }

  // The register that holds pointer k. Changes rdi if none did.
  int pointer(size_t k) {
    if (k < kRegisterPointers) return kPointerRegister[k];
    e_.load_pointer(kRdi, kRsi, pointer_at(k));
    return kRdi;
  }

  // A register that holds the same 32 bits 16 times.
  int fixed(uint32_t bits) {
    const int reg = take(free_values_);
    if (reg >= 0) e_.broadcast_bits(reg, bits);
    return reg;
  }
  int take(std::vector<int>& from) {
    if (from.empty()) {
      failed_ = true;
      return -1;
    }
    const int reg = from.back();
    from.pop_back();
    return reg;
  }
  std::vector<int>& registers_of(int id) { return in_[id].dtype == NPU_BOOL ? free_masks_ : free_values_; }

  // The register of an argument; inputs are loaded where they are used first.
  int use(int id, int mask, int half) {
    if (place_[half][id] >= 0 || failed_) return place_[half][id];
    const int reg = take(registers_of(id));
    if (reg < 0) return reg;
    place_[half][id] = reg;
    const auto constant = std::find(group_.constants.begin(), group_.constants.end(), id);
    if (constant != group_.constants.end()) {
      e_.broadcast(reg, kRsi, constant_at(static_cast<size_t>(constant - group_.constants.begin())));
      return reg;
    }
    const auto found = std::find(group_.inputs.begin(), group_.inputs.end(), id);
    const size_t number = static_cast<size_t>(found - group_.inputs.begin());
    const int from = pointer(number);
    --inputs_left_[half];
    if (in_[id].dtype == NPU_BOOL) {
      e_.load_bytes(kSpare, from, mask, 16 * half);
      e_.test_bytes(reg, kSpare);
      return reg;
    }
    switch (storage_of(layout_.storage, number)) {
      case kBFloat:
        e_.load_words(reg, from, mask, 32 * half);
        e_.shift(Encoder::kLeft, reg, reg, 16);
        break;
      case kHalf:
        e_.load_halves(reg, from, mask, 32 * half);
        break;
      default:
        e_.load(reg, from, mask, 64 * half);
    }
    add_up(id, mask, half);
    return reg;
  }

  void add_up(int id, int mask, int half) {
    for (size_t k = 0; k < folds_.size(); ++k)
      if (in_[folds_[k]].a == id) e_.op(Encoder::kAdd, sums_[k], sums_[k], place_[half][id], mask);
  }

  void fetch(int halves) {
    for (size_t k = 0; k < std::min(group_.inputs.size(), kRegisterPointers); ++k) {
      if (in_[group_.inputs[k]].op != NPU_OP_LOAD) continue;
      e_.load_pointer(kRdi, kRsi, static_cast<int32_t>(offsetof(LoopArguments, ahead) + 8 * k));
      for (int half = 0; half < halves; ++half) e_.prefetch(kPointerRegister[k], kRdi, static_cast<int8_t>(64 * half));
    }
  }

  // All folded points of sixteen columns.
  void column(int mask) {
    const size_t inputs = group_.inputs.size();
    for (size_t k = 0; k < folds_.size(); ++k) e_.load(sums_[k], kPointerRegister[inputs + k], mask);
    e_.load_pointer(kRdi, kRsi, static_cast<int32_t>(offsetof(LoopArguments, points)));
    const size_t top = e_.code.size();
    body(mask, 1);
    add_to_inputs(offsetof(LoopArguments, step));
    e_.sub(kRdi, 1);
    e_.jump(Encoder::kNotEqual, top);
    for (size_t k = 0; k < folds_.size(); ++k) e_.store(kPointerRegister[inputs + k], sums_[k], mask);
  }
  void turn() {
    add_to_inputs(offsetof(LoopArguments, turn));
    for (size_t k = 0; k < folds_.size(); ++k) e_.add(kPointerRegister[group_.inputs.size() + k], 64);
  }
  void add_to_inputs(size_t offset) {
    for (size_t k = 0; k < group_.inputs.size(); ++k) {
      const int32_t by = static_cast<int32_t>(offset + 8 * k);
      if (k < kRegisterPointers) {
        e_.add_memory(kPointerRegister[k], kRsi, by);
      } else {
        e_.load_pointer(kRdi, kRsi, by);
        e_.add_to_memory(kRsi, pointer_at(k), kRdi);
      }
    }
  }

  void body(int mask, int halves) {
    for (int half = 0; half < halves; ++half) {
      inputs_left_[half] = group_.inputs.size();
      written_[half] = 0;
    }
    for (int i : group_.members)
      for (int half = 0; half < halves && !failed_; ++half) compute(i, mask, half);
    for (int half = 0; half < halves && !failed_; ++half)
      for (int i : outputs_) release(i, static_cast<int>(in_.size()), half);
  }

  void compute(int i, int mask, int half) {
    const npu_instr& in = in_[i];
    int arg[3] = {0, 0, 0}, count = 0;
    each_argument(in, [&](int id) { arg[count++] = use(id, mask, half); });
    const int to = take(registers_of(i));
    int temporaries[kMostTemporaries] = {};
    const int wanted = temporaries_of(in);
    for (int k = 0; k < wanted; ++k) temporaries[k] = take(free_values_);
    if (failed_) return;
    place_[half][i] = to;
    emit_instruction(e_, in, in_[in.a].dtype, to, arg[0], arg[1], arg[2], temporaries, kSpareMask);
    free_values_.insert(free_values_.end(), temporaries, temporaries + wanted);
    add_up(i, mask, half);
    write(i, mask, half);
    each_argument(in, [&](int id) { release(id, i, half); });
    release(i, i, half);  // a value that nobody reads
  }

  // Writes what can be written: in order, and when everything is loaded, since an output may lie where an input does.
  void write(int at, int mask, int half) {
    if (inputs_left_[half] != 0) return;
    size_t& written = written_[half];
    while (written < outputs_.size() && outputs_[written] <= at) {
      const int i = outputs_[written], reg = place_[half][i];
      const size_t number = group_.inputs.size() + written;
      const int to = pointer(number);
      if (in_[i].dtype == NPU_BOOL) {
        e_.keep_bytes(kSpare, ones_, reg);
        e_.store_bytes(to, kSpare, mask, 16 * half);
      } else if (form_ == Form::kStreaming && mask == 0) {
        stream(to, reg, storage_of(layout_.storage, number), half);
      } else if (storage_of(layout_.storage, number) == kBFloat) {
        to_bfloat(e_, kSpare, reg, kSpareMask);
        e_.store_words(to, kSpare, mask, 32 * half);
      } else if (storage_of(layout_.storage, number) == kHalf) {
        e_.store_halves(to, reg, mask, 32 * half);
      } else {
        e_.store(to, reg, mask, 64 * half);
      }
      ++written;
      release(i, at, half);
    }
  }

  void stream(int to, int reg, Storage storage, int half) {
    if (storage == kOwn) return e_.stream(to, reg, 64 * half);
    if (storage == kHalf) {
      e_.to_halves(kSpare, reg);
    } else {
      to_bfloat(e_, kSpare, reg, kSpareMask);
      e_.to_words(kSpare, kSpare);
    }
    e_.stream_words(to, kSpare, 32 * half);
  }

  void release(int id, int at, int half) {
    int& place = place_[half][id];
    if (place < 0) return;
    const bool again = !layout_.constants_in_registers &&
                       std::find(group_.constants.begin(), group_.constants.end(), id) != group_.constants.end();
    if (!again && last_[id] > at) return;
    const auto waits = outputs_.begin() + static_cast<std::ptrdiff_t>(written_[half]);
    if (std::find(waits, outputs_.end(), id) != outputs_.end()) return;
    registers_of(id).push_back(place);
    place = -1;
  }

  void step() {
    add_to_inputs(offsetof(LoopArguments, step));
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const size_t number = group_.inputs.size() + k;
      const bool flag = in_[outputs_[k]].dtype == NPU_BOOL, narrow = storage_of(layout_.storage, number) != kOwn;
      const int8_t by = flag ? 16 : narrow ? 32 : 64;
      if (number < kRegisterPointers)
        e_.add(kPointerRegister[number], by);
      else
        e_.add_to_memory_number(kRsi, pointer_at(number), by);
    }
  }

  const std::vector<npu_instr>& in_;
  const Group& group_;
  const Form form_;
  const Layout layout_;
  const std::vector<int> none_;
  const std::vector<int>&outputs_, &folds_;
  std::vector<int> sums_;  // registers, of each fold
  Encoder e_;
  std::vector<int> last_, place_[kMostHalves];  // registers, of each half of the points of a body
  std::vector<int> free_values_, free_masks_;
  size_t inputs_left_[kMostHalves] = {}, written_[kMostHalves] = {};  // inputs to be loaded; outputs that are written
  int ones_ = -1;
  bool failed_ = false;
};

// Does the next result wait for this one for longer than the processor looks ahead?
bool waits(const Group& group) {
  int steps = 0;
  for (int i : group.members) steps += 1 + 5 * temporaries_of((*group.program)[i]);
  return steps >= 40;
}

std::unique_ptr<Code> make(const Group& group, Form form, uint64_t storage = 0) {
  const bool pairs = form != Form::kColumns && waits(group);
  for (const bool paired : {true, false})
    for (const bool in_registers : {true, false}) {
      if (paired && !pairs) continue;
      if (std::unique_ptr<Code> code = Compiler(group, form, {storage, in_registers, paired}).run()) return code;
    }
  return nullptr;
}

}  // namespace

const Code* Group::variant(Form form, uint64_t storage) const {
  return variants->find(form, storage, [&] { return make(*this, form, storage); });
}

bool compile(Group& group, bool streams) {
  if (group.constants.size() > kLoopConstants) return false;
  group.code = make(group, Form::kPlain);
  if (!group.code) return false;
  if (streams) group.streaming = make(group, Form::kStreaming);
  if (group.folds.empty()) return true;
  group.folding = make(group, Form::kFolding);
  if (group.stored.empty()) group.columns = make(group, Form::kColumns);
  return group.folding != nullptr;
}

}  // namespace cmodel
