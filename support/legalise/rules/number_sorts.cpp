// SORT where keys, payload or results are not of types that the chip sorts: it sorts words, and what moves is a
// permutation.
#include "support/legalise/draft/writer.h"
#include "support/legalise/numbers/in_words.h"
#include "support/legalise/rules/parts.h"

namespace npu::legalise {
namespace {

// A SORT in the making: its sizes, and those of its results.
struct Rows {
  std::vector<int64_t> size, sorted;
  int last;  // dimension
};

// The same rows, of which every point sees the first element.
Operand row_of(Operand operand, const Rows& rows) {
  operand.form.stride[rows.last] = 0;
  return operand;
}

Operand counting() {
  Operand operand;
  operand.form.dtype = NPU_I32;
  operand.form.flags = NPU_OPERAND_IMMEDIATE;
  operand.place.kind = Place::kLiteral;
  return operand;
}

// The element of a row that a permutation names. Its numbers are below the row's size, which keeps offsets short.
uint16_t gathered(Writer& writer, const Operand& from, int dtype, uint16_t place, const Rows& rows) {
  const uint16_t most = writer.integer(NPU_I64, std::max<int64_t>(rows.size[static_cast<size_t>(rows.last)] - 1, 0));
  const uint16_t low = writer.emit(NPU_OP_MAX, NPU_I64, place, writer.integer(NPU_I64, 0));
  const uint16_t bounded = writer.emit(NPU_OP_MIN, NPU_I64, low, most);
  const uint16_t stride = writer.integer(NPU_I64, from.form.stride[rows.last]);
  return writer.load_at(row_of(from, rows), dtype, writer.emit(NPU_OP_MUL, NPU_I64, bounded, stride));
}

// Numbers of 64 bits as integers of that order; a NaN is above every number, and the zeros are one.
uint16_t ordered(Writer& writer, uint16_t key) {
  const int type = writer.type(key);
  if (type == NPU_I64) return key;
  const uint16_t sign = writer.integer(NPU_I64, INT64_MIN);
  if (type == NPU_U64) {
    const uint16_t bits = writer.emit(NPU_OP_CAST, NPU_I64, key, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE);
    return writer.emit(NPU_OP_XOR, NPU_I64, bits, sign);
  }
  const uint16_t bits = writer.emit(NPU_OP_BITCAST, NPU_I64, key, NPU_NO_VALUE, NPU_NO_VALUE, NPU_F64 | NPU_I64 << 8);
  const uint16_t most = writer.integer(NPU_I64, INT64_MAX);
  const uint16_t below = writer.emit(NPU_OP_SHR, NPU_I64, bits, writer.integer(NPU_I64, 63));
  const uint16_t turned = writer.emit(NPU_OP_XOR, NPU_I64, bits, writer.emit(NPU_OP_AND, NPU_I64, below, most));
  const uint16_t zero = writer.emit(NPU_OP_EQ, NPU_BOOL, key, writer.real(NPU_F64, 0));
  const uint16_t one = writer.emit(NPU_OP_WHERE, NPU_I64, zero, writer.integer(NPU_I64, 0), turned);
  return writer.emit(NPU_OP_WHERE, NPU_I64, writer.emit(NPU_OP_ISNAN, NPU_BOOL, key), most, one);
}

// Its words as i32 keys: the low one as a number without sign. `high` is null where the low word is all.
void split_keys(const Draft& refused, const Rows& rows, const Operand& low, const Operand* high, Script& script) {
  Draft map(NPU_MAP, rows.size);
  Writer writer(refused, map);
  const Operand& keys = refused.operands[0];
  const uint16_t key = ordered(writer, writer.load(keys, compute_dtype(keys.form.dtype)));
  const auto word = [&](uint16_t value) {
    return writer.emit(NPU_OP_CAST, NPU_I32, value, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE);
  };
  writer.store(low, writer.emit(NPU_OP_XOR, NPU_I32, word(key), writer.integer(NPU_I32, INT32_MIN)));
  if (high) writer.store(*high, word(writer.emit(NPU_OP_SHR, NPU_I64, key, writer.integer(NPU_I64, 32))));
  writer.finish("words of keys");
  script.add(map);
}

// Sorts a permutation by these keys. All of it where another pass follows.
Operand sort_places(const Draft& refused, const Rows& rows, const Operand& keys, const Operand& payload, bool whole,
                    Script& script) {
  const std::vector<int64_t>& results = whole ? rows.size : rows.sorted;
  const Operand places = script.scratch(NPU_I32, results);
  Draft sort(NPU_SORT, rows.size, 1);
  sort.command.u.sort = refused.command.u.sort;
  sort.command.u.sort.count = results.back();
  if (whole || !payload.immediate()) sort.command.u.sort.stable = 1;
  sort.operands = {keys, payload, script.scratch(keys.form.dtype, results), places};
  script.add(sort);
  return places;
}

void gather_keys(const Draft& refused, const Rows& rows, const Operand& from, const Operand& places, const Operand& to,
                 Script& script) {
  Draft map(NPU_MAP, rows.size);
  Writer writer(refused, map);
  writer.store(to, gathered(writer, from, NPU_I32, writer.load(places, NPU_I64), rows));
  writer.finish("keys in places");
  script.add(map);
}

// The results, from the inputs; where those are overwritten, after they were read.
void gather_results(const Draft& refused, const Rows& rows, const Operand& places, Script& script) {
  const Operand &keys = refused.operands[0], &payload = refused.operands[1];
  Draft map(NPU_MAP, rows.sorted);
  Writer writer(refused, map);
  std::vector<std::pair<Operand, Operand>> late;
  const uint16_t place = writer.load(places, NPU_I64);
  uint16_t values[2] = {gathered(writer, keys, compute_dtype(keys.form.dtype), place, rows), place};
  if (!payload.immediate()) values[1] = gathered(writer, payload, compute_dtype(payload.form.dtype), place, rows);
  for (uint32_t k = 0; k < 2; ++k) {
    Operand to = refused.operands[2 + k];
    if (script.same_memory(to, keys) || script.same_memory(to, payload)) {
      late.emplace_back(to, script.scratch(to.form.dtype, rows.sorted));
      to = late.back().second;
    }
    writer.store(to, values[k]);
  }
  writer.finish("results in places");
  script.add(map);
  for (const auto& [to, from] : late) script.add(copy(rows.sorted, to, from));
}

// Whose 32 bits are all of their keys.
bool is_word(int dtype) {
  return dtype == NPU_U32;
}

bool sort_words(const Draft& refused, Script& script) {
  const npu_command& command = refused.command;
  const int dtype = refused.operands[0].form.dtype;
  bool any = false;
  for (const Operand& operand : refused.operands) any |= in_wide_storage(operand.form.dtype);
  Rows rows{refused.size(), refused.size(), command.rank - 1};
  if (!any || refused.operands[0].immediate() || rows.size.back() > INT32_MAX) return false;
  rows.sorted.back() = command.u.sort.count;
  if (!in_wide_storage(dtype)) {
    gather_results(refused, rows, sort_places(refused, rows, refused.operands[0], counting(), false, script), script);
    return true;
  }
  const Operand low = script.scratch(NPU_I32, rows.size);
  if (is_word(dtype)) {
    split_keys(refused, rows, low, nullptr, script);
    gather_results(refused, rows, sort_places(refused, rows, low, counting(), false, script), script);
    return true;
  }
  const Operand high = script.scratch(NPU_I32, rows.size), moved = script.scratch(NPU_I32, rows.size);
  split_keys(refused, rows, low, &high, script);
  const Operand by_low = sort_places(refused, rows, low, counting(), true, script);
  gather_keys(refused, rows, high, by_low, moved, script);
  gather_results(refused, rows, sort_places(refused, rows, moved, by_low, false, script), script);
  return true;
}

constexpr Rule kRules[] = {
    {.name = "sort by words",
     .why = "a stable sort by the low word, then by the high one, sorts by both; the rest is read where it lies",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_SORT),
     .repeats = false,
     .make = sort_words},
};

}  // namespace

const std::span<const Rule> number_sort_rules = kRules;

}  // namespace npu::legalise
