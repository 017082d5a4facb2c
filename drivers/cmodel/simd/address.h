// Computed addresses: checks and moves of one row of a tile. Included once per instruction set level, inside that
// level's namespace.

// The largest distance is compared with the span at the end: no branch inside.
inline bool addresses(int64_t* at, int64_t first, const int64_t* offset, bool one_offset, int64_t stride,
                      const char* mask, int64_t lowest, uint64_t span, int64_t n) {
  const uint64_t low = static_cast<uint64_t>(lowest), base = static_cast<uint64_t>(first) - low;
  const uint64_t step = static_cast<uint64_t>(stride), given = static_cast<uint64_t>(*offset);
  uint64_t worst = 0;
  auto fill = [&](auto offset_of, auto keep) {
    for (int64_t c = 0; c < n; ++c) {
      const uint64_t distance = base + static_cast<uint64_t>(c) * step + offset_of(c);
      const uint64_t kept = keep(c) ? distance : 0;
      worst = kept > worst ? kept : worst;
      at[c] = static_cast<int64_t>(kept + low);
    }
  };
  auto same = [&](int64_t) { return given; };
  auto each = [&](int64_t c) { return static_cast<uint64_t>(offset[c]); };
  auto all = [](int64_t) { return true; };
  auto some = [&](int64_t c) { return mask[c] != 0; };
  if (mask)
    one_offset ? fill(same, some) : fill(each, some);
  else
    one_offset ? fill(same, all) : fill(each, all);
  return worst < span;
}

template <class T>
void pick(void* out, const void* memory, const int64_t* at, const char* mask, int64_t n) {
  T* o = static_cast<T*>(out);
  const char* from = static_cast<const char*>(memory);
  auto get = [&](int64_t c) {
    T value;
    __builtin_memcpy(&value, from + at[c] * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  };
  if (mask) {
    for (int64_t c = 0; c < n; ++c) {
      const T value = get(c);
      o[c] = mask[c] ? value : T(0);
    }
    return;
  }
  int64_t c = 0;
  for (; c + 4 <= n; c += 4) {  // four loads in flight before the first store
    const T x = get(c), y = get(c + 1), z = get(c + 2), w = get(c + 3);
    o[c] = x;
    o[c + 1] = y;
    o[c + 2] = z;
    o[c + 3] = w;
  }
  for (; c < n; ++c) o[c] = get(c);
}

// Short pieces of memory without a call: the last part overlaps the one before.
inline void copy_piece(char* out, const char* in, int64_t bytes) {
  if (bytes < 32) {
    __builtin_memcpy(out, in, static_cast<size_t>(bytes));
    return;
  }
  int64_t i = 0;
  for (; i + 64 <= bytes; i += 64) __builtin_memcpy(out + i, in + i, 64);
  if (i == bytes) return;
  if (bytes - i > 32) __builtin_memcpy(out + i, in + i, 32);
  __builtin_memcpy(out + bytes - 32, in + bytes - 32, 32);
}

template <class T>
void pick_rows(void* out, const void* memory, const int64_t* start, int64_t rows, const int64_t* offset, int64_t cols,
               int64_t first, int64_t last) {
  constexpr int64_t kSize = sizeof(T);
  T* o = static_cast<T*>(out);
  for (int64_t r = 0; r < rows; ++r, o += cols) {
    const T* row = static_cast<const T*>(memory) + start[r];
    if (first == last) {
      pick<T>(o, row, offset, nullptr, cols);
      continue;
    }
    for (int64_t c = 0; c < first; ++c) o[c] = row[offset[c]];
    copy_piece(reinterpret_cast<char*>(o + first), reinterpret_cast<const char*>(row + offset[first]),
               (last - first) * kSize);
    for (int64_t c = last; c < cols; ++c) o[c] = row[offset[c]];
  }
}

// Are all n indices, after wrapping, inside [0, size)?
template <class T>
bool check_indices(void* out, const void* in, const void* size, bool wraps, int64_t n) {
  using U = typename UnsignedOf<T>::type;
  const T* index = static_cast<const T*>(in);
  const U s = static_cast<U>(*static_cast<const T*>(size));
  T* o = static_cast<T*>(out);
  U worst = 0;
  for (int64_t k = 0; k < n; ++k) {
    const U given = static_cast<U>(index[k]);
    const U x = wraps && index[k] < 0 ? given + s : given;
    worst = x > worst ? x : worst;
    o[k] = static_cast<T>(x);
  }
  return worst < s && static_cast<T>(s) > 0;
}

inline void set_addresses(Kernels& t) {
  t.addresses = addresses;
  t.pick[0] = pick<uint8_t>;
  t.pick_rows[0] = pick_rows<uint8_t>;
  t.pick[1] = pick<uint16_t>;
  t.pick_rows[1] = pick_rows<uint16_t>;
  t.pick[2] = pick<uint32_t>;
  t.pick_rows[2] = pick_rows<uint32_t>;
  t.pick[3] = pick<uint64_t>;
  t.pick_rows[3] = pick_rows<uint64_t>;
  t.check[0] = check_indices<int32_t>;
  t.check[1] = check_indices<int64_t>;
}
