// Values that stand for several points, written out.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "drivers/cmodel/interpreter/tile_place.h"

namespace cmodel {

// Rows of n copies of values that are `stride` elements apart. Writes up to 64 bytes behind the last: slots have room.
inline void repeat_values(void* out, const char* in, int log_size, int64_t stride, int64_t rows, int64_t n) {
  with_bytes(log_size, out, [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    constexpr int64_t kLine = 64 / sizeof(T);
    for (int64_t r = 0; r < rows; ++r, to += n, in += stride * static_cast<int64_t>(sizeof(T))) {
      T value;
      std::memcpy(&value, in, sizeof(T));
      for (int64_t c = 0; c < n; c += kLine)
        for (int64_t k = 0; k < kLine; ++k) to[c + k] = value;
    }
  });
}

// Copies of the first row behind it, until there are `rows`.
inline void repeat_row(char* out, int64_t bytes, int64_t rows) {
  for (int64_t done = 1; done < rows;) {
    const int64_t more = std::min(done, rows - done);
    std::memcpy(out + done * bytes, out, static_cast<size_t>(more * bytes));
    done += more;
  }
}

}  // namespace cmodel
