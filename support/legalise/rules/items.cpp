#include "support/legalise/rules/items.h"

#include <algorithm>

namespace npu::legalise {
namespace {

constexpr int64_t kPlaces = int64_t{1} << 32;  // keys of a row that a place of 32 bits tells apart

bool packs(const Draft& sort) {
  const int type = sort.operands[0].form.dtype, compute = compute_dtype(type);
  return compute == NPU_BOOL || compute == NPU_I32 || compute == NPU_F32 || type == NPU_U32;
}

// The bits of a float, which are in order but for those of negative numbers, zeros and NaN.
uint16_t float_bits(Writer& writer, uint16_t key, bool wide) {
  const int real = wide ? NPU_F64 : NPU_F32, whole = wide ? NPU_I64 : NPU_I32;
  const int64_t most = wide ? INT64_MAX : INT32_MAX;
  const uint16_t bits = writer.emit(NPU_OP_BITCAST, whole, key, NPU_NO_VALUE, NPU_NO_VALUE,
                                    static_cast<uint32_t>(real) | static_cast<uint32_t>(whole) << 8);
  const uint16_t zero = writer.integer(whole, 0), greatest = writer.integer(whole, most);
  const uint16_t below = writer.emit(NPU_OP_LT, NPU_BOOL, bits, zero);
  const uint16_t turned = writer.emit(NPU_OP_XOR, whole, bits, greatest);
  uint16_t out = writer.emit(NPU_OP_WHERE, whole, below, turned, bits);
  const uint16_t is_zero = writer.emit(NPU_OP_EQ, NPU_BOOL, key, writer.real(real, 0));
  out = writer.emit(NPU_OP_WHERE, whole, is_zero, zero, out);
  return writer.emit(NPU_OP_WHERE, whole, writer.emit(NPU_OP_ISNAN, NPU_BOOL, key), greatest, out);
}

// An i64 that is in the order of the keys: ascending ones.
uint16_t ordered(Writer& writer, uint16_t key, int type, bool descending) {
  uint16_t out = key;
  const int compute = compute_dtype(type);
  if (compute == NPU_F32 || compute == NPU_F64) out = float_bits(writer, key, compute == NPU_F64);
  if (compute == NPU_U64) out = writer.emit(NPU_OP_XOR, NPU_U64, key, writer.integer(NPU_U64, INT64_MIN));
  if (writer.type(out) != NPU_I64)
    out = writer.emit(NPU_OP_CAST, NPU_I64, out, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE);
  if (type == NPU_U32) out = writer.emit(NPU_OP_ADD, NPU_I64, out, writer.integer(NPU_I64, INT32_MIN));
  return descending ? writer.emit(NPU_OP_SUB, NPU_I64, writer.integer(NPU_I64, -1), out) : out;
}

// Behind the end of a row: greater than all that is in it.
void store_ends(const Draft& sort, const Items& items, Script& script) {
  const int64_t from = row_length(sort), count = items.length - from;
  if (count == 0) return;
  Draft map(NPU_MAP, {rows_of(sort), count});
  Writer writer(sort, map);
  Item end{writer.integer(NPU_I64, INT64_MAX), NPU_NO_VALUE};
  if (items.place)
    end.place = writer.emit(NPU_OP_ADD, NPU_I32, writer.index(1, NPU_I32), writer.integer(NPU_I32, from));
  items.view(from, {items.length, 1}).store(writer, end);
  writer.finish("sort_ends");
  script.add(map);
}

}  // namespace

Items Items::view(int64_t first, const std::vector<int64_t>& strides) const {
  Items out = *this;
  out.key = key.moved(first);
  set_strides(out.key.form, strides);
  if (place) {
    out.place = place->moved(first);
    set_strides(out.place->form, strides);
  }
  return out;
}

Item Items::load(Writer& writer, uint16_t mask) const {
  Item item{writer.load(key, NPU_I64, mask), NPU_NO_VALUE};
  if (place) item.place = writer.load(*place, NPU_I32, mask);
  return item;
}

Item Items::load_at(Writer& writer, uint16_t offset) const {
  Item item{writer.load_at(key, NPU_I64, offset), NPU_NO_VALUE};
  if (place) item.place = writer.load_at(*place, NPU_I32, offset);
  return item;
}

void Items::store(Writer& writer, const Item& item, uint16_t mask) const {
  writer.store(key, item.key, mask);
  if (place) writer.store(*place, item.place, mask);
}

Items scratch_items(Script& script, const Draft& sort, int64_t length) {
  Items items;
  const std::vector<int64_t> size = {rows_of(sort), length};
  items.key = script.scratch(NPU_I64, size);
  if (!packs(sort)) items.place = script.scratch(NPU_I32, size);
  items.length = length;
  return items;
}

Items items_of(const Draft& sort, Script& script, int64_t length) {
  const Items items = scratch_items(script, sort, length);
  const int last = sort.command.rank - 1, type = sort.operands[0].form.dtype;
  std::vector<int64_t> size = sort.size();
  Draft map(NPU_MAP, size);
  Writer writer(sort, map);
  Item item;
  item.key = ordered(writer, writer.load(sort.operands[0], compute_dtype(type)), type, sort.command.u.sort.descending);
  if (items.place) {
    item.place = writer.index(last, NPU_I32);
  } else {
    item.key = writer.emit(NPU_OP_MUL, NPU_I64, item.key, writer.integer(NPU_I64, kPlaces));
    item.key = writer.emit(NPU_OP_ADD, NPU_I64, item.key, writer.index(last));
  }
  size.back() = length;
  items.view(0, dense_strides(size)).store(writer, item);
  writer.finish("sort_items");
  script.add(map);
  store_ends(sort, items, script);
  return items;
}

uint16_t greater(Writer& writer, const Item& a, const Item& b) {
  const uint16_t more = writer.emit(NPU_OP_GT, NPU_BOOL, a.key, b.key);
  if (a.place == NPU_NO_VALUE) return more;
  const uint16_t same = writer.emit(NPU_OP_EQ, NPU_BOOL, a.key, b.key);
  const uint16_t behind = writer.emit(NPU_OP_GT, NPU_BOOL, a.place, b.place);
  return writer.emit(NPU_OP_OR, NPU_BOOL, more, writer.emit(NPU_OP_AND, NPU_BOOL, same, behind));
}

void store_results(const Draft& sort, const Items& sorted, Script& script) {
  const int rank = sort.command.rank;
  std::vector<int64_t> size = sort.size(), rows = size;
  rows.back() = sorted.length;
  size.back() = sort.command.u.sort.count;
  const Operand &keys = sort.operands[0], &payload = sort.operands[1];
  Operand to_keys = sort.operands[2], to_payload = sort.operands[3];
  // What is read out of order must not be written meanwhile.
  const auto in_place = [&](const Operand& to) {
    return script.same_memory(to, keys) || script.same_memory(to, payload);
  };
  if (in_place(to_keys)) to_keys = script.scratch(to_keys.form.dtype, size);
  if (in_place(to_payload)) to_payload = script.scratch(to_payload.form.dtype, size);

  Draft map(NPU_MAP, size);
  Writer writer(sort, map);
  const Item item = sorted.view(0, dense_strides(rows)).load(writer);
  const uint16_t place = sorted.place
                             ? writer.emit(NPU_OP_CAST, NPU_I64, item.place, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE)
                             : writer.emit(NPU_OP_AND, NPU_I64, item.key, writer.integer(NPU_I64, kPlaces - 1));
  const uint16_t away = writer.emit(NPU_OP_SUB, NPU_I64, place, writer.index(rank - 1));
  const auto gathered = [&](Operand from) {
    const int64_t step = from.form.stride[rank - 1];
    const uint16_t at = step == 1 ? away : writer.emit(NPU_OP_MUL, NPU_I64, away, writer.integer(NPU_I64, step));
    from.form.limit = 0;  // SORT has none
    return writer.load_at(from, compute_dtype(from.form.dtype), at);
  };
  const uint16_t key = gathered(keys);
  writer.store(to_payload, payload.immediate() ? place : gathered(payload));
  writer.store(to_keys, key);
  writer.finish("sort_results");
  script.add(map);
  if (in_place(sort.operands[2])) script.add(copy(size, sort.operands[2], to_keys));
  if (in_place(sort.operands[3])) script.add(copy(size, sort.operands[3], to_payload));
}

}  // namespace npu::legalise
