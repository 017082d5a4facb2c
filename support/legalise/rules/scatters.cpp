// The rules for SCATTER: three ways to store what a task has read.
#include <array>
#include <bit>

#include "support/legalise/rules/parts.h"
#include "support/legalise/rules/scatter_task.h"

namespace npu::legalise {

// Every slot looks at the items of its row, which are few.
void ScatterTask::look() {
  Draft map = over_slots(NPU_MAP, target_.extent);
  Writer writer(scatter_, map);
  const uint16_t slot = writer.index(static_cast<int>(row_sizes_.size()), slot_type_);
  std::vector<uint16_t> mine;
  uint16_t any = NPU_NO_VALUE;
  for (int64_t item = 0; item < items_; ++item) {
    const uint16_t there = writer.load(strided(slots_, row_strides(items_, 1)).moved(item), slot_type_);
    mine.push_back(writer.emit(NPU_OP_EQ, NPU_BOOL, there, slot));
    any = item ? writer.emit(NPU_OP_OR, NPU_BOOL, any, mine.back()) : mine.back();
  }
  uint16_t value = combines() ? writer.load(destination(), target_.type, any) : uint16_t{NPU_NO_VALUE};
  for (int64_t item = 0; item < items_; ++item) {
    const uint16_t next = writer.load(of_items(values_).moved(item * columns_), target_.type);
    if (value == NPU_NO_VALUE) {
      value = next;
      continue;
    }
    const uint16_t met = combines() ? combined(writer, value, next) : next;
    value = writer.emit(NPU_OP_WHERE, target_.type, mine[static_cast<size_t>(item)], met, value);
  }
  writer.store(destination(), value, any);
  writer.finish(scatter_.program->name);
  script_.add(map);
}

// Every slot asks all items of its row.
void ScatterTask::ask_all() {
  static constexpr std::array<npu_fold, 5> kFold = {NPU_FOLD_COUNT, NPU_FOLD_SUM, NPU_FOLD_PROD, NPU_FOLD_MAX,
                                                    NPU_FOLD_MIN};
  Sizes size = joined({row_sizes_, {target_.extent}, column_sizes_});
  const auto slot_dimension = static_cast<int>(row_sizes_.size()), item_dimension = static_cast<int>(size.size());
  size.push_back(items_);
  Draft reduce(NPU_REDUCE, size, 1);
  Writer writer(scatter_, reduce);
  Sizes strides = row_strides(items_, 1);
  strides.resize(size.size() - 1, 0);
  strides.push_back(1);
  const uint16_t slot = writer.load(strided(slots_, strides), NPU_I64);
  const uint16_t mine = writer.emit(NPU_OP_EQ, NPU_BOOL, slot, writer.index(slot_dimension));
  const auto fold = [&](npu_fold kind, uint16_t value) {
    return writer.emit(NPU_OP_FOLD, writer.type(value), value, NPU_NO_VALUE, NPU_NO_VALUE, kind, mine);
  };
  const uint16_t last = fold(NPU_FOLD_MAX, writer.index(item_dimension));
  uint16_t sum = NPU_NO_VALUE;
  if (combines()) {
    Operand value = of_items(values_);
    value.form.stride[item_dimension] = columns_;
    sum = fold(kFold[static_cast<size_t>(target_.mode)], writer.load(value, target_.type));
  }
  writer.segment(NPU_SEGMENT_ROW);
  const uint16_t any = writer.emit(NPU_OP_GE, NPU_BOOL, last, writer.integer(NPU_I64, 0));
  if (combines())
    sum = combined(writer, writer.load(destination(), target_.type, any), sum);
  else
    sum = writer.load_at(of_items(values_), target_.type, offset(writer, last), any);
  writer.store(destination(), sum, any);
  writer.finish(scatter_.program->name);
  script_.add(reduce);
}

// Steps of a search by halving: how many items of its row are stored at a slot or before it. Rows are longer than their
// items, by slots behind all others, so that nothing has to be masked.
Operand ScatterTask::halve(const Operand& counts, int64_t from, int64_t to) {
  const Operand out = script_.scratch(items_ < INT32_MAX ? NPU_I32 : NPU_I64, {rows_, target_.extent});
  Draft map(NPU_MAP, {rows_, target_.extent});
  Writer writer(scatter_, map);
  const uint16_t slot = writer.index(1, slot_type_), one = writer.integer(NPU_I64, 1);
  uint16_t count = from == row_length() / 2 ? writer.integer(NPU_I64, 0) : writer.load(counts, NPU_I64);
  for (int64_t step = from; step > to; step /= 2) {
    const uint16_t at = writer.emit(NPU_OP_ADD, NPU_I64, count, writer.integer(NPU_I64, step - 1));
    const uint16_t there = writer.load_at(strided(sorted_, {row_length(), 0}), slot_type_, at);
    const uint16_t goes = writer.emit(NPU_OP_LE, NPU_BOOL, there, slot);
    count = writer.emit(NPU_OP_WHERE, NPU_I64, goes, writer.emit(NPU_OP_ADD, NPU_I64, at, one), count);
  }
  writer.store(out, count);
  writer.finish("scatter_search");
  script_.add(map);
  return out;
}

// Every slot looks for its last item among the sorted ones; then slots with an item store.
void ScatterTask::search() {
  sort();
  if (combines()) {
    gather();
    combine();
  }
  Operand found;
  for (int64_t step = row_length() / 2; step; step >>= pace_.halvings)
    found = halve(found, step, step >> pace_.halvings);
  Draft map(NPU_MAP, {rows_, target_.extent});
  Writer writer(scatter_, map);
  const uint16_t count = writer.load(found, NPU_I64), slot = writer.index(1, slot_type_);
  uint16_t last = writer.emit(NPU_OP_SUB, NPU_I64, count, writer.integer(NPU_I64, 1));
  last = writer.emit(NPU_OP_MAX, NPU_I64, last, writer.integer(NPU_I64, 0));
  const uint16_t there = writer.load_at(strided(sorted_, {row_length(), 0}), slot_type_, last);
  if (!combines()) last = writer.load_at(strided(order_, {items_, 0}), NPU_I64, last);
  const uint16_t hit = writer.emit(NPU_OP_EQ, NPU_BOOL, there, slot);
  writer.store(found, writer.emit(NPU_OP_WHERE, NPU_I64, hit, last, writer.integer(NPU_I64, -1)));
  writer.finish("scatter_found");
  script_.add(map);

  Draft store = over_slots(NPU_MAP, target_.extent);
  Writer storing(scatter_, store);
  Sizes strides = row_strides(target_.extent, 1);
  strides.push_back(1);
  const uint16_t at = storing.load(strided(found, strides), NPU_I64);
  const uint16_t stores = storing.emit(NPU_OP_GE, NPU_BOOL, at, storing.integer(NPU_I64, 0));
  uint16_t value = storing.load_at(of_items(combines() ? sums_ : values_), target_.type, offset(storing, at), stores);
  if (combines()) value = combined(storing, storing.load(destination(), target_.type, stores), value);
  storing.store(destination(), value, stores);
  storing.finish(scatter_.program->name);
  script_.add(store);
}

// The last item of each slot has what is to be stored there; no two of them meet. Is this item one, and where?
uint16_t ScatterTask::last_of_slot(Writer& writer, uint16_t* place) const {
  Sizes strides = row_strides(row_length(), 1);
  strides.push_back(1);
  const Operand slots = strided(sorted_, strides);
  const uint16_t slot = writer.load(slots, NPU_I64), next = writer.load(slots.moved(1), NPU_I64);
  uint16_t last = writer.emit(NPU_OP_NE, NPU_BOOL, next, slot);
  if (target_.bounded) {
    // After a check that failed, slots are anything.
    const uint16_t least = writer.integer(NPU_I64, 0), end = writer.integer(NPU_I64, target_.extent);
    last = writer.emit(NPU_OP_AND, NPU_BOOL, last, writer.emit(NPU_OP_GE, NPU_BOOL, slot, least));
    last = writer.emit(NPU_OP_AND, NPU_BOOL, last, writer.emit(NPU_OP_LT, NPU_BOOL, slot, end));
  }
  *place = slot;
  if (target_.step > 1) *place = writer.emit(NPU_OP_MUL, NPU_I64, slot, writer.integer(NPU_I64, target_.step));
  if (target_.low) *place = writer.emit(NPU_OP_ADD, NPU_I64, *place, writer.integer(NPU_I64, target_.low));
  return last;
}

void ScatterTask::store_apart() {
  sort();
  gather();
  if (combines()) combine();
  Operand values = of_items(sums_);
  values.form.stride[row_sizes_.size()] = columns_;
  const Operand there = strided(target_.operand, joined({strides_of(target_.rows), {0}, strides_of(target_.columns)}));
  uint16_t place = NPU_NO_VALUE;
  if (combines()) {
    const Operand total = script_.scratch(target_.type, joined({row_sizes_, {items_}, column_sizes_}));
    Draft map = over_slots(NPU_MAP, items_);
    Writer writer(scatter_, map);
    const uint16_t last = last_of_slot(writer, &place);
    const uint16_t old = writer.load_at(there, target_.type, place, last);
    writer.store(total, combined(writer, old, writer.load(values, target_.type)));
    writer.finish("scatter_meet");
    script_.add(map);
    values = total;
  }
  Draft store = over_slots(NPU_SCATTER, items_);
  store.plain = true;
  Writer writer(scatter_, store);
  const uint16_t last = last_of_slot(writer, &place);
  writer.emit(NPU_OP_STORE_AT, NPU_DTYPE_NONE, writer.load(values, target_.type), place, NPU_NO_VALUE,
              writer.operand(there), last, NPU_STORE_SET);
  writer.finish(scatter_.program->name);
  script_.add(store);
}

namespace {

// Stores at the point itself.
void store_plainly(const Draft& scatter, Script& script) {
  Draft map(NPU_MAP, scatter.size());
  Writer writer(scatter, map);
  const auto& instrs = scatter.program->instrs;
  bool any = false;
  for (uint16_t id = 0; id < instrs.size(); ++id) {
    if (instrs[id].op != NPU_OP_STORE) continue;
    writer.sink(id);
    any = true;
  }
  if (!any) return;
  writer.finish(scatter.program->name);
  script.add(map);
}

constexpr Pace kFast{.reach = 8, .halvings = 40}, kSlow{.reach = 2, .halvings = 2};

using Fits = bool (*)(const ScatterTask&);

// All is read before the first store.
bool make(const Draft& refused, Script& script, Fits fits, void (ScatterTask::*store)(), const Pace& pace = kFast) {
  if (refused.points() == 0) return true;
  const std::vector<Target> targets = targets_of(refused, script);
  std::vector<ScatterTask> tasks;
  for (const Target& target : targets) tasks.emplace_back(refused, target, script, pace);
  for (const ScatterTask& task : tasks)
    if (!fits(task)) return false;
  for (size_t k = 0; k < tasks.size(); ++k) tasks[k].read(k == 0);
  store_plainly(refused, script);
  for (ScatterTask& task : tasks) (task.*store)();
  return !tasks.empty();
}

constexpr int64_t kFew = 8;                        // items of a row: two operands and six instructions for each
constexpr int64_t kMostAsked = int64_t{1} << 20;   // questions: fewer cost less than the dozens of commands of a sort
constexpr int64_t kMostWalked = int64_t{1} << 32;  // elements of a memory that is walked to store to some of them

bool look(const Draft& refused, Script& script) {
  const Fits fits = [](const ScatterTask& task) {
    return task.bounded() && task.rank() <= NPU_MAX_RANK && task.items() <= kFew && task.elements() <= kMostWalked;
  };
  return make(refused, script, fits, &ScatterTask::look);
}

bool ask_all(const Draft& refused, Script& script) {
  const Fits fits = [](const ScatterTask& task) {
    return task.bounded() && task.rank() < NPU_MAX_RANK && task.elements() <= kMostAsked / task.items();
  };
  return make(refused, script, fits, &ScatterTask::ask_all);
}

template <const Pace& At>
bool search(const Draft& refused, Script& script) {
  const Fits fits = [](const ScatterTask& task) {
    return task.bounded() && task.rank() <= NPU_MAX_RANK && task.elements() <= kMostWalked;
  };
  return make(refused, script, fits, &ScatterTask::search, At);
}

template <const Pace& At>
bool store_apart(const Draft& refused, Script& script) {
  bool combines = false;
  for (const npu_instr& in : refused.program->instrs) combines |= in.op == NPU_OP_STORE_AT && in.flags != NPU_STORE_SET;
  const Fits fits = [](const ScatterTask& task) { return task.rank() <= NPU_MAX_RANK; };
  return combines && make(refused, script, fits, &ScatterTask::store_apart, At);
}

constexpr Rule kRules[] = {
    {.name = "each element looks at its few points",
     .why = "an element of memory meets those of its points that store there, one after the other",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_SCATTER),
     .repeats = false,
     .make = look},
    {.name = "each element asks all points",
     .why = "an element of memory folds the values of the points that store there, or takes that of the last one",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_SCATTER),
     .repeats = false,
     .make = ask_all},
    {.name = "points that meet are combined first",
     .why = "sorted by where they store, points that meet are neighbours: their sum is stored once",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_SCATTER),
     .repeats = false,
     .make = store_apart<kFast>},
    {.name = "each element searches its points",
     .why = "points sorted by where they store are found by halving, the last one of equals first",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_SCATTER),
     .repeats = false,
     .make = search<kFast>},
    {.name = "points that meet are combined first, two by two",
     .why = "the same with commands of few operands",
     .price = Price::kLast,
     .kinds = for_kind(NPU_SCATTER),
     .repeats = false,
     .make = store_apart<kSlow>},
    {.name = "each element searches its points, step by step",
     .why = "the same with short programs of few operands",
     .price = Price::kLast,
     .kinds = for_kind(NPU_SCATTER),
     .repeats = false,
     .make = search<kSlow>},
};

}  // namespace

const std::span<const Rule> scatter_rules = kRules;

}  // namespace npu::legalise
