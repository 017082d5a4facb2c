// Storage types that a chip does not take.
#include <bit>

#include "support/legalise/draft/addressing.h"
#include "support/legalise/rules/parts.h"
#include "support/legalise/rules/through.h"
#include "support/legalise/rules/words.h"

namespace npu::legalise {
namespace {

bool is_product(const Draft& draft) {
  return draft.command.kind == NPU_MATMUL || draft.command.kind == NPU_CONV;
}

// How a program reaches an operand whose type is not kept.
struct Held {
  bool wanted = false;
  Words words;
  Aligned aligned;            // where several elements lie in a word
  Operand scratch;            // where such elements are written: one word for each, to be packed behind the command
  std::vector<int64_t> size;  // of it
};

class Conversion {
 public:
  Conversion(const Draft& refused, Types kept, Script& script)
      : refused_(refused), kept_(kept), script_(script), uses_(uses_of(refused)), held_(uses_.size()) {}

  // False: it does not fit.
  bool prepare() {
    bool any = false;
    for (size_t k = is_product(refused_) ? 2 : 0; k < held_.size(); ++k) {
      if ((kept_ >> refused_.operands[k].form.dtype & 1) || !(uses_[k].read || uses_[k].written)) continue;
      if (!prepare(k)) return false;
      any = true;
    }
    return any && modes_fit();
  }

  bool write() {
    for (size_t k = 0; k < held_.size(); ++k)
      if (held_[k].wanted && held_[k].words.per_word > 1 && uses_[k].written && uses_[k].partly && !unpack(k))
        return false;
    Draft target = refused_;
    target.operands.clear();
    if (is_product(refused_)) target.operands = {refused_.operands[0], refused_.operands[1]};
    target.params.clear();
    Addressing addressing(refused_);
    rewrite(refused_, target, [&](Writer& writer, uint16_t id, const npu_instr& in) {
      const bool load = in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT;
      const bool store = in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT;
      if ((!load && !store) || !held_[in.imm].wanted) return false;
      if (load)
        writer.provide(id, loaded(writer, addressing, id, in));
      else
        stored(writer, in);
      return true;
    });
    script_.add(target);
    for (size_t k = 0; k < held_.size(); ++k)
      if (held_[k].wanted && held_[k].words.per_word > 1 && uses_[k].written &&
          !pack(held_[k].words, held_[k].size, held_[k].scratch, refused_.operands[k], script_))
        return false;
    return true;
  }

 private:
  bool prepare(size_t k) {
    const Operand& operand = refused_.operands[k];
    Held& held = held_[k];
    held.wanted = true;
    if (!Words::find(operand.form.dtype, kept_, &held.words)) return false;
    if (held.words.per_word == 1 || operand.immediate()) return true;
    if (uses_[k].read && !align(held.words, operand, script_, &held.aligned)) return false;
    if (!uses_[k].written) return true;
    // What is written lies elsewhere until the command is done.
    if (uses_[k].computed || seen_again(k)) return false;
    held.size = uses_[k].size;
    for (size_t d = 0; d < held.size.size(); ++d)
      if (operand.form.stride[d] == 0) held.size[d] = 1;
    held.scratch = script_.scratch(held.words.word, held.size);
    for (size_t d = 0; d < held.size.size(); ++d)
      if (held.size[d] == 1) held.scratch.form.stride[d] = 0;
    return true;
  }

  // A later segment sees what an earlier one has stored; and two operands that are one must stay one.
  bool seen_again(size_t k) const {
    const bool segments = refused_.command.kind == NPU_REDUCE || refused_.command.kind == NPU_SCAN;
    for (size_t other = 0; other < uses_.size(); ++other) {
      if (other != k && !script_.same_memory(refused_.operands[k], refused_.operands[other])) continue;
      if ((segments && uses_[other].read) || (other != k && uses_[other].written)) return true;
    }
    return false;
  }

  // Of what meets the value in memory, bits are not enough.
  bool modes_fit() const {
    for (const npu_instr& in : refused_.program->instrs)
      if (in.op == NPU_OP_STORE_AT && held_[in.imm].wanted && in.flags != NPU_STORE_SET) return false;
    return true;
  }

  // The scratch has what is in memory, because not every element is written.
  bool unpack(size_t k) {
    Draft map(NPU_MAP, held_[k].size);
    const Draft nothing;
    Writer writer(nothing, map);
    const Words& words = held_[k].words;
    Operand from = refused_.operands[k];
    for (size_t d = 0; d < held_[k].size.size(); ++d)
      if (held_[k].size[d] == 1) from.form.stride[d] = 0;
    const uint16_t value = writer.load(from, compute_dtype(words.type));
    writer.store(held_[k].scratch, words.bits_word(writer, words.to_bits(writer, value)));
    writer.finish("unpack");
    Conversion conversion(map, kept_, script_);
    return conversion.prepare() && conversion.write();
  }

