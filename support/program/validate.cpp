// validate: every rule of docs/isa.md that a program must keep, whatever command uses it.
#include <algorithm>
#include <string>
#include <vector>

#include "support/program/op_info.h"
#include "support/program/program.h"

namespace npu {
namespace {

struct Broken {
  std::string text;
};

[[noreturn]] void broken(std::string text) {
  throw Broken{std::move(text)};
}

struct Combine {
  int segment = 0;
  std::vector<int> args = std::vector<int>(2 * NPU_MAX_TUPLE, NPU_DTYPE_NONE);  // types read, by number
  std::vector<int> yields = std::vector<int>(NPU_MAX_TUPLE, NPU_DTYPE_NONE);
};

class Validator {
 public:
  explicit Validator(const npu_program_desc& desc) : desc_(desc) {}

  void run() {
    check_counts();
    for (index_ = 0; index_ < desc_.instr_count; ++index_) check(desc_.instrs[index_]);
    check_combines();
    check_live();
  }

 private:
  const npu_instr& at(uint16_t id) const { return desc_.instrs[id]; }
  int type(uint16_t id) const { return at(id).dtype; }

  [[noreturn]] void fail(const std::string& text) const { fail_at(index_, text); }
  [[noreturn]] void fail_at(uint32_t index, const std::string& text) const {
    broken("instruction " + std::to_string(index) + " (" + op_name(desc_.instrs[index].op) + "): " + text);
  }
  void require(bool holds, const char* text) const {
    if (!holds) fail(text);
  }
  void require_type(uint16_t id, int dtype, const char* what) const {
    if (type(id) != dtype)
      fail(std::string("expected ") + what + " of type " + dtype_name(dtype) + ", got " + dtype_name(type(id)));
  }
  void at_most(uint32_t count, uint32_t most, const char* what) const {
    if (count > most)
      broken("expected at most " + std::to_string(most) + " " + what + ", got " + std::to_string(count));
  }

  void check_counts() const {
    if (desc_.struct_size < sizeof(npu_program_desc)) broken("expected struct_size to cover npu_program_desc");
    at_most(desc_.instr_count, NPU_MAX_INSTRS, "instructions");
    at_most(desc_.const_count, NPU_MAX_CONSTS, "constants");
    at_most(desc_.operand_count, NPU_MAX_OPERANDS, "operands");
    at_most(desc_.param_count, NPU_MAX_PARAMS, "parameters");
    if (desc_.zero != 0) broken("expected the reserved field of the program to be 0");
    if (desc_.instr_count == 0 || !desc_.instrs) broken("expected at least one instruction, got none");
    if (desc_.const_count && !desc_.consts) broken("expected constants, got a null pointer");
    if (desc_.instrs[0].op != NPU_OP_SEGMENT) broken("expected a segment as the first instruction");
  }

  void check(const npu_instr& in) {
    if (in.op >= NPU_OP_COUNT) broken("instruction " + std::to_string(index_) + ": expected a known instruction");
    if (in.op == NPU_OP_SEGMENT) return check_segment(in);
    check_fields(in);
    check_place(in);
    check_types(in);
  }

  void check_segment(const npu_instr& in) {
    require(in.imm <= NPU_SEGMENT_COMBINE, "expected each, row or combine");
    require(in.dtype == NPU_DTYPE_NONE && !in.flags && !in.zero && in.a == NPU_NO_VALUE && in.b == NPU_NO_VALUE &&
                in.c == NPU_NO_VALUE && in.mask == NPU_NO_VALUE,
            "expected unused fields to be empty");
    kind_ = static_cast<int>(in.imm);
    ++segment_;
    segment_of_.push_back(segment_);
    kind_of_segment_.push_back(kind_);
    folds_ = 0;
    if (kind_ == NPU_SEGMENT_COMBINE) {
      combines_.emplace_back();
      combines_.back().segment = segment_;
    }
  }

