#include "support/legalise/rules/scatter_task.h"

#include <algorithm>
#include <array>

#include "support/legalise/draft/ranges.h"

namespace npu::legalise {
namespace {

int64_t product(const Sizes& sizes) {
  int64_t out = 1;
  for (const int64_t size : sizes) out *= size;
  return out;
}

// The scatter with some of its dimensions, in this order: those left out do not matter to what is asked of it.
Draft with_dimensions(const Draft& scatter, const std::vector<int>& dimensions) {
  Draft out = scatter;
  out.command.rank = static_cast<uint8_t>(dimensions.size());
  std::fill(std::begin(out.command.size), std::end(out.command.size), 0);
  for (size_t k = 0; k < dimensions.size(); ++k) out.command.size[k] = scatter.command.size[dimensions[k]];
  for (Operand& operand : out.operands) {
    Sizes strides;
    for (const int d : dimensions) strides.push_back(operand.form.stride[d]);
    set_strides(operand.form, strides);
  }
  return out;
}

}  // namespace

Sizes joined(std::initializer_list<Sizes> parts) {
  Sizes out;
  for (const Sizes& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

Operand strided(Operand operand, const Sizes& strides) {
  set_strides(operand.form, strides);
  return operand;
}

ScatterTask::ScatterTask(const Draft& scatter, const Target& target, Script& script, const Pace& pace)
    : scatter_(scatter), target_(target), script_(script), pace_(pace) {
  row_sizes_ = sizes_of(target.rows);
  item_sizes_ = sizes_of(target.items);
  column_sizes_ = sizes_of(target.columns);
  rows_ = product(row_sizes_);
  items_ = product(item_sizes_) * static_cast<int64_t>(target.stores.size());
  columns_ = product(column_sizes_);
  none_ = target.bounded ? target.extent : INT64_MAX;
  slot_type_ = none_ < INT32_MAX ? NPU_I32 : NPU_I64;
}

Sizes ScatterTask::sizes_of(const std::vector<int>& dimensions) const {
  Sizes out;
  for (const int d : dimensions) out.push_back(scatter_.command.size[d]);
  return out;
}

Sizes ScatterTask::strides_of(const std::vector<int>& dimensions) const {
  Sizes out;
  for (const int d : dimensions) out.push_back(target_.operand.form.stride[d]);
  return out;
}

Sizes ScatterTask::row_strides(int64_t length, int64_t columns) const {
  Sizes out = dense_strides(row_sizes_);
  for (int64_t& stride : out) stride *= length * columns;
  return out;
}

uint16_t ScatterTask::combined(Writer& writer, uint16_t left, uint16_t right) const {
  static constexpr std::array<npu_op, 5> kOp = {NPU_OP_COUNT, NPU_OP_ADD, NPU_OP_MUL, NPU_OP_MAX, NPU_OP_MIN};
  return writer.emit(kOp[static_cast<size_t>(target_.mode)], target_.type, left, right);
}

uint16_t ScatterTask::offset(Writer& writer, uint16_t item) const {
  return columns_ == 1 ? item : writer.emit(NPU_OP_MUL, NPU_I64, item, writer.integer(NPU_I64, columns_));
}

Operand ScatterTask::destination() const {
  const Sizes strides = joined({strides_of(target_.rows), {target_.step}, strides_of(target_.columns)});
  Operand out = strided(target_.operand, strides);
  out.form.limit = 0;
  return out.moved(target_.low);
}

Operand ScatterTask::of_items(const Operand& array) const {
  return strided(array, joined({row_strides(items_, columns_), {0}, dense_strides(column_sizes_)}));
}

Draft ScatterTask::over_slots(npu_command_kind kind, int64_t length) const {
  return Draft(kind, joined({row_sizes_, {length}, column_sizes_}));
}

// Begins a program out of the scatter's, over some of its dimensions. `checks`: with the checks that do not depend on
// those that are left out.
Writer ScatterTask::program(const Draft& source, Draft& map, const std::vector<int>& dimensions, bool checks) const {
  Writer writer(source, map);
  std::vector<int> where(NPU_MAX_RANK, 0);
  for (size_t k = 0; k < dimensions.size(); ++k) where[static_cast<size_t>(dimensions[k])] = static_cast<int>(k);
  writer.map_dimensions(where);
  const auto& instrs = scatter_.program->instrs;
  for (uint16_t id = 0; id < instrs.size(); ++id)
    if (instrs[id].op == NPU_OP_SIZE)
      writer.provide(id, writer.integer(instrs[id].dtype, scatter_.command.size[instrs[id].imm]));
  const std::vector<uint32_t> differs = dimensions_of(scatter_);
  uint32_t out = 0;
  for (const int d : target_.columns) out |= 1u << d;
  const bool whole = dimensions.size() == scatter_.command.rank;
  for (uint16_t id = 0; id < instrs.size() && checks; ++id)
    if (instrs[id].op == NPU_OP_CHECK_INDEX && (whole || !(differs[id] & out))) writer.value(id);
  return writer;
}

// The slot of each item.
void ScatterTask::read_slots(bool checks) {
  std::vector<int> dimensions = target_.rows;
  dimensions.insert(dimensions.end(), target_.items.begin(), target_.items.end());
  const Draft source = with_dimensions(scatter_, dimensions);
  const auto stores = static_cast<int64_t>(target_.stores.size());
  const Sizes shape = joined({row_sizes_, item_sizes_, {stores}});
  slots_ = script_.scratch(slot_type_, {rows_ * items_});
  Draft map(NPU_MAP, source.size());
  Writer writer = program(source, map, dimensions, checks);
  Sizes strides = dense_strides(shape);
  strides.pop_back();
  for (size_t k = 0; k < target_.stores.size(); ++k) {
    const npu_instr& in = scatter_.program->instrs[target_.stores[k]];
    const uint16_t computed = writer.value(in.b), mask = writer.value(in.mask);
    if (!target_.inside) {
      // An offset outside the limit fails the command here, as it would there.
      const Operand probed = script_.scratch(target_.type, source.size());
      writer.store(probed, writer.load_at(source.operands[in.imm], target_.type, computed, mask));
    }
    uint16_t slot = computed;
    for (size_t d = target_.rows.size(); d < dimensions.size(); ++d) {
      const int64_t step = target_.operand.form.stride[dimensions[d]];
      if (step == 0 || map.command.size[d] == 1) continue;
      const uint16_t along =
          writer.emit(NPU_OP_MUL, NPU_I64, writer.index(static_cast<int>(d)), writer.integer(NPU_I64, step));
      slot = writer.emit(NPU_OP_ADD, NPU_I64, slot, along);
    }
    if (target_.low) slot = writer.emit(NPU_OP_SUB, NPU_I64, slot, writer.integer(NPU_I64, target_.low));
    if (target_.step > 1) slot = writer.emit(NPU_OP_DIV, NPU_I64, slot, writer.integer(NPU_I64, target_.step));
    if (mask != NPU_NO_VALUE) slot = writer.emit(NPU_OP_WHERE, NPU_I64, mask, slot, writer.integer(NPU_I64, none_));
    writer.store(strided(slots_, strides).moved(static_cast<int64_t>(k)), slot);
  }
  writer.finish(scatter_.program->name);
  script_.add(map);
}

// The value of each item in each column.
void ScatterTask::read_values(bool checks) {
  std::vector<int> dimensions = target_.rows;
  for (const auto& more : {target_.items, target_.columns})
    dimensions.insert(dimensions.end(), more.begin(), more.end());
  const Draft source = with_dimensions(scatter_, dimensions);
  const Sizes shape = joined({row_sizes_, item_sizes_, {static_cast<int64_t>(target_.stores.size())}, column_sizes_});
  values_ = script_.scratch(target_.type, {rows_ * items_ * columns_});
  Draft map(NPU_MAP, source.size());
  Writer writer = program(source, map, dimensions, checks && columns_ > 1);
  Sizes strides = dense_strides(shape);
  strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(row_sizes_.size() + item_sizes_.size()));
  for (size_t k = 0; k < target_.stores.size(); ++k) {
    const npu_instr& in = scatter_.program->instrs[target_.stores[k]];
    writer.store(strided(values_, strides).moved(static_cast<int64_t>(k) * columns_), writer.value(in.a));
  }
  writer.finish(scatter_.program->name);
  script_.add(map);
}

// Behind the items of a row are slots that are behind all others. Before the first row there is memory that may be
// read, so that whoever looks back from an item needs no mask.
void ScatterTask::sort() {
  const int64_t length = row_length();
  sorted_ = strided(script_.scratch(slot_type_, {items_ + rows_ * length}), {length, 1}).moved(items_);
  order_ = script_.scratch(items_ < INT32_MAX ? NPU_I32 : NPU_I64, {rows_, items_});
  Draft sort(NPU_SORT, {rows_, items_}, 1);
  sort.command.u.sort.count = items_;
  sort.command.u.sort.stable = !combines();
  Operand places;
  places.form.dtype = NPU_I64;
  places.form.flags = NPU_OPERAND_IMMEDIATE;
  places.place.kind = Place::kLiteral;
  sort.operands = {strided(slots_, {items_, 1}), places, sorted_, order_};
  script_.add(sort);

  Draft ends(NPU_MAP, {rows_, length - items_});
  Writer writer(scatter_, ends);
  writer.store(sorted_.moved(items_), writer.integer(slot_type_, none_));
  writer.finish("scatter_ends");
  script_.add(ends);
}

Operand ScatterTask::scratch_of_items() const {
  const Operand all = script_.scratch(target_.type, {(1 + rows_) * items_ * columns_});
  return strided(all, {items_ * columns_, columns_, 1}).moved(items_ * columns_);
}

// Values in the order of their slots.
void ScatterTask::gather() {
  const Sizes size = {rows_, items_, columns_};
  sums_ = scratch_of_items();
  Draft map(NPU_MAP, size);
  Writer writer(scatter_, map);
  const uint16_t item = writer.load(strided(order_, {items_, 1, 0}), NPU_I64);
  const Operand values = strided(values_, {items_ * columns_, 0, 1});
  writer.store(sums_, writer.load_at(values, target_.type, offset(writer, item)));
  writer.finish("scatter_gather");
  script_.add(map);
}

// Sums of values in order, within each slot: a step adds those that so many items before have so far.
void ScatterTask::combine() {
  const Sizes size = {rows_, items_, columns_}, slots = {row_length(), 1, 0};
  for (int64_t reach = 1; reach < items_; reach *= pace_.reach) {
    const Operand next = scratch_of_items();
    Draft map(NPU_MAP, size);
    Writer writer(scatter_, map);
    const uint16_t slot = writer.load(strided(sorted_, slots), slot_type_), place = writer.index(1);
    uint16_t sum = writer.load(sums_, target_.type);
    for (int64_t back = reach; back < std::min(reach * pace_.reach, items_); back += reach) {
      const uint16_t before = writer.load(strided(sorted_, slots).moved(-back), slot_type_);
      const uint16_t there = writer.emit(NPU_OP_GE, NPU_BOOL, place, writer.integer(NPU_I64, back));
      uint16_t same = writer.emit(NPU_OP_EQ, NPU_BOOL, before, slot);
      same = writer.emit(NPU_OP_AND, NPU_BOOL, same, there);
      const uint16_t more = writer.load(sums_.moved(-back * columns_), target_.type);
      sum = writer.emit(NPU_OP_WHERE, target_.type, same, combined(writer, more, sum), sum);
    }
    writer.store(next, sum);
    writer.finish("scatter_combine");
    script_.add(map);
    sums_ = next;
  }
}

}  // namespace npu::legalise
