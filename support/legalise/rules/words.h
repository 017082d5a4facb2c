// Memory seen as words: elements of a type that a chip does not store, by types that it does.
//
//   same width    the bits of one element are those of a word:   u32 by i32, bf16 by i16
//   narrower      an element is several words, low ones first:   f64 by two i32
//   wider         a word holds several elements:                 four i8 in an i32
#pragma once
#include "support/legalise/draft/draft.h"
#include "support/legalise/draft/uses.h"
#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/rule.h"

namespace npu::legalise {

// Storage types, a bit for each.
using Types = uint32_t;
template <class... Each>
constexpr Types types(Each... each) {
  return ((1u << each) | ...);
}

// How elements of `type` lie in words of `word`.
struct Words {
  int type = 0, word = 0;
  int per_element = 1;  // words
  int per_word = 1;     // elements

  // The way through `kept`, which do not have `type`. False: there is none.
  static bool find(int type, Types kept, Words* out);

  int64_t width() const { return dtype_size(type); }
  // Of the bits that a program handles: i32, or i64 where a word or an element has 8 bytes.
  int bits_type() const;

  // An element's bits as a value of `type`'s compute type, converted to `to`; and a value as bits.
  uint16_t to_value(Writer& writer, uint16_t bits, int to) const;
  uint16_t to_bits(Writer& writer, uint16_t value) const;
  // A word of memory as bits, and bits as what is stored in one.
  uint16_t word_bits(Writer& writer, uint16_t word_value) const;
  uint16_t bits_word(Writer& writer, uint16_t bits) const;

  // The operand with a stride of words; `part` of an element's words. Not where a word holds several elements.
  Operand view(const Operand& operand, int part = 0) const;
};

// A command that writes elements (`from`: one word for each, over `size`) to where they belong. False: they lie in no
// order in which those of a word can be found.
bool pack(const Words& words, const std::vector<int64_t>& size, const Operand& from, const Operand& to, Script& script);
// What is behind the word that an operand's first element lies in: the word, and the elements before it.
struct Aligned {
  Operand base;  // as words, without strides
  int64_t shift = 0;
};
// False: elements do not lie at multiples of their width.
bool align(const Words& words, const Operand& operand, Script& script, Aligned* out);

}  // namespace npu::legalise