  // Arguments present and visible, unused fields empty, numbers in range.
  void check_fields(const npu_instr& in) {
    segment_of_.push_back(segment_);
    const OpInfo& info = op_info(in.op);
    const bool tuple = in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN;
    const uint16_t ids[] = {in.a, in.b, in.c};
    for (int i = 0; i < 3; ++i) {
      if (i < info.args)
        require(ids[i] != NPU_NO_VALUE, "expected one more argument");
      else if (!tuple)
        require(ids[i] == NPU_NO_VALUE, "expected fewer arguments");
    }
    for (uint16_t id : ids) check_visible(in, id);
    check_visible(in, in.mask);
    require(in.zero == 0, "expected the reserved field to be 0");
    require((info.uses & kUsesImm) || in.imm == 0, "expected imm to be 0");
    require((info.uses & kUsesFlags) || in.flags == 0, "expected flags to be 0");
    if (in.mask != NPU_NO_VALUE) {
      require(info.uses & kUsesMask, "expected no mask on this instruction");
      require_type(in.mask, NPU_BOOL, "a mask");
    }
    if (info.result == Result::kNone)
      require(in.dtype == NPU_DTYPE_NONE, "expected no type: it defines no value");
    else
      require(NPU_IS_COMPUTE_DTYPE(in.dtype), "expected a compute type: bool, i32, i64, u64, f32 or f64");
    switch (in.op) {
      case NPU_OP_CONST:
        return require(in.imm < desc_.const_count, "expected the number of a constant");
      case NPU_OP_PARAM:
        return require(in.imm < desc_.param_count, "expected the number of a parameter");
      case NPU_OP_INDEX:
      case NPU_OP_SIZE:
        return require(in.imm < NPU_MAX_RANK, "expected a dimension below 8");
      case NPU_OP_LOAD:
      case NPU_OP_LOAD_AT:
      case NPU_OP_STORE:
      case NPU_OP_STORE_AT:
        return require(in.imm < desc_.operand_count, "expected the number of an operand");
      default:
        return;
    }
  }

  void check_visible(const npu_instr& in, uint16_t id) const {
    if (id == NPU_NO_VALUE) return;
    if (id >= index_) fail("expected the id of an earlier instruction, got " + std::to_string(id));
    if (at(id).dtype == NPU_DTYPE_NONE)
      fail("expected a value, got instruction " + std::to_string(id) + ", which defines none");
    // A member of a tuple is seen where the tuple is.
    const npu_instr& root = at(id).op == NPU_OP_GET ? at(at(id).a) : at(id);
    const int from = segment_of_[at(id).op == NPU_OP_GET ? at(id).a : id];
    bool seen = from == segment_;
    if (root.op == NPU_OP_FOLD || root.op == NPU_OP_SCAN) {
      if (in.op == NPU_OP_GET) return;
      seen = from < segment_ && (kind_ == NPU_SEGMENT_EACH || (kind_ == NPU_SEGMENT_ROW && root.op == NPU_OP_FOLD));
    } else if (kind_of_segment_[from] == NPU_SEGMENT_ROW) {
      seen = kind_ != NPU_SEGMENT_COMBINE;
    }
    if (!seen) fail("expected a value that this segment can see, got %" + std::to_string(id));
  }

  // Instructions that only some segments or programs may hold.
  void check_place(const npu_instr& in) {
    const bool combine = kind_ == NPU_SEGMENT_COMBINE;
    switch (in.op) {
      case NPU_OP_ARG:
      case NPU_OP_YIELD:
        return require(combine, "expected it in a combine segment");
      case NPU_OP_FOLD:
      case NPU_OP_SCAN:
        require(kind_ == NPU_SEGMENT_EACH, "expected it in an each segment");
        require(++folds_ <= NPU_MAX_FOLDS, "expected at most 4 folds or scans in a segment");
        (in.op == NPU_OP_FOLD ? has_fold_ : has_scan_) = true;
        break;
      case NPU_OP_ACC:
        require(kind_ == NPU_SEGMENT_EACH, "expected it in an each segment");
        has_acc_ = true;
        break;
      case NPU_OP_STORE_AT:
        require(kind_ == NPU_SEGMENT_EACH, "expected it in an each segment");
        break;
      case NPU_OP_INDEX:
      case NPU_OP_SIZE:
      case NPU_OP_LOAD:
      case NPU_OP_LOAD_AT:
      case NPU_OP_STORE:
      case NPU_OP_CHECK_INDEX:
      case NPU_OP_GET:
        return require(!combine, "expected arg, yield, const, param and arithmetic only in a combine segment");
      default:
        return;
    }
    require(has_fold_ + has_scan_ + has_acc_ <= 1, "expected only one of fold, scan and acc in a program");
  }

