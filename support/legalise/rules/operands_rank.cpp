// Commands of fewer dimensions.
#include <algorithm>
#include <array>

#include "support/legalise/draft/uses.h"
#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/parts.h"

namespace npu::legalise {
namespace {

// Neighbouring dimensions [first, end) that become one.
struct Group {
  int first = 0, end = 0;
  int64_t size = 1;
};
using Groups = std::vector<Group>;

// One step along dimension d is as far as all of dimension d + 1, for every operand.
bool runs_on(const Draft& draft, int d, int next) {
  const int64_t extent = draft.command.size[next];
  for (const Operand& operand : draft.operands) {
    const int64_t* stride = operand.form.stride;
    if (stride[d] != stride[next] * extent) return false;
  }
  return true;
}

// Groups of dimensions [first, end) as large as strides allow; one at least, so that a part that a kind needs stays.
void group(const Draft& draft, int first, int end, bool any_strides, Groups& groups) {
  int last = -1;  // the last dimension of the group whose extent is not 1
  bool open = false;
  for (int d = first; d < end; ++d) {
    const int64_t extent = draft.command.size[d];
    const bool joins = open && (any_strides || extent == 1 || last < 0 || runs_on(draft, last, d));
    if (!joins) groups.push_back({d, d, 1});
    open = true;
    if (!joins) last = -1;
    groups.back().end = d + 1;
    groups.back().size *= extent;
    if (extent != 1) last = d;
  }
}

// Which dimensions may meet: not those that the kind tells apart.
bool grouped(const Draft& draft, bool any_strides, Groups& groups) {
  const npu_command& command = draft.command;
  if (command.kind == NPU_CONV) return false;
  const int apart = command.kind == NPU_MATMUL ? 2 : 0;
  const int inner = command.kind == NPU_SORT ? 1 : command.inner_rank;
  const int kept = command.rank - apart - inner;
  group(draft, 0, kept, any_strides, groups);
  group(draft, kept, kept + inner, any_strides, groups);
  for (int d = kept + inner; d < command.rank; ++d) groups.push_back({d, d + 1, command.size[d]});
  return static_cast<int>(groups.size()) < command.rank;
}

// Coordinates of the source's dimensions, from those of the groups.
class Unfolding {
 public:
  Unfolding(const Draft& source, const Groups& groups) : source_(source), groups_(groups) {}

  uint16_t coordinate(Writer& writer, int dimension) const {
    size_t g = 0;
    while (dimension >= groups_[g].end) ++g;
    const Group& group = groups_[g];
    int64_t inner = 1;
    bool outermost = true;
    for (int d = dimension + 1; d < group.end; ++d) inner *= source_.command.size[d];
    for (int d = group.first; d < dimension; ++d) outermost &= source_.command.size[d] == 1;
    if (source_.command.size[dimension] == 1) return writer.integer(NPU_I64, 0);
    uint16_t at = writer.index(static_cast<int>(g));
    if (inner > 1) at = writer.emit(NPU_OP_DIV, NPU_I64, at, writer.integer(NPU_I64, inner));
    if (outermost) return at;
    return writer.emit(NPU_OP_MOD, NPU_I64, at, writer.integer(NPU_I64, source_.command.size[dimension]));
  }

  // `index` and `size` of the source.
  bool replace(Writer& writer, uint16_t id, const npu_instr& in) const {
    if (in.op == NPU_OP_SIZE) {
      writer.provide(id, writer.integer(in.dtype, source_.command.size[in.imm]));
      return true;
    }
    if (in.op != NPU_OP_INDEX) return false;
    uint16_t at = coordinate(writer, static_cast<int>(in.imm));
    if (in.dtype != NPU_I64) at = writer.emit(NPU_OP_CAST, in.dtype, at, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE);
    writer.provide(id, at);
    return true;
  }

