// SORT from programs: by a network of exchanges, or, where few results are wanted, by taking the least again and again.
#include <algorithm>
#include <bit>

#include "support/legalise/rules/items.h"
#include "support/legalise/rules/parts.h"

namespace npu::legalise {
namespace {

// Items that a point of a network exchanges, as powers of two: a pass is a walk through memory, so the more the better,
// as far as operands, instructions and live values go.
constexpr int kWide = 4, kWideWithPlace = 3;

// Puts the lesser item first; where only that is wanted, the other is not made.
struct Exchange {
  size_t lesser, greater;
  bool both = true;
};
using Exchanges = std::vector<Exchange>;

// A command of a network: every point has its `members`, which lie in its block, exchanges them, and keeps the first.
struct Pass {
  struct Member {
    int64_t first, direction;  // in the block, and where the next point's lies
  };
  std::vector<Member> members = {};
  Exchanges exchanges = {};
  int64_t block, run;  // items of a block, and points for each
  size_t kept;         // members
  int64_t kept_block;  // items that stay of each block
};

Item chosen(Writer& writer, uint16_t which, const Item& yes, const Item& no) {
  Item out{writer.emit(NPU_OP_WHERE, NPU_I64, which, yes.key, no.key), NPU_NO_VALUE};
  if (yes.place != NPU_NO_VALUE) out.place = writer.emit(NPU_OP_WHERE, NPU_I32, which, yes.place, no.place);
  return out;
}

void exchange(Writer& writer, Item& lesser, Item& more, bool both) {
  const Item a = lesser, b = more;
  if (a.place == NPU_NO_VALUE) {
    lesser.key = writer.emit(NPU_OP_MIN, NPU_I64, a.key, b.key);
    if (both) more.key = writer.emit(NPU_OP_MAX, NPU_I64, a.key, b.key);
    return;
  }
  const uint16_t swap = greater(writer, a, b);
  lesser = chosen(writer, swap, b, a);
  if (both) more = chosen(writer, swap, a, b);
}

class Network {
 public:
  Network(const Draft& sort, Script& script) : sort_(sort), script_(script) {
    const int64_t n = row_length(sort);
    const auto length = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
    items_ = items_of(sort, script, length);
    filled_ = n;
    // A place beside the key makes twice the values, and exchanges of nine instructions instead of two.
    width_ = items_.place ? kWideWithPlace : kWide;
    wanted_ = log2(std::bit_ceil(static_cast<uint64_t>(sort.command.u.sort.count)));
  }

  Items sorted() {
    if (items_.length == 1) return items_;
    if (wanted_ < width_) {
      do least_of_groups();
      while (log2(items_.length) > wanted_);
      return items_;
    }
    least_of_groups();
    for (int level = width_ + 1; level <= wanted_; ++level) merge(level, false);
    while (log2(items_.length) > wanted_) merge(wanted_ + 1, true);
    return items_;
  }

 private:
  template <class T>
  static int log2(T value) {
    return std::bit_width(static_cast<uint64_t>(value)) - 1;
  }

  // Sorts groups of neighbours and keeps what is wanted of them: Batcher's network.
  void least_of_groups() {
    const int level = std::min(width_, log2(items_.length));
    const size_t n = size_t{1} << level;
    Pass pass{.block = int64_t{1} << level, .run = 1, .kept = n, .kept_block = int64_t{1} << level};
    for (size_t k = 0; k < n; ++k) pass.members.push_back({static_cast<int64_t>(k), 1});
    for (size_t p = 1; p < n; p *= 2)
      for (size_t k = p; k >= 1; k /= 2)
        for (size_t j = k % p; j + k < n; j += 2 * k)
          for (size_t i = j; i < std::min(j + k, n - k); ++i)
            if (i / (2 * p) == (i + k) / (2 * p)) pass.exchanges.push_back({i, i + k});
    if (wanted_ < level) {
      pass.kept = size_t{1} << wanted_;
      pass.kept_block = int64_t{1} << wanted_;
    }
    add(pass);
  }