  void check_types(const npu_instr& in) {
    const OpInfo& info = op_info(in.op);
    switch (in.op) {
      case NPU_OP_INDEX:
      case NPU_OP_SIZE:
        return require(in.dtype == NPU_I64 || in.dtype == NPU_I32, "expected type i64 or i32");
      case NPU_OP_LOAD_AT:
        return require_type(in.a, NPU_I64, "an offset");
      case NPU_OP_STORE_AT:
        require(in.flags <= NPU_STORE_MIN, "expected set, add, mul, max or min");
        require(type(in.a) != NPU_BOOL || (in.flags != NPU_STORE_ADD && in.flags != NPU_STORE_MUL),
                "expected set, max or min for a bool");
        return require_type(in.b, NPU_I64, "an offset");
      case NPU_OP_CHECK_INDEX:
        require(in.dtype == NPU_I32 || in.dtype == NPU_I64, "expected an index of type i32 or i64");
        require(!(in.flags & ~(NPU_INDEX_WRAP | NPU_INDEX_CHECK)), "expected the flags wrap and check only");
        break;
      case NPU_OP_FOLD:
      case NPU_OP_SCAN:
        return check_fold(in);
      case NPU_OP_GET:
        return check_get(in);
      case NPU_OP_ARG:
        require(in.imm < 2 * NPU_MAX_TUPLE, "expected an argument below 6");
        return note(combines_.back().args[in.imm], in.dtype);
      case NPU_OP_YIELD:
        require(in.imm < NPU_MAX_TUPLE, "expected a member below 3");
        require(combines_.back().yields[in.imm] == NPU_DTYPE_NONE, "expected one yield for each member");
        return note(combines_.back().yields[in.imm], type(in.a));
      case NPU_OP_CAST:
        return require(in.imm < NPU_DTYPE_COUNT || in.imm == NPU_DTYPE_NONE, "expected a storage type or none");
      case NPU_OP_BITCAST: {
        const int from = static_cast<int>(in.imm & 0xff), to = static_cast<int>(in.imm >> 8);
        require(dtype_size(from) && dtype_size(from) == dtype_size(to), "expected two storage types of one width");
        require_type(in.a, compute_dtype(from), "an argument");
        if (in.dtype != compute_dtype(to)) fail(std::string("expected type ") + dtype_name(compute_dtype(to)));
        return;
      }
      case NPU_OP_WHERE:
        require_type(in.a, NPU_BOOL, "a condition");
        require_type(in.b, in.dtype, "a choice");
        return require_type(in.c, in.dtype, "a choice");
      case NPU_OP_LDEXP:
        require(dtype_class(in.dtype) == kFloat, "expected type f32 or f64");
        require_type(in.a, in.dtype, "an argument");
        return require_type(in.b, NPU_I32, "an exponent");
      case NPU_OP_PHILOX:
        require(in.imm < 4, "expected a word below 4");
        for (uint16_t id : {in.a, in.b, in.c}) require_type(id, NPU_I64, "an argument");
        break;
      default:
        break;
    }
    if (info.result == Result::kSpecial || info.result == Result::kNone) return;
    const uint16_t ids[] = {in.a, in.b, in.c};
    for (int i = 0; i < info.args && info.types; ++i) {
      require_type(ids[i], type(in.a), "arguments");
      if (!(dtype_class(type(ids[i])) & info.types))
        fail(std::string("expected another type of argument, got ") + dtype_name(type(ids[i])));
    }
    const int result = info.result == Result::kSame   ? type(in.a)
                       : info.result == Result::kBool ? int{NPU_BOOL}
                       : info.result == Result::kI32  ? int{NPU_I32}
                                                      : int{NPU_I64};
    if (in.dtype != result) fail(std::string("expected type ") + dtype_name(result) + ", got " + dtype_name(in.dtype));
  }

  void check_fold(const npu_instr& in) const {
    const int kind = fold_kind(in);
    require(kind < NPU_FOLD_COUNT, "expected a known fold");
    require(in.dtype == type(in.a), "expected the type of its first argument");
    require(kind == NPU_FOLD_CUSTOM || fold_combine(in) == 0, "expected a combine segment for custom only");
    const uint8_t cls = dtype_class(in.dtype);
    const bool has_b = in.b != NPU_NO_VALUE, has_c = in.c != NPU_NO_VALUE;
    require(has_b || !has_c, "expected arguments without a gap");
    switch (kind) {
      case NPU_FOLD_SUM:
      case NPU_FOLD_PROD:
        require(cls & kNumber, "expected a number, got bool");
        break;
      case NPU_FOLD_AND:
      case NPU_FOLD_OR:
      case NPU_FOLD_XOR:
        require(cls & kBits, "expected bool or an integer");
        break;
      case NPU_FOLD_ARGMAX:
      case NPU_FOLD_ARGMIN:
        require(has_b && !has_c, "expected a value and an index");
        return require_type(in.b, NPU_I64, "an index");
      case NPU_FOLD_WELFORD:
        require(cls == kFloat, "expected f32 or f64");
        require(has_b == has_c, "expected one value, or mean, m2 and count");
        if (has_b) {
          require_type(in.b, in.dtype, "m2");
          require_type(in.c, in.dtype, "count");
        }
        return;
      case NPU_FOLD_CUSTOM:
        return;
      default:
        break;
    }
    require(!has_b, "expected one argument");
  }

