#include "drivers/cmodel/jit.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "drivers/cmodel/jit_encoder.h"
#include "drivers/cmodel/jit_functions.h"
#include "drivers/cmodel/kernels.h"

namespace cmodel {

Code::Code(void* memory, size_t bytes) : memory_(memory), bytes_(bytes) {
  std::memcpy(&run_, &memory_, sizeof run_);
}

Code::~Code() {
  munmap(memory_, bytes_);
}

std::unique_ptr<Code> Code::make(const std::vector<uint8_t>& bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = (bytes.size() + page - 1) / page * page;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memcpy(memory, bytes.data(), bytes.size());
  if (mprotect(memory, size, PROT_READ | PROT_EXEC) != 0) {
    munmap(memory, size);
    return nullptr;
  }
  return std::unique_ptr<Code>(new Code(memory, size));
}

bool can_compile() {
  static const bool can = std::strcmp(kernels().name, "avx512") == 0;
  return can;
}

bool can_compile(const npu_instr& in, int type) {
  switch (in.op) {
    case NPU_OP_ADD:
    case NPU_OP_SUB:
    case NPU_OP_MUL:
    case NPU_OP_DIV:
    case NPU_OP_FMA:
    case NPU_OP_MIN:
    case NPU_OP_MAX:
    case NPU_OP_FMIN:
    case NPU_OP_FMAX:
    case NPU_OP_NEG:
    case NPU_OP_ABS:
    case NPU_OP_SQRT:
    case NPU_OP_RSQRT:
    case NPU_OP_RECIPROCAL:
    case NPU_OP_FLOOR:
    case NPU_OP_CEIL:
    case NPU_OP_ROUND:
    case NPU_OP_TRUNC:
    case NPU_OP_EQ:
    case NPU_OP_NE:
    case NPU_OP_LT:
    case NPU_OP_LE:
    case NPU_OP_GT:
    case NPU_OP_GE:
    case NPU_OP_ISNAN:
    case NPU_OP_EXP:
    case NPU_OP_SIGMOID:
    case NPU_OP_ERF:
      return type == NPU_F32;
    case NPU_OP_AND:
    case NPU_OP_OR:
    case NPU_OP_XOR:
    case NPU_OP_NOT:
      return type == NPU_BOOL;
    case NPU_OP_WHERE:
      return in.dtype == NPU_F32;
    default:
      return false;
  }
}

namespace {

// General registers of the loop's pointers. rdi holds the arguments and is free afterwards, rsi stays, rdx counts.
constexpr int kPointerRegister[kLoopPointers] = {0, 1, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15};
constexpr int kFirstSaved = 6;  // of these, rbx and what follows belong to the caller
constexpr int kRdi = 7, kRsi = 6, kRdx = 2;
constexpr int kTailMask = 1, kSpareMask = 7, kSpare = 31;  // k1, k7, zmm31

enum class Form { kPlain, kStreaming, kFolding, kColumns };

class Compiler {
 public:
  Compiler(const std::vector<npu_instr>& in, const Group& group, Form form, bool ahead = false)
      : in_(in),
        group_(group),
        form_(form),
        ahead_(ahead),
        outputs_(form == Form::kFolding   ? group.stored
                 : form == Form::kColumns ? none_
                                          : group.outputs),
        folds_(form == Form::kFolding || form == Form::kColumns ? group.folds : none_) {
    last_.assign(in.size(), -1);
    place_.assign(in.size(), -1);
    for (int i : group.members) each_argument(in[i], [&](int id) { last_[id] = i; });
    for (int i : outputs_) last_[i] = static_cast<int>(in.size());
    for (int i : group.constants) last_[i] = static_cast<int>(in.size());
  }