  static uint16_t scaled(Writer& writer, uint16_t offset, int64_t by) {
    return by == 1 ? offset : writer.emit(NPU_OP_MUL, NPU_I64, offset, writer.integer(NPU_I64, by));
  }

  uint16_t loaded(Writer& writer, Addressing& addressing, uint16_t id, const npu_instr& in) const {
    const Held& held = held_[in.imm];
    const Words& words = held.words;
    const Operand& operand = refused_.operands[in.imm];
    const int word = compute_dtype(words.word);
    const bool computed = in.op == NPU_OP_LOAD_AT;
    const uint16_t mask = writer.value(in.mask);
    if (words.per_word > 1 && !operand.immediate()) {
      const std::vector<int64_t> strides(operand.form.stride, operand.form.stride + refused_.command.rank);
      const uint16_t e = addressing.offset(writer, id, computed ? writer.value(in.a) : uint16_t{NPU_NO_VALUE}, strides,
                                           held.aligned.shift);
      return words.to_value(writer, element_of(writer, held, e, mask), in.dtype);
    }
    const auto part = [&](int number) {
      const Operand view = words.view(operand, number);
      const uint16_t value =
          computed ? writer.load_at(view, word, scaled(writer, writer.value(in.a), words.per_element), mask)
                   : writer.load(view, word, mask);
      return words.word_bits(writer, value);
    };
    uint16_t bits = part(0);
    if (words.per_element == 2) {
      const uint16_t low = writer.emit(NPU_OP_AND, NPU_I64, bits, writer.integer(NPU_I64, 0xffffffff));
      const uint16_t high = writer.emit(NPU_OP_SHL, NPU_I64, part(1), writer.integer(NPU_I64, 32));
      bits = writer.emit(NPU_OP_OR, NPU_I64, low, high);
    }
    return words.to_value(writer, bits, in.dtype);
  }

  // The bits of element `e` behind the aligned address; above them is what follows.
  static uint16_t element_of(Writer& writer, const Held& held, uint16_t e, uint16_t mask) {
    const Words& words = held.words;
    const int type = words.bits_type();
    const auto wide = [&](npu_op op, uint16_t a, int64_t b) {
      return writer.emit(op, NPU_I64, a, writer.integer(NPU_I64, b));
    };
    const uint16_t at = wide(NPU_OP_SHR, e, std::countr_zero(static_cast<unsigned>(words.per_word)));
    uint16_t shift = wide(NPU_OP_MUL, wide(NPU_OP_AND, e, words.per_word - 1), 8 * words.width());
    if (type != NPU_I64) shift = writer.emit(NPU_OP_CAST, type, shift, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE);
    const uint16_t word = writer.load_at(held.aligned.base, compute_dtype(words.word), at, mask);
    return writer.emit(NPU_OP_SHR, type, words.word_bits(writer, word), shift);
  }

  void stored(Writer& writer, const npu_instr& in) const {
    const Held& held = held_[in.imm];
    const Words& words = held.words;
    const uint16_t mask = writer.value(in.mask);
    uint16_t bits = words.to_bits(writer, writer.value(in.a));
    if (words.per_word > 1) return writer.store(held.scratch, words.bits_word(writer, bits), mask);
    for (int part = 0; part < words.per_element; ++part) {
      if (part) bits = writer.emit(NPU_OP_SHR, NPU_I64, bits, writer.integer(NPU_I64, 32));
      const Operand view = words.view(refused_.operands[in.imm], part);
      const uint16_t word = words.bits_word(writer, bits);
      if (in.op == NPU_OP_STORE)
        writer.store(view, word, mask);
      else
        writer.emit(NPU_OP_STORE_AT, NPU_DTYPE_NONE, word, scaled(writer, writer.value(in.b), words.per_element),
                    NPU_NO_VALUE, writer.operand(view), mask, in.flags);
    }
  }

