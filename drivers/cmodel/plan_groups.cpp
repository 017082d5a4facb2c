// Which instructions of a program become compiled loops.
#include "drivers/cmodel/plan_groups.h"

#include <algorithm>

#include "support/op_info.h"

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
  explicit Builder(const std::vector<npu_instr>& in)
      : in_(in), member_(in.size()), placed_(in.size()), uses_(in.size()) {
    for (size_t i = 0; i < in.size(); ++i)
      each_argument(in[i], [&](uint16_t id) { uses_[id].push_back(static_cast<int>(i)); });
    segments_ = std::count_if(in.begin(), in.end(), [](const npu_instr& i) { return i.op == NPU_OP_SEGMENT; });
  }

  std::vector<Group> run() {
    bool each = true;
    for (size_t i = 0; i < in_.size(); ++i) {
      const npu_instr& in = in_[i];
      if (in.op == NPU_OP_SEGMENT) {
        close();
        each = in.imm == NPU_SEGMENT_EACH;
      }
      if (!each) continue;
      if (in.dtype != NPU_DTYPE_NONE && in.a != NPU_NO_VALUE && in.mask == NPU_NO_VALUE &&
          can_compile(in, in_[in.a].dtype)) {
        if (read_) close();
        open_.push_back(static_cast<int>(i));
        member_[i] = true;
        continue;
      }
      // Folds read what they fold when the segment is through. What an open loop loads it can add up, too.
      if (in.op == NPU_OP_FOLD && npu::fold_kind(in) == NPU_FOLD_SUM && in.dtype == NPU_F32 &&
          in.mask == NPU_NO_VALUE && (member_[in.a] || loaded(in.a))) {
        folds_.push_back(static_cast<int>(i));
        continue;
      }
      // The open group runs where its last member stands; what reads one of its values has to come behind that.
      each_argument(in, [&](uint16_t id) { read_ |= member_[id] != 0; });
    }
    close();
    return std::move(groups_);
  }

 private:
  bool loaded(int id) const {
    if (in_[id].op != NPU_OP_LOAD || in_[id].dtype != NPU_F32) return false;
    return std::any_of(uses_[id].begin(), uses_[id].end(), [&](int user) { return member_[user] != 0; });
  }

  void close() {
    for (int i : open_) member_[i] = false;
    build(open_);
    open_.clear();
    folds_.clear();
    read_ = false;
  }

  // One loop, or two if it has too many values for one.
  void build(const std::vector<int>& members) {
    Group group = group_of(members);
    // One instruction is as fast without a loop, unless the loop can stream what later segments do not read.
    const bool streams = can_stream(group);
    if (members.size() + group.folds.size() < 2 && !(streams && segments_ > 1)) return;
    if (compile(in_, group, streams, segments_ > 1)) {
      for (int i : group.folds) placed_[i] = true;
      groups_.push_back(std::move(group));
      return;
    }
    if (members.size() < 2) return;
    const auto middle = members.begin() + static_cast<std::ptrdiff_t>(members.size() / 2);
    build({members.begin(), middle});
    build({middle, members.end()});
  }

  Group group_of(const std::vector<int>& members) const {
    Group group;
    group.members = members;
    auto has = [](const std::vector<int>& list, int id) {
      return std::find(list.begin(), list.end(), id) != list.end();
    };
    for (int i : members)
      each_argument(in_[i], [&](int id) {
        std::vector<int>& list = is_constant(in_[id]) && in_[id].dtype == NPU_F32 ? group.constants : group.inputs;
        if (!has(members, id) && !has(list, id)) list.push_back(id);
      });
    for (int i : members)
      if (std::any_of(uses_[i].begin(), uses_[i].end(), [&](int user) { return !has(members, user); }))
        group.outputs.push_back(i);
    for (int i : folds_)
      if (!placed_[i] && (has(members, in_[i].a) || has(group.inputs, in_[i].a))) group.folds.push_back(i);
    // Of two outputs that are stored to one place, the one that is stored last stays.
    std::stable_sort(group.outputs.begin(), group.outputs.end(), [&](int a, int b) { return stored(a) < stored(b); });
    // What only sums read need not be written down.
    for (int i : group.outputs)
      if (!std::all_of(uses_[i].begin(), uses_[i].end(),
                       [&](int user) { return has(members, user) || has(group.folds, user); }))
        group.stored.push_back(i);
    return group;
  }

  // Are all outputs F32 values that nobody reads but one store each?
  bool can_stream(const Group& group) const {
    return !group.outputs.empty() && std::all_of(group.outputs.begin(), group.outputs.end(), [&](int i) {
      return in_[i].dtype == NPU_F32 && uses_[i].size() == 1 && in_[uses_[i][0]].op == NPU_OP_STORE;
    });
  }

  int stored(int id) const {
    for (int user : uses_[id])
      if (in_[user].op == NPU_OP_STORE && in_[user].a == id) return user;
    return static_cast<int>(in_.size());
  }

  const std::vector<npu_instr>& in_;
  std::vector<char> member_, placed_;
  std::vector<std::vector<int>> uses_;
  std::vector<int> open_, folds_;
  bool read_ = false;  // something behind the open group's members reads one of them
  std::ptrdiff_t segments_ = 0;
  std::vector<Group> groups_;
};

}  // namespace

std::vector<npu_instr> stores_last(const std::vector<npu_instr>& in) {
  if (std::count_if(in.begin(), in.end(), [](const npu_instr& i) { return i.op == NPU_OP_SEGMENT; }) != 1) return in;
  // Not a store whose operand is loaded again behind it.
  std::vector<char> stays(NPU_MAX_OPERANDS), stored(NPU_MAX_OPERANDS);
  for (const npu_instr& i : in) {
    if (i.op == NPU_OP_STORE) stored[i.imm] = true;
    if (is_load(i) && stored[i.imm]) stays[i.imm] = true;
  }
  std::vector<npu_instr> out;
  std::vector<uint16_t> place(in.size());
  for (const bool last : {false, true})
    for (size_t i = 0; i < in.size(); ++i) {
      if ((in[i].op == NPU_OP_STORE && !stays[in[i].imm]) != last) continue;
      place[i] = static_cast<uint16_t>(out.size());
      out.push_back(in[i]);
      npu_instr& moved = out.back();
      for (uint16_t* id : {&moved.a, &moved.b, &moved.c, &moved.mask})
        if (*id != NPU_NO_VALUE) *id = place[*id];
    }
  return out;
}

std::vector<Group> find_groups(const std::vector<npu_instr>& in) {
  for (const npu_instr& i : in)
    if (i.op == NPU_OP_STORE_AT || i.op == NPU_OP_SCAN) return {};
  if (!can_compile()) return {};
  return Builder(in).run();
}

}  // namespace cmodel