  std::unique_ptr<Code> run() {
    for (int k = 0; k < 31; ++k) free_values_.push_back(30 - k);
    for (int k = 6; k >= 2; --k) free_masks_.push_back(k);
    const bool columns = form_ == Form::kColumns;
    const size_t pointers = group_.inputs.size() + (columns ? folds_.size() : outputs_.size());
    if (pointers > kLoopPointers) return nullptr;
    const int saved = std::max(static_cast<int>(pointers), kFirstSaved);
    for (int k = kFirstSaved; k < saved; ++k) e_.push(kPointerRegister[k]);
    for (size_t k = 0; k < pointers; ++k) e_.load_pointer(kPointerRegister[k], kRdi, static_cast<int32_t>(8 * k));
    for (size_t k = 0; k < group_.constants.size(); ++k) {
      const int reg = take(free_values_);
      place_[group_.constants[k]] = reg;
      if (reg >= 0) e_.broadcast(reg, kRsi, constant_at(k));
    }
    one_ = fixed(needs({NPU_OP_RSQRT, NPU_OP_RECIPROCAL}), 0x3f800000u);
    bool bytes = false;
    for (int i : outputs_) bytes |= in_[i].dtype == NPU_BOOL;
    ones_ = fixed(bytes, 0x01010101u);
    for (size_t k = 0; k < folds_.size(); ++k) sums_.push_back(fixed(true, 0));
    if (failed_) return nullptr;
    e_.compare(kRdx, 16);
    const size_t short_one = e_.jump(Encoder::kLess);
    const size_t top = e_.code.size();
    if (ahead_) fetch();
    columns ? column(0) : body(0);
    columns ? turn() : step();
    e_.sub(kRdx, 16);
    e_.compare(kRdx, 16);
    e_.jump(Encoder::kNotLess, top);
    e_.land(short_one);
    e_.compare(kRdx, 0);
    const size_t done = e_.jump(Encoder::kEqual);
    e_.mask_of_rest();
    columns ? column(kTailMask) : body(kTailMask);
    e_.land(done);
    for (size_t k = 0; k < folds_.size() && !columns; ++k) e_.store_at(kRsi, sums_at(k), sums_[k]);
    for (int k = saved - 1; k >= kFirstSaved; --k) e_.pop(kPointerRegister[k]);
    e_.finish();
    return failed_ ? nullptr : Code::make(e_.code);
  }

 private:
  template <class F>
  static void each_argument(const npu_instr& in, F f) {
    for (uint16_t id : {in.a, in.b, in.c})
      if (id != NPU_NO_VALUE) f(id);
  }
  static int32_t constant_at(size_t k) { return static_cast<int32_t>(offsetof(LoopArguments, constant) + 4 * k); }

  static int32_t sums_at(size_t k) { return static_cast<int32_t>(offsetof(LoopArguments, sums) + 64 * k); }