  void check_get(const npu_instr& in) const {
    const npu_instr& tuple = at(in.a);
    require(tuple.op == NPU_OP_FOLD || tuple.op == NPU_OP_SCAN, "expected a fold or a scan as argument");
    require(in.imm < static_cast<uint32_t>(tuple_size(tuple)), "expected a member of the tuple");
    int member = tuple.dtype;
    if (fold_kind(tuple) != NPU_FOLD_WELFORD && in.imm > 0) member = type(in.imm == 1 ? tuple.b : tuple.c);
    if (in.dtype != member) fail(std::string("expected type ") + dtype_name(member));
  }

  void note(int& slot, int dtype) const {
    if (slot != NPU_DTYPE_NONE && slot != dtype) fail(std::string("expected type ") + dtype_name(slot) + " as before");
    slot = dtype;
  }

  // A combine segment may stand behind the fold that uses it, so the two are compared at the end.
  void check_combines() const {
    std::vector<int> sizes;
    for (const Combine& combine : combines_) {
      int n = 0;
      while (n < NPU_MAX_TUPLE && combine.yields[n] != NPU_DTYPE_NONE) ++n;
      for (int k = n; k < NPU_MAX_TUPLE; ++k)
        if (n == 0 || combine.yields[k] != NPU_DTYPE_NONE)
          broken("combine segment " + std::to_string(sizes.size()) + ": expected a yield for members 0, 1, ...");
      for (int k = 0; k < 2 * NPU_MAX_TUPLE; ++k) {
        if (combine.args[k] == NPU_DTYPE_NONE) continue;
        if (k >= 2 * n || combine.args[k] != combine.yields[k % n])
          broken("combine segment " + std::to_string(sizes.size()) + ": expected arg " + std::to_string(k) +
                 " to have the type of its member");
      }
      sizes.push_back(n);
    }
    std::vector<bool> used(combines_.size());
    for (uint32_t i = 0; i < desc_.instr_count; ++i) {
      const npu_instr& in = desc_.instrs[i];
      if ((in.op != NPU_OP_FOLD && in.op != NPU_OP_SCAN) || fold_kind(in) != NPU_FOLD_CUSTOM) continue;
      const size_t number = static_cast<size_t>(fold_combine(in));
      if (number >= combines_.size()) fail_at(i, "expected the number of a combine segment");
      used[number] = true;
      const int n = tuple_size(in);
      if (sizes[number] != n) fail_at(i, "expected as many members as the combine segment yields");
      const uint16_t ids[] = {in.a, in.b, in.c};
      for (int k = 0; k < n; ++k)
        if (type(ids[k]) != combines_[number].yields[k]) fail_at(i, "expected the types of the combine segment");
    }
    for (size_t k = 0; k < used.size(); ++k)
      if (!used[k]) broken("combine segment " + std::to_string(k) + ": expected a custom fold or scan that uses it");
  }

  void check_live() const;

  const npu_program_desc& desc_;
  uint32_t index_ = 0;
  int segment_ = -1, kind_ = 0, folds_ = 0;
  bool has_fold_ = false, has_scan_ = false, has_acc_ = false;
  std::vector<int> segment_of_;       // of each instruction
  std::vector<int> kind_of_segment_;  // of each segment
  std::vector<Combine> combines_;
};

void Validator::check_live() const {
  const uint32_t n = desc_.instr_count;
  std::vector<uint32_t> last(n, 0);
  uint32_t segment_end = n;
  for (uint32_t i = n; i-- > 0;) {
    const npu_instr& in = desc_.instrs[i];
    if (in.op == NPU_OP_SEGMENT) segment_end = i;
    // An accumulator lives until its segment is done, even if nothing reads it.
    if (in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN) last[i] = std::max(last[i], segment_end - 1);
    for (uint16_t id : {in.a, in.b, in.c, in.mask})
      if (id != NPU_NO_VALUE) last[id] = std::max(last[id], in.op == NPU_OP_GET ? std::max(i, last[i]) : i);
  }
  std::vector<int> change(n + 1, 0);
  for (uint32_t i = 0; i < n; ++i) {
    const npu_instr& in = desc_.instrs[i];
    if (in.op == NPU_OP_CONST || in.op == NPU_OP_PARAM || in.op == NPU_OP_GET || last[i] <= i) continue;
    const int weight = in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN ? tuple_size(in) : 1;
    change[i] += weight;
    change[last[i]] -= weight;
  }
  int live = 0;
  for (uint32_t i = 0; i < n; ++i) {
    live += change[i];
    if (live > NPU_MAX_LIVE)
      fail_at(i, "expected at most " + std::to_string(int{NPU_MAX_LIVE}) + " live values, got " + std::to_string(live));
  }
}

}  // namespace

std::string validate(const npu_program_desc& desc) {
  try {
    Validator(desc).run();
    return {};
  } catch (const Broken& rule) {
    return rule.text;
  }
}

}  // namespace npu
