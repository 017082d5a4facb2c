// Orders words of a key and its position: the key is the upper half, so words are ordered by key and, among equal keys,
// by position. No two are equal.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "drivers/cmodel/engine/sort_keys.h"

namespace cmodel {

__extension__ typedef unsigned __int128 Wide;  // of a key of 64 bits; shorter ones fit in a uint64_t

template <class Word>
constexpr int kKeyShift = 4 * sizeof(Word);

template <class Word>
Word word_of(uint64_t key, int64_t at) {
  return static_cast<Word>(key) << kKeyShift<Word> | static_cast<Word>(at);
}
template <class Word>
int64_t position_of(Word word) {
  return static_cast<int64_t>(word & ((Word{1} << kKeyShift<Word>)-1));
}

// Four words, by a network that takes no branches.
template <class Word>
void sort_four(Word* w) {
  const auto order = [](Word& a, Word& b) {
    const Word low = std::min(a, b), high = std::max(a, b);
    a = low;
    b = high;
  };
  order(w[0], w[1]);
  order(w[2], w[3]);
  order(w[0], w[2]);
  order(w[1], w[3]);
  order(w[1], w[2]);
}

// Two runs of `n` words each, from both ends at once: neither end can run out, and one does not wait for the other.
template <class Word>
void merge_halves(const Word* from, Word* to, int64_t n) {
  const Word *a = from, *b = from + n, *a_last = b - 1, *b_last = b + n - 1;
  Word* last = to + 2 * n - 1;
  for (int64_t i = 0; i < n; ++i) {
    const bool second = *b < *a;
    *to++ = second ? *b : *a;
    b += second;
    a += !second;
    const bool first = *b_last < *a_last;
    *last-- = first ? *a_last : *b_last;
    a_last -= first;
    b_last -= !first;
  }
}

// The first `n` of two runs that have as many.
template <class Word>
void merge_front(const Word* a, const Word* b, Word* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const bool second = *b < *a;
    to[i] = second ? *b : *a;
    b += second;
    a += !second;
  }
}

// The first `count` in order; behind them anything.
template <class Word>
void merge_sort(std::vector<Word>& words, std::vector<Word>& spare, int64_t count) {
  const int64_t n = static_cast<int64_t>(words.size());
  const int64_t enough = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(count, 4))));
  spare.resize(words.size());
  for (int64_t i = 0; i + 4 <= n; i += 4) sort_four(&words[static_cast<size_t>(i)]);
  std::sort(words.begin() + n / 4 * 4, words.end());
  for (int64_t run = 4; run < n; run *= 2) {
    const Word* from = words.data();
    Word* to = spare.data();
    int64_t i = 0;
    for (; i + 2 * run <= n; i += 2 * run) {
      if (run < enough) {
        merge_halves(from + i, to + i, run);
      } else {
        merge_front(from + i, from + i + run, to + i, enough);
      }
    }
    const int64_t middle = std::min(i + run, n);
    std::merge(from + i, from + std::min(middle, i + enough), from + middle, from + std::min(n, middle + enough),
               to + i);
    words.swap(spare);
  }
}

// By the bytes of the key.
template <class Word>
void radix_sort(std::vector<Word>& words, std::vector<Word>& spare, int bytes) {
  spare.resize(words.size());
  for (int b = 0; b < bytes; ++b) {
    size_t count[257] = {};
    const int shift = kKeyShift<Word> + b * 8;
    for (const Word word : words) ++count[static_cast<size_t>(word >> shift & 255) + 1];
    if (std::find(count + 1, count + 257, words.size()) != count + 257) continue;  // all the same digit
    for (int i = 0; i < 256; ++i) count[i + 1] += count[i];
    for (const Word word : words) spare[count[static_cast<size_t>(word >> shift & 255)]++] = word;
    words.swap(spare);
  }
}

// The first `count` of words that stand in the order of their positions.
template <class Word>
void sort_words(std::vector<Word>& words, std::vector<Word>& spare, int key_bytes, int64_t count) {
  if (words.size() < 512) {
    merge_sort(words, spare, count);
  } else {
    radix_sort(words, spare, key_bytes);
  }
}

// The first `count` of n in order, a small part of them. Most keys are only compared with the worst of the best so far,
// a block of them in the first cache.
template <class Key, class Word>
void select(std::vector<Word>& best, const char* keys, int64_t step, int dtype, uint64_t flip, int64_t n,
            int64_t count) {
  const size_t most = static_cast<size_t>(2 * count + 32);
  best.clear();
  Key worst = static_cast<Key>(~Key{0});
  bool full = false;  // `worst` is known
  auto shrink = [&] {
    std::nth_element(best.begin(), best.begin() + (count - 1), best.end());
    best.resize(static_cast<size_t>(count));
    worst = static_cast<Key>(best.back() >> kKeyShift<Word>);
    full = true;
  };
  constexpr int64_t kStep = 32, kKeys = 16 * kStep;
  Key block[kKeys];
  for (int64_t first = 0; first < n; first += kKeys) {
    const int64_t held = std::min(kKeys, n - first);
    keys_of(block, keys + first * step, step, dtype, flip, held);
    for (int64_t i = 0; i < held; i += kStep) {
      const int64_t end = std::min(held, i + kStep);
      if (full) {
        Key any = 0;
        for (int64_t k = i; k < end; ++k) any |= static_cast<Key>(block[k] < worst);
        if (!any) continue;
      }
      for (int64_t k = i; k < end; ++k) {
        if (full && block[k] >= worst) continue;  // of equals, the first stay
        best.push_back(word_of<Word>(block[k], first + k));
        if (best.size() == most) shrink();
      }
    }
  }
  if (static_cast<int64_t>(best.size()) > count) shrink();
  std::sort(best.begin(), best.end());
}

}  // namespace cmodel
