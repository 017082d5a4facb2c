// Which instructions of a program become compiled loops.
#include "drivers/cmodel/plan/loops.h"

#include <algorithm>

#include "support/program/op_info.h"

namespace cmodel {
namespace {

template <class F>
void each_argument(const npu_instr& in, F f) {
  for (uint16_t id : {in.a, in.b, in.c, in.mask})
    if (id != NPU_NO_VALUE) f(id);
}

bool is_load(const npu_instr& in) {
  return in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT;
}

bool is_constant(const npu_instr& in) {
  return in.op == NPU_OP_CONST || in.op == NPU_OP_PARAM || in.op == NPU_OP_SIZE;
}

class Builder {
 public:
  Builder(const std::vector<npu_instr>& in, const std::vector<bool>& outside)
      : outside_(outside),
        program_(std::make_shared<const std::vector<npu_instr>>(in)),
        in_(*program_),
        member_(in.size()),
        placed_(in.size()),
        uses_(in.size()) {
    for (size_t i = 0; i < in.size(); ++i)
      each_argument(in[i], [&](uint16_t id) { uses_[id].push_back(static_cast<int>(i)); });
    segments_ = std::count_if(in.begin(), in.end(), [](const npu_instr& i) { return i.op == NPU_OP_SEGMENT; });
  }

  std::vector<CompiledLoop> run() {
    bool each = true;
    for (size_t i = 0; i < in_.size(); ++i) {
      const npu_instr& in = in_[i];
      if (in.op == NPU_OP_SEGMENT) {
        close();
        each = in.imm == NPU_SEGMENT_EACH;
        find_folds(i);
      }
      if (!each) continue;
      const bool inside = outside_.empty() || !outside_[i];
      if (inside && in.dtype != NPU_DTYPE_NONE && in.a != NPU_NO_VALUE && in.mask == NPU_NO_VALUE &&
          can_compile(in, in_[in.a].dtype)) {
        if (read_) close();
        open_.push_back(static_cast<int>(i));
        member_[i] = true;
        continue;
      }
      // The open loop runs where its last member stands; what reads one of its values has to come behind that. Folds
      // read what they fold when the segment is through.
      if (in.op != NPU_OP_FOLD) each_argument(in, [&](uint16_t id) { read_ |= member_[id] != 0; });
    }
    close();
    return std::move(loops_);
  }

 private:
  // The sums of the segment that begins at `from`. What a loop computes or loads it can add up, too.
  void find_folds(size_t from) {
    folds_.clear();
    for (size_t i = from + 1; i < in_.size() && in_[i].op != NPU_OP_SEGMENT; ++i) {
      const npu_instr& in = in_[i];
      if (in.op == NPU_OP_FOLD && npu::fold_kind(in) == NPU_FOLD_SUM && in.dtype == NPU_F32 &&
          in.mask == NPU_NO_VALUE && in.a > from)
        folds_.push_back(static_cast<int>(i));
    }
  }

  void close() {
    for (int i : open_) member_[i] = false;
    build(open_);
    open_.clear();
    read_ = false;
  }

  // One loop, or several if it has too many values for one: the longest that can be made, then the rest.
  void build(std::vector<int> members) {
    while (!members.empty() && can_compile()) {
      size_t count = members.size(), least = 0;
      if (!make(members)) {
        size_t fails = count;
        while (fails - least > 1) {
          const size_t middle = (least + fails) / 2;
          (fits({members.begin(), members.begin() + static_cast<std::ptrdiff_t>(middle)}) ? least : fails) = middle;
        }
        count = std::max<size_t>(least, 1);
        make({members.begin(), members.begin() + static_cast<std::ptrdiff_t>(count)});
      }
      members.erase(members.begin(), members.begin() + static_cast<std::ptrdiff_t>(count));
    }
  }

  bool fits(const std::vector<int>& members) const {
    CompiledLoop loop = loop_of(members);
    return compile(loop, false);
  }

  // False: more than one loop can hold.
  bool make(const std::vector<int>& members) {
    CompiledLoop loop = loop_of(members);
    // One instruction is as fast without a loop, unless the loop can stream what later segments do not read.
    const bool streams = can_stream(loop);
    if (members.size() + loop.folds.size() < 2 && !(streams && segments_ > 1)) return true;
    if (!compile(loop, streams)) return false;
    for (int i : loop.folds) placed_[i] = true;
    loops_.push_back(std::move(loop));
    return true;
  }

  CompiledLoop loop_of(const std::vector<int>& members) const {
    CompiledLoop loop;
    loop.members = members;
    loop.program = program_;
    loop.ahead = segments_ > 1;
    auto has = [](const std::vector<int>& list, int id) {
      return std::find(list.begin(), list.end(), id) != list.end();
    };
    for (int i : members)
      each_argument(in_[i], [&](int id) {
        std::vector<int>& list = is_constant(in_[id]) && in_[id].dtype == NPU_F32 ? loop.constants : loop.inputs;
        if (!has(members, id) && !has(list, id)) list.push_back(id);
      });
    for (int i : members)
      if (std::any_of(uses_[i].begin(), uses_[i].end(), [&](int user) { return !has(members, user); }))
        loop.outputs.push_back(i);
    for (int i : folds_) {
      const int id = in_[i].a;
      if (!placed_[i] && (has(members, id) || (in_[id].op == NPU_OP_LOAD && has(loop.inputs, id))))
        loop.folds.push_back(i);
    }
    // Of two outputs that are stored to one place, the one that is stored last stays.
    std::stable_sort(loop.outputs.begin(), loop.outputs.end(), [&](int a, int b) { return stored(a) < stored(b); });
    // What only sums read need not be written down.
    for (int i : loop.outputs)
      if (!std::all_of(uses_[i].begin(), uses_[i].end(),
                       [&](int user) { return has(members, user) || has(loop.folds, user); }))
        loop.stored.push_back(i);
    return loop;
  }