  const Draft& refused_;
  const Types kept_;
  Script& script_;
  const std::vector<Use> uses_;
  std::vector<Held> held_;
};

template <Types kept>
bool as_words(const Draft& refused, Script& script) {
  if (!refused.program) return false;
  Conversion conversion(refused, kept, script);
  return conversion.prepare() && conversion.write();
}

// The type that has every value of a narrower one.
int wider(int type) {
  const int compute = compute_dtype(type);
  return type == compute && type != NPU_BOOL ? -1 : compute == NPU_BOOL ? NPU_I32 : compute;
}

// The widest type that keeps a type's values, for who takes few.
int widest(int type) {
  const int compute = compute_dtype(type);
  return compute == NPU_BOOL || compute == NPU_I32 ? int{NPU_I64} : wider(type);
}

// A table of known length that is scattered to. False: other operands lie in it.
bool widen_table(const Draft& refused, size_t k, int type, Draft& command, Script& script, std::vector<Draft>& behind) {
  const Operand& table = refused.operands[k];
  for (size_t other = 0; other < refused.operands.size(); ++other)
    if (other != k && script.same_memory(table, refused.operands[other])) return false;
  const std::vector<int64_t> size = {table.form.limit};
  Operand memory = table, held = script.scratch(type, size);
  set_strides(memory.form, {1});
  memory.form.limit = 0;
  script.add(copy(size, held, memory));
  behind.push_back(copy(size, memory, held));
  set_strides(held.form, {});
  held.form.limit = table.form.limit;
  command.operands[k] = held;
  return true;
}

// max and min of a narrow integer and one that does not fit into it would be another than that of what it wraps to.
bool fits_table(const Draft& refused, const npu_instr& store) {
  const int type = refused.operands[store.imm].form.dtype;
  if (store.flags != NPU_STORE_MAX && store.flags != NPU_STORE_MIN) return true;
  const int compute = compute_dtype(type);
  if (compute == NPU_F32 || compute == NPU_BOOL) return true;
  const npu_instr& value = refused.program->instrs[store.a];
  const bool load = value.op == NPU_OP_LOAD || value.op == NPU_OP_LOAD_AT;
  return load && refused.operands[value.imm].form.dtype == type;
}

bool tables_as(const Draft& refused, Script& script, int (*wide)(int)) {
  Draft command = refused;
  std::vector<Draft> behind;
  for (const npu_instr& in : refused.program->instrs) {
    if (in.op != NPU_OP_STORE_AT) continue;
    const Operand& table = refused.operands[in.imm];
    const int type = wide(table.form.dtype);
    if (type < 0) continue;
    const bool known = table.form.limit > 0 && is_dense(table, refused.size(), true);
    for (const int64_t stride : table.form.stride)
      if (stride) return false;
    if (!known || !fits_table(refused, in)) return false;
    if (command.operands[in.imm].place == table.place && !widen_table(refused, in.imm, type, command, script, behind))
      return false;
  }
  if (behind.empty()) return false;
  script.add(command);
  for (Draft& draft : behind) script.add(std::move(draft));
  return true;
}

bool wide_tables(const Draft& refused, Script& script) {
  return tables_as(refused, script, wider);
}
bool widest_tables(const Draft& refused, Script& script) {
  return tables_as(refused, script, widest);
}

// Operands that the command reads and writes itself, not its program.
template <class Wide>
bool operands_as(const Draft& refused, Script& script, Wide wide) {
  const std::vector<Use> uses = uses_of(refused);
  Copies copies(uses.size(), -1);
  bool any = false;
  Draft source = refused;
  const size_t own = refused.command.kind == NPU_SORT ? 4 : refused.program ? 2 : 3;
  for (size_t k = 0; k < uses.size() && k < own; ++k) {
    const int type = wide(refused.operands[k].form.dtype);
    if (type < 0) continue;
    any = true;
    if (!refused.operands[k].immediate())
      copies[k] = type;
    else if (refused.command.kind == NPU_SORT)
      source.operands[k].form.dtype = static_cast<uint8_t>(type);  // it stands for numbers, not for its value
    else
      return false;
  }
  return any && through_copies(source, copies, false, script);
}

bool wide_operands(const Draft& refused, Script& script) {
  return operands_as(refused, script, wider);
}
bool widest_operands(const Draft& refused, Script& script) {
  return operands_as(refused, script, widest);
}
bool accumulated_operands(const Draft& refused, Script& script) {
  const npu_command& command = refused.command;
  const int acc = command.kind == NPU_MATMUL ? command.u.matmul.acc_dtype : command.u.conv.acc_dtype;
  return operands_as(refused, script, [&](int type) { return type == acc ? -1 : acc; });
}

// SORT moves numbers of keys; the payload is picked by them.
bool payload_by_number(const Draft& refused, Script& script) {
  const int64_t keys = refused.command.size[refused.command.rank - 1];
  if (keys >= int64_t{1} << 31) return false;
  const Operand &payload = refused.operands[1], &result = refused.operands[3];
  if (payload.immediate() && result.form.dtype == NPU_I32) return false;
  // The payload is read once the keys are written, and perhaps in another order.
  if (script.same_memory(payload, refused.operands[2]) || script.same_memory(payload, result)) return false;
  std::vector<int64_t> size = refused.size();
  size.back() = refused.command.u.sort.count;
  const Operand numbers = script.scratch(NPU_I32, size);
  Draft sort = refused;
  sort.operands[1] = Operand{};
  sort.operands[1].form.dtype = NPU_I32;
  sort.operands[1].form.flags = NPU_OPERAND_IMMEDIATE;
  sort.operands[1].place.kind = Place::kLiteral;
  sort.operands[3] = numbers;
  script.add(sort);
  Draft map(NPU_MAP, size);
  const Draft nothing;
  Writer writer(nothing, map);
  uint16_t value = writer.load(numbers, NPU_I64);
  if (!payload.immediate()) {
    Operand row = payload;
    row.form.stride[refused.command.rank - 1] = 0;
    row.form.limit = 0;
    const int64_t stride = payload.form.stride[refused.command.rank - 1];
    const uint16_t offset = writer.emit(NPU_OP_MUL, NPU_I64, value, writer.integer(NPU_I64, stride));
    value = writer.load_at(row, compute_dtype(payload.form.dtype), offset);
  }
  writer.store(result, value);
  writer.finish("payload");
  script.add(map);
  return true;
}

constexpr uint32_t kPrograms = kAnyKind & ~for_kind(NPU_COPY) & ~for_kind(NPU_SORT);
constexpr Types kIntegers = types(NPU_U8, NPU_I8, NPU_I16, NPU_I32, NPU_I64);
constexpr Types kFloats = types(NPU_F32, NPU_F64);
constexpr Types kBool = types(NPU_BOOL);

// Each says what it leaves as it is; it finds its words among that.
constexpr Rule words(const char* name, bool (*make)(const Draft&, Script&), Price price) {
  return {
      .name = name,
      .why = "the bits of an element are bits of words; loads and stores take them apart as conversions define them",
      .price = price,
      .kinds = kPrograms,
      .repeats = false,
      .make = make};
}

constexpr Rule kRules[] = {
    words("unsigned and 16-bit floats by integers", as_words<kIntegers | kFloats | kBool>, Price::kPass),
    {.name = "wide tables",
     .why = "a type that has all values of a narrower one adds and compares as it does; what it narrows to is the same",
     .price = Price::kPass,
     .kinds = for_kind(NPU_SCATTER),
     .repeats = false,
     .make = wide_tables},
    {.name = "widest tables",
     .why = "i64 has the values of every narrower integer",
     .price = Price::kPass,
     .kinds = for_kind(NPU_SCATTER),
     .repeats = false,
     .make = widest_tables},
    {.name = "wide operands",
     .why = "products and SORT convert to and from the type that has all values; a COPY does the same",
     .price = Price::kPass,
     .kinds = kProducts | for_kind(NPU_SORT),
     .repeats = false,
     .make = wide_operands},
    {.name = "operands of the sum's type",
     .why = "a product converts its operands to the type in which it adds, and its result from that",
     .price = Price::kPass,
     .kinds = kProducts,
     .repeats = false,
     .make = accumulated_operands},
    {.name = "widest operands",
     .why = "i64 has the values of every narrower integer; what a product or SORT converts to is the same",
     .price = Price::kPass,
     .kinds = kProducts | for_kind(NPU_SORT),
     .repeats = false,
     .make = widest_operands},
    {.name = "payload by number",
     .why = "a key's number says which payload was beside it",
     .price = Price::kPass,
     .kinds = for_kind(NPU_SORT),
     .repeats = false,
     .make = payload_by_number},
    words("no 64 bits: by halves",
          as_words<types(NPU_BOOL, NPU_U8, NPU_I8, NPU_I16, NPU_I32, NPU_F16, NPU_BF16, NPU_F32)>, Price::kPass),
    words("no 16 bits: by words", as_words<types(NPU_U8, NPU_I8, NPU_I32, NPU_I64) | kFloats | kBool>, Price::kPasses),
    words("words of 32 and 64 bits, and bool", as_words<types(NPU_I32, NPU_I64) | kFloats | kBool>, Price::kPasses),
    words("words of 32 bits and bytes", as_words<types(NPU_U8, NPU_I8, NPU_I32, NPU_F32) | kBool>, Price::kPasses),
    words("words of i32, f32 and bool", as_words<types(NPU_I32, NPU_F32) | kBool>, Price::kPasses),
    words("words of f32, i64 and bool", as_words<types(NPU_F32, NPU_I64) | kBool>, Price::kPasses),
    words("words of i32 and f32", as_words<types(NPU_I32, NPU_F32)>, Price::kPasses),
    words("words of f32", as_words<types(NPU_F32)>, Price::kPasses),
    words("words of i32", as_words<types(NPU_I32)>, Price::kPasses),
};

}  // namespace

const std::span<const Rule> type_rules = kRules;

}  // namespace npu::legalise