  bool needs(std::initializer_list<int> ops) const {
    return std::any_of(group_.members.begin(), group_.members.end(),
                       [&](int i) { return std::find(ops.begin(), ops.end(), in_[i].op) != ops.end(); });
  }
  // A register that holds the same 32 bits 16 times.
  int fixed(bool needed, uint32_t bits) {
    if (!needed) return -1;
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
  int use(int id, int mask) {
    if (place_[id] >= 0 || failed_) return place_[id];
    const int reg = take(registers_of(id));
    if (reg < 0) return reg;
    place_[id] = reg;
    const auto found = std::find(group_.inputs.begin(), group_.inputs.end(), id);
    const int pointer = kPointerRegister[found - group_.inputs.begin()];
    if (in_[id].dtype == NPU_BOOL) {
      e_.load_bytes(kSpare, pointer, mask);
      e_.test_bytes(reg, kSpare);
    } else {
      e_.load(reg, pointer, mask);
      add_up(id, mask);
    }
    return reg;
  }

  void add_up(int id, int mask) {
    for (size_t k = 0; k < folds_.size(); ++k)
      if (in_[folds_[k]].a == id) e_.op(Encoder::kAdd, sums_[k], sums_[k], place_[id], mask);
  }

  void fetch() {
    for (size_t k = 0; k < group_.inputs.size(); ++k) {
      if (in_[group_.inputs[k]].op != NPU_OP_LOAD) continue;
      e_.load_pointer(kRdi, kRsi, static_cast<int32_t>(offsetof(LoopArguments, ahead) + 8 * k));
      e_.prefetch(kPointerRegister[k], kRdi);
    }
  }

  // All folded points of sixteen columns.
  void column(int mask) {
    const size_t inputs = group_.inputs.size();
    for (size_t k = 0; k < folds_.size(); ++k) e_.load(sums_[k], kPointerRegister[inputs + k], mask);
    e_.load_pointer(kRdi, kRsi, static_cast<int32_t>(offsetof(LoopArguments, points)));
    const size_t top = e_.code.size();
    body(mask);
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
    for (size_t k = 0; k < group_.inputs.size(); ++k)
      e_.add_memory(kPointerRegister[k], kRsi, static_cast<int32_t>(offset + 8 * k));
  }

  void body(int mask) {
    for (int i : group_.members) {
      const npu_instr& in = in_[i];
      int arg[3] = {0, 0, 0}, count = 0;
      each_argument(in, [&](int id) { arg[count++] = use(id, mask); });
      const int to = take(registers_of(i));
      if (failed_) return;
      place_[i] = to;
      emit(in, to, arg[0], arg[1], arg[2]);
      add_up(i, mask);
      each_argument(in, [&](int id) { release(id, i); });
      release(i, i);  // a value that nobody reads
    }
    // Everything is loaded by now: an output may lie where an input does.
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const int i = outputs_[k], pointer = kPointerRegister[group_.inputs.size() + k];
      if (in_[i].dtype == NPU_BOOL) {
        e_.keep_bytes(kSpare, ones_, place_[i]);
        e_.store_bytes(pointer, kSpare, mask);
      } else if (form_ == Form::kStreaming && mask == 0) {
        e_.stream(pointer, place_[i]);
      } else {
        e_.store(pointer, place_[i], mask);
      }
    }
    for (int i : outputs_) {
      registers_of(i).push_back(place_[i]);
      place_[i] = -1;
    }
  }

  void release(int id, int at) {
    if (place_[id] < 0 || last_[id] > at) return;
    registers_of(id).push_back(place_[id]);
    place_[id] = -1;
  }

  void step() {
    add_to_inputs(offsetof(LoopArguments, step));
    for (size_t k = 0; k < outputs_.size(); ++k)
      e_.add(kPointerRegister[group_.inputs.size() + k], in_[outputs_[k]].dtype == NPU_BOOL ? 16 : 64);
  }

  // min and max of the processor return their second argument if either is NaN or both are zeros. The result is b
  // where `nan`, an argument, is NaN.
  void extreme(Encoder::Code code, int to, int a, int b, int nan) {
    e_.op(code, to, b, a);
    e_.op_imm(Encoder::kCompare, kSpareMask, nan, nan, 3);  // unordered
    e_.op(Encoder::kMove, to, 0, b, kSpareMask);
  }