 private:
  const Draft& source_;
  const Groups& groups_;
};

void set_groups(const Groups& groups, int inner_groups, npu_command& command) {
  std::fill(std::begin(command.size), std::end(command.size), 0);
  command.rank = static_cast<uint8_t>(groups.size());
  command.inner_rank = static_cast<uint8_t>(command.inner_rank ? inner_groups : 0);
  for (size_t g = 0; g < groups.size(); ++g) command.size[g] = groups[g].size;
}

// The stride of a group: that of its innermost dimension that has more than one point.
std::vector<int64_t> strides_of(const Draft& source, const Groups& groups, const Operand& operand) {
  std::vector<int64_t> strides;
  for (const Group& group : groups) {
    int d = group.end - 1;
    while (d > group.first && source.command.size[d] == 1) --d;
    strides.push_back(operand.form.stride[d]);
  }
  return strides;
}

int inner_groups(const Draft& draft, const Groups& groups) {
  const int kept = draft.command.rank - draft.command.inner_rank;
  return static_cast<int>(std::count_if(groups.begin(), groups.end(), [&](const Group& g) { return g.first >= kept; }));
}

bool merged_dimensions(const Draft& refused, Script& script) {
  Groups groups;
  if (!grouped(refused, false, groups)) return false;
  Draft source = refused, target = refused;
  set_groups(groups, inner_groups(refused, groups), target.command);
  for (Operand& operand : source.operands) set_strides(operand.form, strides_of(refused, groups, operand));
  target.operands = source.operands;
  if (refused.program) {
    target.operands.clear();
    if (refused.command.kind == NPU_MATMUL) target.operands = {source.operands[0], source.operands[1]};
    target.params.clear();
    const Unfolding unfolding(refused, groups);
    rewrite(source, target,
            [&](Writer& writer, uint16_t id, const npu_instr& in) { return unfolding.replace(writer, id, in); });
  }
  script.add(target);
  return true;
}

// A pointwise command over one dimension. What strides do not serve is found by coordinates.
bool one_dimension(const Draft& refused, Script& script) {
  const int rank = refused.command.rank;
  if (rank < 2 || !refused.program) return false;
  Groups groups;
  grouped(refused, true, groups);
  Draft source = refused, target = refused;
  set_groups(groups, 0, target.command);
  target.operands.clear();
  target.params.clear();
  const std::vector<Use> uses = uses_of(refused);
  std::vector<bool> computed(uses.size(), false);
  for (size_t k = 0; k < uses.size(); ++k) {
    Draft alone = refused;
    alone.operands = {refused.operands[k]};
    Groups own;
    grouped(alone, false, own);
    computed[k] = own.size() > 1;
    set_strides(source.operands[k].form,
                computed[k] ? std::vector<int64_t>() : strides_of(refused, groups, refused.operands[k]));
    if (computed[k] && uses[k].written) target.command.kind = NPU_SCATTER;
  }
  const Unfolding unfolding(refused, groups);
  std::array<uint16_t, NPU_MAX_RANK> known;
  known.fill(NPU_NO_VALUE);
  const auto place = [&](Writer& writer, uint32_t k, uint16_t offset) {
    for (int d = 0; d < rank; ++d) {
      const int64_t stride = refused.operands[k].form.stride[d];
      if (stride == 0 || refused.command.size[d] == 1) continue;
      uint16_t& at = known[static_cast<size_t>(d)];
      if (at == NPU_NO_VALUE) at = unfolding.coordinate(writer, d);
      const uint16_t part = writer.emit(NPU_OP_MUL, NPU_I64, at, writer.integer(NPU_I64, stride));
      offset = offset == NPU_NO_VALUE ? part : writer.emit(NPU_OP_ADD, NPU_I64, offset, part);
    }
    return offset == NPU_NO_VALUE ? writer.integer(NPU_I64, 0) : offset;
  };
  rewrite(source, target, [&](Writer& writer, uint16_t id, const npu_instr& in) {
    const bool load = in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT;
    const bool store = in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT;
    if ((!load && !store) || !computed[in.imm]) return unfolding.replace(writer, id, in);
    const bool plain = in.op == NPU_OP_LOAD || in.op == NPU_OP_STORE;
    Operand view = source.operands[in.imm];
    if (plain) view.form.limit = 0;
    const uint16_t offset = place(writer, in.imm, plain ? NPU_NO_VALUE : writer.value(load ? in.a : in.b));
    const uint16_t mask = writer.value(in.mask);
    if (load)
      writer.provide(id, writer.load_at(view, in.dtype, offset, mask));
    else
      writer.emit(NPU_OP_STORE_AT, NPU_DTYPE_NONE, writer.value(in.a), offset, NPU_NO_VALUE, writer.operand(view), mask,
                  plain ? int{NPU_STORE_SET} : in.flags);
    return true;
  });
  script.add(target);
  return true;
}

constexpr Rule kRules[] = {
    {.name = "dimensions merged",
     .why = "where a step along one is as far as all of the next for every operand, both are one",
     .price = Price::kCalls,
     .kinds = kAnyKind & ~for_kind(NPU_CONV),
     .repeats = false,
     .make = merged_dimensions},
    {.name = "one dimension, coordinates in the program",
     .why =
         "coordinates are quotients and rests of the number of the point; load_at and store_at take them times strides",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_MAP) | for_kind(NPU_SCATTER),
     .repeats = false,
     .make = one_dimension},
};

}  // namespace

const std::span<const Rule> rank_rules = kRules;

}  // namespace npu::legalise
