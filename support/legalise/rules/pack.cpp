// Elements of which several lie in one word, to memory: no two points may write one word.
#include <algorithm>
#include <bit>
#include <numeric>

#include "support/legalise/rules/words.h"

namespace npu::legalise {
namespace {

// A dimension of the elements, outermost first: how far it steps in the operand, and in the scratch.
struct Axis {
  int64_t size = 1, stride = 0, scratch = 0;
};

// Where elements lie, from the lowest on: axes whose strides descend, all positive.
struct Layout {
  std::vector<Axis> axes;
  int64_t low = 0;    // of the lowest element, from the operand's first
  int64_t first = 0;  // of the lowest element, in the scratch
  int64_t range = 1;  // elements from the lowest to the highest
  int64_t elements = 1;
};

// False: the steps of an inner axis reach beyond one of an outer axis.
bool lay_out(const std::vector<int64_t>& size, const Operand& from, const Operand& to, Layout* out) {
  std::vector<Axis>& axes = out->axes;
  for (size_t d = 0; d < size.size(); ++d)
    if (size[d] != 1) axes.push_back({size[d], to.form.stride[d], from.form.stride[d]});
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return std::abs(a.stride) > std::abs(b.stride); });
  for (Axis& axis : axes) {
    if (axis.stride >= 0) continue;
    out->low += axis.stride * (axis.size - 1);
    out->first += axis.scratch * (axis.size - 1);
    axis.stride = -axis.stride;
    axis.scratch = -axis.scratch;
  }
  // Axes that run on in both are one.
  for (size_t k = axes.size(); k-- > 1;) {
    Axis &outer = axes[k - 1], &inner = axes[k];
    if (outer.stride != inner.stride * inner.size || outer.scratch != inner.scratch * inner.size) continue;
    outer = {outer.size * inner.size, inner.stride, inner.scratch};
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(k));
  }
  for (size_t k = axes.size(); k-- > 0;) {
    if (axes[k].stride < out->range) return false;
    out->range += axes[k].stride * (axes[k].size - 1);
    out->elements *= axes[k].size;
  }
  return true;
}

// Instructions on the bits of words.
struct Bits {
  Writer& writer;
  int type;
  uint16_t number(int64_t value) const { return writer.integer(type, value); }
  uint16_t op(npu_op op, uint16_t a, uint16_t b) const { return writer.emit(op, type, a, b); }
};

int64_t ones(const Words& words) {
  return (int64_t{1} << (8 * words.width())) - 1;
}

uint16_t wide(Writer& writer, npu_op op, uint16_t a, int64_t b) {
  return writer.emit(op, NPU_I64, a, writer.integer(NPU_I64, b));
}

// The scratch's offset of element `e` of the range, and whether there is one.
uint16_t find(Writer& writer, const Layout& layout, uint16_t e, uint16_t* valid) {
  const auto both = [&](uint16_t condition) { *valid = writer.emit(NPU_OP_AND, NPU_BOOL, *valid, condition); };
  const auto compare = [&](npu_op op, uint16_t a, int64_t b) {
    return writer.emit(op, NPU_BOOL, a, writer.integer(NPU_I64, b));
  };
  *valid = compare(NPU_OP_GE, e, 0);
  both(compare(NPU_OP_LT, e, layout.range));
  uint16_t at = writer.integer(NPU_I64, layout.first), rest = e;
  int64_t room = layout.range;
  for (const Axis& axis : layout.axes) {
    uint16_t coordinate = rest;
    if (axis.stride != 1) {
      coordinate = wide(writer, NPU_OP_DIV, rest, axis.stride);
      rest = wide(writer, NPU_OP_MOD, rest, axis.stride);
    }
    if ((room - 1) / axis.stride >= axis.size) both(compare(NPU_OP_LT, coordinate, axis.size));
    room = axis.stride;
    at = writer.emit(NPU_OP_ADD, NPU_I64, at, wide(writer, NPU_OP_MUL, coordinate, axis.scratch));
  }
  if (room > 1 && !layout.axes.empty()) both(compare(NPU_OP_EQ, rest, 0));
  return at;
}

