// Register tiles of packed products and the packing that feeds them, built once per instruction set and chosen at run
// time. Packed operands consist of 32-bit words: one f32, or two bf16 or 16-bit integers or four bytes that are
// neighbours along k, which is what dot product instructions read.
#pragma once
#include <cstdint>

namespace cmodel::product {

struct Micro {
  int rows, cols;  // of the largest register tile
  int depth;       // elements of k in one word
  // c[rows, cols] (+)= sum over words of a[word][rows] * b[word][width], where `width` (of a packed strip of B) is cols
  // rounded up to half or all of `this->cols`. c is f32, or for integers i32, which wraps.
  void (*tile)(int64_t words, const uint32_t* a, const uint32_t* b, void* c, int64_t ldc, int64_t rows, int64_t cols,
               bool accumulate);
  // The same with rows of A where they lie, `bytes` apart, their words one after the other.
  void (*loose)(int64_t words, const void* a, int64_t bytes, const uint32_t* b, void* c, int64_t ldc, int64_t rows,
                int64_t cols, bool accumulate);
  // The same as `tile` with B where it lies: the two halves of word p of its strip at b0 + offset[p] and b1 +
  // offset[p].
  void (*halves)(int64_t words, const uint32_t* a, const uint32_t* b0, const uint32_t* b1, const int64_t* offset,
                 void* c, int64_t ldc, int64_t rows, int64_t cols, bool accumulate);
  // Products with B in strips of up to `span` columns, whole vectors of them, and at most `span_rows` rows of A where
  // they lie. `points`: element (row, word p) of A at a[offset[p] + row]; `lines`: words come in `count` lines of
  // `length`, and element (row, word p of line y) is at a[start[y] + offset[row] + p]. nullptr: not of these words.
  int span, span_rows;
  void (*points)(int64_t words, const uint32_t* a, const int64_t* offset, const uint32_t* b, void* c, int64_t ldc,
                 int64_t rows, int64_t cols, bool accumulate);
  void (*lines)(int64_t count, int64_t length, const uint32_t* a, const int64_t* start, const int64_t* offset,
                const uint32_t* b, void* c, int64_t ldc, int64_t rows, int64_t cols, bool accumulate);
  // Packing: to[word * strip + line] for `lines` lines (at most strip) and `k` elements of each. `deep`: k runs along
  // memory and lines are `step` elements apart; `deep_at`: line i begins at from[offset[i]]. `wide`: lines are
  // neighbours in memory and k steps by `step`; `every_second`: with one between them. `taps`: as `wide`, but element p
  // of k begins at from[offset[p]]. An odd k is filled up with zero.
  void (*deep)(const void* from, int64_t step, int64_t lines, int64_t k, int64_t strip, uint32_t* to);
  void (*deep_at)(const void* from, const int64_t* offset, int64_t lines, int64_t k, int64_t strip, uint32_t* to);
  void (*wide)(const void* from, int64_t step, int64_t lines, int64_t k, int64_t strip, uint32_t* to);
  void (*every_second)(const void* from, int64_t step, int64_t lines, int64_t k, int64_t strip, uint32_t* to);
  void (*taps)(const void* from, const int64_t* offset, int64_t lines, int64_t k, int64_t strip, uint32_t* to);

  int64_t words(int64_t k) const { return (k + depth - 1) / depth; }
};

namespace base {
extern const Micro micro_f32;
}
namespace avx2 {
extern const Micro micro_f32;
}
namespace avx512 {
extern const Micro micro_f32;
}
namespace avx512bf16 {
extern const Micro micro_bf16;
}
namespace avx512vnni {
extern const Micro micro_i16;
}
namespace avx512vnni_bytes {
extern const Micro micro_i8;
}

// The best that this processor has. Words of several elements need instructions of their own: nullptr without.
const Micro& micro_f32();
const Micro* micro_bf16();
const Micro* micro_i16();
const Micro* micro_i8();

}  // namespace cmodel::product