  void emit(const npu_instr& in, int to, int a, int b, int c) {
    switch (in.op) {
      case NPU_OP_ADD:
        return e_.op(Encoder::kAdd, to, a, b);
      case NPU_OP_SUB:
        return e_.op(Encoder::kSub, to, a, b);
      case NPU_OP_MUL:
        return e_.op(Encoder::kMul, to, a, b);
      case NPU_OP_DIV:
        return e_.op(Encoder::kDiv, to, a, b);
      case NPU_OP_FMA:
        e_.op(Encoder::kMove, to, 0, c);
        return e_.op(Encoder::kFma231, to, a, b);
      case NPU_OP_MIN:
        return extreme(Encoder::kMin, to, a, b, b);
      case NPU_OP_MAX:
        return extreme(Encoder::kMax, to, a, b, b);
      case NPU_OP_FMIN:
        return extreme(Encoder::kMin, to, a, b, a);
      case NPU_OP_FMAX:
        return extreme(Encoder::kMax, to, a, b, a);
      case NPU_OP_NEG:
        return e_.op_bits(Encoder::kXor, to, a, 0x80000000u);
      case NPU_OP_ABS:
        return e_.op_bits(Encoder::kAnd, to, a, 0x7fffffffu);
      case NPU_OP_SQRT:
        return e_.op(Encoder::kSqrt, to, 0, a);
      case NPU_OP_RSQRT:
        e_.op(Encoder::kSqrt, to, 0, a);
        return e_.op(Encoder::kDiv, to, one_, to);
      case NPU_OP_RECIPROCAL:
        return e_.op(Encoder::kDiv, to, one_, a);
      case NPU_OP_FLOOR:
        return e_.op_imm(Encoder::kRound, to, 0, a, 9);
      case NPU_OP_CEIL:
        return e_.op_imm(Encoder::kRound, to, 0, a, 10);
      case NPU_OP_TRUNC:
        return e_.op_imm(Encoder::kRound, to, 0, a, 11);
      case NPU_OP_ROUND:
        return e_.op_imm(Encoder::kRound, to, 0, a, 8);
      // The predicates of vcmpps that signal nothing.
      case NPU_OP_EQ:
        return e_.op_imm(Encoder::kCompare, to, a, b, 0);
      case NPU_OP_NE:
        return e_.op_imm(Encoder::kCompare, to, a, b, 4);
      case NPU_OP_LT:
        return e_.op_imm(Encoder::kCompare, to, a, b, 17);
      case NPU_OP_LE:
        return e_.op_imm(Encoder::kCompare, to, a, b, 18);
      case NPU_OP_GT:
        return e_.op_imm(Encoder::kCompare, to, a, b, 30);
      case NPU_OP_GE:
        return e_.op_imm(Encoder::kCompare, to, a, b, 29);
      case NPU_OP_ISNAN:
        return e_.op_imm(Encoder::kCompare, to, a, a, 3);
      case NPU_OP_AND:
        return e_.mask(Encoder::kMaskAnd, to, a, b);
      case NPU_OP_OR:
        return e_.mask(Encoder::kMaskOr, to, a, b);
      case NPU_OP_XOR:
        return e_.mask(Encoder::kMaskXor, to, a, b);
      case NPU_OP_NOT:
        return e_.mask(Encoder::kMaskNot, to, a, a);
      case NPU_OP_WHERE:
        return e_.op(Encoder::kBlend, to, c, b, a);
      default:
        return function(in.op, to, a);
    }
  }

  void function(int op, int to, int x) {
    int temporaries[kMostTemporaries];
    const int count = temporaries_of(op);
    for (int k = 0; k < count; ++k) temporaries[k] = take(free_values_);
    if (failed_) return;
    emit_function(e_, op, to, x, temporaries, kSpareMask);
    free_values_.insert(free_values_.end(), temporaries, temporaries + count);
  }

  const std::vector<npu_instr>& in_;
  const Group& group_;
  const Form form_;
  const bool ahead_;
  const std::vector<int> none_;
  const std::vector<int>&outputs_, &folds_;
  std::vector<int> sums_;  // registers, of each fold
  Encoder e_;
  std::vector<int> last_, place_;
  std::vector<int> free_values_, free_masks_;
  int one_ = -1, ones_ = -1;
  bool failed_ = false;
};

}  // namespace

bool compile(const std::vector<npu_instr>& in, Group& group, bool streams, bool ahead) {
  if (group.constants.size() > kLoopConstants) return false;
  group.code = Compiler(in, group, Form::kPlain, ahead).run();
  if (!group.code) return false;
  if (streams) group.streaming = Compiler(in, group, Form::kStreaming, ahead).run();
  if (group.folds.empty()) return true;
  group.folding = Compiler(in, group, Form::kFolding, ahead).run();
  if (group.stored.empty()) group.columns = Compiler(in, group, Form::kColumns).run();
  return group.folding != nullptr;
}

}  // namespace cmodel