  // Makes sorted blocks of 2^level out of pairs of sorted ones. `halves`: only the lesser half of each stays. The first
  // exchange is with the mirror image, so that all later ones are the same way round.
  void merge(int level, bool halves) {
    const int stages = std::min(level, width_);
    const size_t half = size_t{1} << (stages - 1);
    const int64_t block = int64_t{1} << level, run = block >> stages;
    Pass pass{.block = block, .run = run, .kept = 2 * half, .kept_block = block};
    for (size_t k = 0; k < half; ++k) pass.members.push_back({static_cast<int64_t>(k) * run, 1});
    for (size_t k = 0; k < half; ++k) pass.members.push_back({block - 1 - static_cast<int64_t>(k) * run, -1});
    for (size_t k = 0; k < half; ++k) pass.exchanges.push_back({k, half + k, !halves});
    for (size_t bit = half / 2; bit >= 1; bit /= 2)
      for (size_t k = 0; k < half; ++k) {
        if (k & bit) continue;
        pass.exchanges.push_back({k, k | bit});
        if (!halves) pass.exchanges.push_back({half + (k | bit), half + k});
      }
    if (halves) {
      pass.kept = half;
      pass.kept_block = block / 2;
    }
    add(pass);
    for (int left = level - stages; left > 0; left -= width_) clean(left, std::min(left, width_));
  }

  // Exchanges within blocks of 2^level, at distances from half a block down.
  void clean(int level, int stages) {
    const size_t n = size_t{1} << stages;
    const int64_t block = int64_t{1} << level, run = block >> stages;
    Pass pass{.block = block, .run = run, .kept = n, .kept_block = block};
    for (size_t k = 0; k < n; ++k) pass.members.push_back({static_cast<int64_t>(k) * run, 1});
    for (size_t bit = n / 2; bit >= 1; bit /= 2)
      for (size_t k = 0; k < n; ++k)
        if (!(k & bit)) pass.exchanges.push_back({k, k | bit});
    add(pass);
  }

  void add(const Pass& pass) {
    const bool in_place = pass.kept_block == pass.block;
    Items to = items_;
    if (!in_place) to = scratch_items(script_, sort_, items_.length / pass.block * pass.kept_block);
    // Blocks that are all behind the end of the row stay as they are.
    const int64_t blocks = in_place ? (filled_ + pass.block - 1) / pass.block : items_.length / pass.block;
    Draft map(NPU_MAP, {rows_of(sort_), blocks, pass.run});
    Writer writer(sort_, map);
    std::vector<Item> values;
    const auto view = [&](const Items& items, size_t member, int64_t block) {
      const auto& [first, direction] = pass.members[member];
      return items.view(first, {items.length, block, direction});
    };
    for (size_t k = 0; k < pass.members.size(); ++k) values.push_back(view(items_, k, pass.block).load(writer));
    for (const auto& [lesser, greater, both] : pass.exchanges) exchange(writer, values[lesser], values[greater], both);
    for (size_t k = 0; k < pass.kept; ++k) view(to, k, pass.kept_block).store(writer, values[k]);
    writer.finish("sort_exchanges");
    script_.add(map);
    if (!in_place) filled_ = to.length;
    items_ = to;
  }