  // Are all outputs F32 values that nobody reads but one store each?
  bool can_stream(const CompiledLoop& loop) const {
    return !loop.outputs.empty() && std::all_of(loop.outputs.begin(), loop.outputs.end(), [&](int i) {
      return in_[i].dtype == NPU_F32 && uses_[i].size() == 1 && in_[uses_[i][0]].op == NPU_OP_STORE;
    });
  }

  int stored(int id) const {
    for (int user : uses_[id])
      if (in_[user].op == NPU_OP_STORE && in_[user].a == id) return user;
    return static_cast<int>(in_.size());
  }

  const std::vector<bool>& outside_;
  const std::shared_ptr<const std::vector<npu_instr>> program_;
  const std::vector<npu_instr>& in_;
  std::vector<char> member_, placed_;
  std::vector<std::vector<int>> uses_;
  std::vector<int> open_, folds_;
  bool read_ = false;  // something behind the open loop's members reads one of them
  std::ptrdiff_t segments_ = 0;
  std::vector<CompiledLoop> loops_;
};

// A program whose instructions come in another order: what they read keeps its value under a new name.
class Rewrite {
 public:
  explicit Rewrite(const std::vector<npu_instr>& from) : from_(from), place_(from.size()) {}

  void add(size_t i) {
    place_[i] = static_cast<uint16_t>(program.size());
    npu_instr& moved = program.emplace_back(from_[i]);
    for (uint16_t* id : {&moved.a, &moved.b, &moved.c, &moved.mask})
      if (*id != NPU_NO_VALUE) *id = place_[*id];
  }

  std::vector<npu_instr> program;

 private:
  const std::vector<npu_instr>& from_;
  std::vector<uint16_t> place_;
};

// Calls `f(begin, end)` for each segment, and for what stands before the first.
template <class F>
void each_segment(const std::vector<npu_instr>& in, F f) {
  for (size_t begin = 0, end = 0; begin < in.size(); begin = end) {
    end = begin + 1;
    while (end < in.size() && in[end].op != NPU_OP_SEGMENT) ++end;
    f(begin, end);
  }
}

// Does the segment [begin, end) do nothing but fold tensors, each when it is loaded, and none by sums (which one
// compiled loop can add up)?
bool folds_tensors(const std::vector<npu_instr>& in, size_t begin, size_t end) {
  std::vector<int> loaded;
  size_t last = begin;
  for (size_t i = begin + 1; i < end; ++i) {
    const npu_instr& one = in[i];
    if (is_constant(one) || one.op == NPU_OP_GET) continue;
    if (one.mask != NPU_NO_VALUE) return false;
    if (one.op == NPU_OP_LOAD) {
      if (std::find(loaded.begin(), loaded.end(), one.imm) != loaded.end()) return false;
      loaded.push_back(one.imm);
      last = i;
    } else if (one.op != NPU_OP_FOLD || npu::fold_kind(one) == NPU_FOLD_SUM || one.b != NPU_NO_VALUE || one.a != last) {
      return false;
    }
  }
  return in[begin].op == NPU_OP_SEGMENT && in[begin].imm == NPU_SEGMENT_EACH;
}

}  // namespace

std::vector<npu_instr> sinks_last(const std::vector<npu_instr>& in) {
  Rewrite out(in);
  each_segment(in, [&](size_t begin, size_t end) {
    // Not a store whose operand is loaded again behind it.
    std::vector<char> stays(NPU_MAX_OPERANDS), stored(NPU_MAX_OPERANDS);
    for (size_t i = begin; i < end; ++i) {
      if (in[i].op == NPU_OP_STORE) stored[in[i].imm] = true;
      if (is_load(in[i]) && stored[in[i].imm]) stays[in[i].imm] = true;
    }
    const bool each = in[begin].imm == NPU_SEGMENT_EACH;
    const auto is_last = [&](const npu_instr& i) {
      if (i.op == NPU_OP_GET) return each && i.a >= begin;
      return each && (i.op == NPU_OP_FOLD || (i.op == NPU_OP_STORE && !stays[i.imm]));
    };
    for (const bool last : {false, true})
      for (size_t i = begin; i < end; ++i)
        if (is_last(in[i]) == last) out.add(i);
  });
  return std::move(out.program);
}

std::vector<npu_instr> folds_apart(const std::vector<npu_instr>& in) {
  Rewrite out(in);
  each_segment(in, [&](size_t begin, size_t end) {
    const bool cut = folds_tensors(in, begin, end);
    bool folded = false;
    for (size_t i = begin; i < end; ++i) {
      if (cut && folded && in[i].op == NPU_OP_LOAD) {
        out.program.push_back(in[begin]);
        folded = false;
      }
      folded = folded || in[i].op == NPU_OP_FOLD;
      out.add(i);
    }
  });
  if (out.program.size() > NPU_MAX_INSTRS) return in;
  return std::move(out.program);
}

std::vector<CompiledLoop> find_loops(const std::vector<npu_instr>& in, const std::vector<bool>& outside) {
  for (const npu_instr& i : in)
    if (i.op == NPU_OP_STORE_AT || i.op == NPU_OP_SCAN) return {};
  if (!can_compile()) return {};
  return Builder(in, outside).run();
}

}  // namespace cmodel