// One point for each word that the elements lie in; bytes between them stay as they are.
void by_word(const Words& words, const Layout& layout, const Operand& from, const Aligned& lowest, Script& script) {
  const int64_t count = (lowest.shift + layout.range + words.per_word - 1) / words.per_word;
  Draft map(NPU_MAP, {count});
  const Draft nothing;
  Writer writer(nothing, map);
  Operand memory = lowest.base, held = from;
  set_strides(memory.form, {1});
  set_strides(held.form, {});
  const Bits bits{writer, words.bits_type()};
  const uint16_t old = words.word_bits(writer, writer.load(memory, compute_dtype(words.word)));
  const uint16_t first = wide(writer, NPU_OP_MUL, writer.index(0), words.per_word);
  uint16_t result = bits.number(0);
  for (int k = 0; k < words.per_word; ++k) {
    const uint16_t e = wide(writer, NPU_OP_ADD, first, k - lowest.shift);
    uint16_t valid = NPU_NO_VALUE;
    const uint16_t at = find(writer, layout, e, &valid);
    const int64_t shift = 8 * words.width() * k;
    const uint16_t raw = words.word_bits(writer, writer.load_at(held, compute_dtype(words.word), at, valid));
    const uint16_t fresh = bits.op(NPU_OP_SHL, bits.op(NPU_OP_AND, raw, bits.number(ones(words))), bits.number(shift));
    const uint16_t kept =
        bits.op(NPU_OP_AND, old, bits.number(static_cast<int64_t>(static_cast<uint64_t>(ones(words)) << shift)));
    result = bits.op(NPU_OP_OR, result, writer.emit(NPU_OP_WHERE, bits.type, valid, fresh, kept));
  }
  writer.store(memory, words.bits_word(writer, result));
  writer.finish("pack");
  script.add(map);
}

// One point for each element, where no two lie in one word.
void by_element(const Words& words, const Layout& layout, const Operand& from, const Aligned& lowest, Script& script) {
  std::vector<int64_t> size, strides;
  for (const Axis& axis : layout.axes) {
    size.push_back(axis.size);
    strides.push_back(axis.scratch);
  }
  Draft scatter(NPU_SCATTER, size);
  const Draft nothing;
  Writer writer(nothing, scatter);
  Operand held = from.moved(layout.first);
  set_strides(held.form, strides);
  uint16_t e = writer.integer(NPU_I64, lowest.shift);
  for (size_t d = 0; d < layout.axes.size(); ++d)
    e = writer.emit(NPU_OP_ADD, NPU_I64, e,
                    wide(writer, NPU_OP_MUL, writer.index(static_cast<int>(d)), layout.axes[d].stride));
  const uint16_t word = wide(writer, NPU_OP_SHR, e, std::countr_zero(static_cast<unsigned>(words.per_word)));
  const Bits bits{writer, words.bits_type()};
  uint16_t shift = wide(writer, NPU_OP_MUL, wide(writer, NPU_OP_AND, e, words.per_word - 1), 8 * words.width());
  if (bits.type != NPU_I64)
    shift = writer.emit(NPU_OP_CAST, bits.type, shift, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE);
  const uint16_t old = words.word_bits(writer, writer.load_at(lowest.base, compute_dtype(words.word), word));
  const uint16_t raw = words.word_bits(writer, writer.load(held, compute_dtype(words.word)));
  const uint16_t mask = bits.op(NPU_OP_SHL, bits.number(ones(words)), shift);
  const uint16_t kept = bits.op(NPU_OP_AND, old, writer.emit(NPU_OP_NOT, bits.type, mask));
  const uint16_t fresh = bits.op(NPU_OP_AND, bits.op(NPU_OP_SHL, raw, shift), mask);
  const uint16_t result = words.bits_word(writer, bits.op(NPU_OP_OR, kept, fresh));
  writer.emit(NPU_OP_STORE_AT, NPU_DTYPE_NONE, result, word, NPU_NO_VALUE, writer.operand(lowest.base), NPU_NO_VALUE,
              NPU_STORE_SET);
  writer.finish("pack");
  script.add(scatter);
}

}  // namespace

bool pack(const Words& words, const std::vector<int64_t>& size, const Operand& from, const Operand& to,
          Script& script) {
  Layout layout;
  if (std::find(size.begin(), size.end(), 0) != size.end()) return true;
  Aligned lowest;
  if (!lay_out(size, from, to, &layout) || !align(words, to.moved(layout.low), script, &lowest)) return false;
  // Elements so far apart that most words between them hold none.
  constexpr int64_t kSparse = 4;  // words per element
  const bool sparse = layout.range / words.per_word > kSparse * layout.elements;
  const bool apart = layout.axes.empty() || layout.axes.back().stride >= words.per_word;
  if (sparse && apart)
    by_element(words, layout, from, lowest, script);
  else
    by_word(words, layout, from, lowest, script);
  return true;
}

}  // namespace npu::legalise