  const Draft& sort_;
  Script& script_;
  Items items_;
  int64_t filled_ = 0;          // of a row: the items before the end
  int width_ = 0, wanted_ = 0;  // log2 of the members of a pass, and of the items that are wanted
};

bool writes_nothing(const Draft& sort) {
  return sort.points() == 0 || sort.command.u.sort.count == 0;
}

bool by_network(const Draft& refused, Script& script) {
  if (writes_nothing(refused)) return true;
  store_results(refused, Network(refused, script).sorted(), script);
  return true;
}

// A stage of the network, for each item by itself: it stays, or becomes its partner, which is `distance` bits away.
// What would lie behind the end of the row is greater than all, and so stays there.
Items stage(const Draft& sort, Script& script, const Items& items, int64_t bits) {
  const Items out = scratch_items(script, sort, items.length);
  const std::vector<int64_t> size = {rows_of(sort), items.length}, strides = dense_strides(size);
  Draft map(NPU_MAP, size);
  Writer writer(sort, map);
  const uint16_t here = writer.index(1);
  uint16_t there = writer.emit(NPU_OP_XOR, NPU_I64, here, writer.integer(NPU_I64, bits));
  const uint16_t inside = writer.emit(NPU_OP_LT, NPU_BOOL, there, writer.integer(NPU_I64, items.length));
  there = writer.emit(NPU_OP_WHERE, NPU_I64, inside, there, here);
  const uint16_t away = writer.emit(NPU_OP_SUB, NPU_I64, there, here);
  const Item own = items.view(0, strides).load(writer), other = items.view(0, strides).load_at(writer, away);
  const uint16_t first = writer.emit(NPU_OP_LT, NPU_BOOL, here, there);
  const uint16_t more = greater(writer, own, other);
  const uint16_t swaps = writer.emit(NPU_OP_EQ, NPU_BOOL, first, more);
  out.view(0, strides).store(writer, chosen(writer, swaps, other, own));
  writer.finish("sort_stage");
  script.add(map);
  return out;
}

bool by_stages(const Draft& refused, Script& script) {
  if (writes_nothing(refused)) return true;
  const int64_t n = row_length(refused);
  Items items = items_of(refused, script, n);
  for (int64_t block = 2; block < 2 * n; block *= 2) {
    items = stage(refused, script, items, block - 1);
    for (int64_t distance = block / 4; distance; distance /= 2) items = stage(refused, script, items, distance);
  }
  store_results(refused, items, script);
  return true;
}

// More than this many results are found faster by a network.
constexpr int64_t kFew = 4;

bool by_least(const Draft& refused, Script& script) {
  const int64_t count = refused.command.u.sort.count, n = row_length(refused);
  if (writes_nothing(refused)) return true;
  if (count > kFew || n == 1) return false;
  const Items items = items_of(refused, script, n);
  const Items found = scratch_items(script, refused, count);
  for (int64_t k = 0; k < count; ++k) {
    Draft reduce(NPU_REDUCE, {rows_of(refused), n}, 1);
    Writer writer(refused, reduce);
    const Item item = items.view(0, {n, 1}).load(writer);
    const uint16_t left =
        k ? greater(writer, item, found.view(k - 1, {count, 0}).load(writer)) : uint16_t{NPU_NO_VALUE};
    Item least;
    if (items.place) {
      const uint16_t place = writer.emit(NPU_OP_CAST, NPU_I64, item.place, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE);
      const uint16_t fold = writer.emit(NPU_OP_FOLD, NPU_I64, item.key, place, NPU_NO_VALUE, NPU_FOLD_ARGMIN, left);
      writer.segment(NPU_SEGMENT_ROW);
      least.key = fold;
      least.place = writer.emit(NPU_OP_GET, NPU_I64, fold, NPU_NO_VALUE, NPU_NO_VALUE, 1);
    } else {
      least.key = writer.emit(NPU_OP_FOLD, NPU_I64, item.key, NPU_NO_VALUE, NPU_NO_VALUE, NPU_FOLD_MIN, left);
      writer.segment(NPU_SEGMENT_ROW);
    }
    found.view(k, {count, 0}).store(writer, least);
    writer.finish("sort_least");
    script.add(reduce);
  }
  store_results(refused, found, script);
  return true;
}

constexpr Rule kRules[] = {
    {.name = "the least, again and again",
     .why = "keys with their places are all different, so that the next one is the least of those that are greater",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_SORT),
     .repeats = false,
     .make = by_least},
    {.name = "sorting network",
     .why = "exchanges whose order does not depend on the keys sort any keys; places make them different and the sort "
            "stable",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_SORT),
     .repeats = false,
     .make = by_network},
    {.name = "sorting network in stages",
     .why =
         "the same, one exchange at a time and in memory without gaps, for chips with short programs or few operands",
     .price = Price::kLast,
     .kinds = for_kind(NPU_SORT),
     .repeats = false,
     .make = by_stages},
};

}  // namespace

const std::span<const Rule> sort_rules = kRules;

}  // namespace npu::legalise
