// SORT: keys become unsigned integers whose order is the order asked for; a stable radix sort (long rows) or merge sort
// (short ones) orders (key, position) pairs. Always stable, which is one of the orders an unstable sort may give.
#include <algorithm>
#include <cstring>
#include <vector>

#include "drivers/cmodel/exec.h"
#include "drivers/cmodel/pool.h"
#include "support/program.h"

namespace cmodel {
namespace {

struct Pair {
  uint64_t key;
  uint64_t at;
};

// Floats: NaNs are one value above infinity and -0 equals 0, as in a comparison.
uint64_t real_key(uint64_t bits, uint64_t sign, uint64_t infinity, uint64_t all) {
  if ((bits & ~sign) > infinity) return all;
  if (bits == sign) bits = 0;
  return bits & sign ? ~bits & all : bits | sign;
}

uint64_t key_of(const char* p, int dtype) {
  switch (dtype) {
    case NPU_BOOL:
      return *p != 0;
    case NPU_U8:
      return static_cast<uint8_t>(*p);
    case NPU_I8:
      return static_cast<uint8_t>(*p) ^ 0x80u;
    default:
      break;
  }
  uint16_t h;
  uint32_t w;
  uint64_t d;
  std::memcpy(&h, p, sizeof h);
  switch (dtype) {
    case NPU_U16:
      return h;
    case NPU_I16:
      return h ^ 0x8000u;
    case NPU_F16:
      return real_key(h, 0x8000, 0x7c00, 0xffff);
    case NPU_BF16:
      return real_key(h, 0x8000, 0x7f80, 0xffff);
    default:
      break;
  }
  std::memcpy(&w, p, sizeof w);
  switch (dtype) {
    case NPU_U32:
      return w;
    case NPU_I32:
      return w ^ 0x80000000u;
    case NPU_F32:
      return real_key(w, 0x80000000u, 0x7f800000u, 0xffffffffu);
    default:
      break;
  }
  std::memcpy(&d, p, sizeof d);
  if (dtype == NPU_U64) return d;
  if (dtype == NPU_I64) return d ^ (uint64_t{1} << 63);
  return real_key(d, uint64_t{1} << 63, uint64_t{0x7ff} << 52, ~uint64_t{0});
}

// The same without branches, for dense keys of floating type. Bits is the word of one key.
template <class Bits, class Key>
void real_keys(Key* out, const char* keys, Bits infinity, uint64_t flip, int64_t n) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1)), kAll = static_cast<Bits>(~Bits{0});
  for (int64_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, keys + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    bits = bits == kSign ? Bits{0} : bits;
    const Bits down = static_cast<Bits>(~bits), up = static_cast<Bits>(bits | kSign);
    const Bits ordered = bits & kSign ? down : up;
    const Bits key = static_cast<Bits>(bits & ~kSign) > infinity ? kAll : ordered;
    out[i] = static_cast<Bits>(key ^ static_cast<Bits>(flip));
  }
}

template <class Bits, class Key>
void integer_keys(Key* out, const char* keys, uint64_t flip, int64_t n) {
  const Bits change = static_cast<Bits>((Bits{1} << (8 * sizeof(Bits) - 1)) ^ flip);
  for (int64_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, keys + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    out[i] = static_cast<Key>(bits ^ change);
  }
}

// Keys of a row, in words that hold them.
template <class Key>
void keys_of(Key* out, const char* keys, int64_t step, int dtype, uint64_t flip, int64_t n) {
  if (step == npu::dtype_size(dtype)) {
    switch (dtype) {
      case NPU_F32:
        return real_keys<uint32_t>(out, keys, 0x7f800000u, flip, n);
      case NPU_BF16:
        return real_keys<uint16_t>(out, keys, uint16_t{0x7f80}, flip, n);
      case NPU_F16:
        return real_keys<uint16_t>(out, keys, uint16_t{0x7c00}, flip, n);
      case NPU_I32:
        return integer_keys<uint32_t>(out, keys, flip, n);
      case NPU_I64:
        return integer_keys<uint64_t>(out, keys, flip, n);
      default:
        break;
    }
  }
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Key>(key_of(keys + i * step, dtype) ^ flip);
}

// The first `count` of n in order, a small part of them. Most keys are only compared with the worst of the best so far,
// a block of them in the first cache.
template <class Key>
void select(std::vector<Pair>& best, const char* keys, int64_t step, int dtype, uint64_t flip, int64_t n,
            int64_t count) {
  auto before = [](const Pair& a, const Pair& b) { return a.key != b.key ? a.key < b.key : a.at < b.at; };
  const size_t most = static_cast<size_t>(4 * count + 64);
  best.clear();
  Key worst = static_cast<Key>(~Key{0});
  bool full = false;  // `worst` is known
  auto shrink = [&] {
    std::nth_element(best.begin(), best.begin() + (count - 1), best.end(), before);
    best.resize(static_cast<size_t>(count));
    worst = static_cast<Key>(best.back().key);
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
        best.push_back({block[k], static_cast<uint64_t>(first + k)});
        if (best.size() == most) shrink();
      }
    }
  }
  if (static_cast<int64_t>(best.size()) > count) shrink();
  std::sort(best.begin(), best.end(), before);
}

void radix_sort(std::vector<Pair>& pairs, std::vector<Pair>& spare, int bytes) {
  spare.resize(pairs.size());
  for (int b = 0; b < bytes; ++b) {
    size_t count[257] = {};
    const int shift = b * 8;
    for (const Pair& p : pairs) ++count[(p.key >> shift & 255) + 1];
    if (std::find(count + 1, count + 257, pairs.size()) != count + 257) continue;  // all the same digit
    for (int i = 0; i < 256; ++i) count[i + 1] += count[i];
    for (const Pair& p : pairs) spare[count[p.key >> shift & 255]++] = p;
    pairs.swap(spare);
  }
}

void sort_pairs(std::vector<Pair>& pairs, std::vector<Pair>& spare, int bytes) {
  auto before = [](const Pair& a, const Pair& b) { return a.key != b.key ? a.key < b.key : a.at < b.at; };
  const int64_t n = static_cast<int64_t>(pairs.size());
  if (n >= 512) {
    radix_sort(pairs, spare, bytes);
  } else {
    std::sort(pairs.begin(), pairs.end(), before);
  }
}

}  // namespace

bool run_sort(const Job& job, Failure&) {
  const npu_command& command = job.command;
  const int rank = command.rank;
  const int64_t n = command.size[rank - 1], count = command.u.sort.count;
  int64_t rows = 1;
  for (int d = 0; d < rank - 1; ++d) rows *= command.size[d];
  if (rows == 0 || n == 0 || count == 0) return true;
  const Operand* o = job.operands;
  const int key_type = o[0].dtype, key_size = npu::dtype_size(key_type);
  const uint64_t flip =
      command.u.sort.descending ? (key_size == 8 ? ~uint64_t{0} : (uint64_t{1} << key_size * 8) - 1) : 0;
  const Kernels& k = kernels();
  Convert key_out = k.convert[key_type][o[2].dtype];
  const bool counted = o[1].immediate;
  Convert payload_out = k.convert[counted ? int{NPU_I64} : int{o[1].dtype}][o[3].dtype];
  const int payload_size = npu::dtype_size(o[1].dtype), out_key = npu::dtype_size(o[2].dtype),
            out_payload = npu::dtype_size(o[3].dtype);
  parallel_for(rows, std::max<int64_t>(1, 4096 / n), [&](int64_t begin, int64_t end) {
    std::vector<Pair> pairs, spare;
    std::vector<uint64_t> out, ordered;
    for (int64_t row = begin; row < end; ++row) {
      int64_t offset[4] = {}, rest = row;
      for (int d = rank - 2; d >= 0; --d) {
        const int64_t coordinate = rest % command.size[d];
        rest /= command.size[d];
        for (int i = 0; i < 4; ++i) offset[i] += coordinate * o[i].stride[d];
      }
      const char* keys = (o[0].immediate ? reinterpret_cast<const char*>(&o[0].bits) : o[0].ptr) + offset[0] * key_size;
      const int64_t key_step = o[0].stride[rank - 1] * key_size;
      if (count < n / 8) {
        const auto best = key_size > 4 ? select<uint64_t> : select<uint32_t>;
        best(pairs, keys, key_step, key_type, flip, n, count);
      } else {
        ordered.resize(static_cast<size_t>(n));
        keys_of(ordered.data(), keys, key_step, key_type, flip, n);
        pairs.resize(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i)
          pairs[static_cast<size_t>(i)] = {ordered[static_cast<size_t>(i)], static_cast<uint64_t>(i)};
        sort_pairs(pairs, spare, key_size);
      }
      // Results may lie where keys or payload were read: collect before writing.
      out.assign(static_cast<size_t>(2 * count), 0);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = static_cast<int64_t>(pairs[static_cast<size_t>(i)].at);
        key_out(&out[static_cast<size_t>(2 * i)], keys + at * key_step, 1);
        const char* payload = counted ? reinterpret_cast<const char*>(&at)
                                      : o[1].ptr + (offset[1] + at * o[1].stride[rank - 1]) * payload_size;
        payload_out(&out[static_cast<size_t>(2 * i + 1)], payload, 1);
      }
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(o[2].ptr + (offset[2] + i * o[2].stride[rank - 1]) * out_key, &out[static_cast<size_t>(2 * i)],
                    static_cast<size_t>(out_key));
        std::memcpy(o[3].ptr + (offset[3] + i * o[3].stride[rank - 1]) * out_payload,
                    &out[static_cast<size_t>(2 * i + 1)], static_cast<size_t>(out_payload));
      }
    }
  });
  return true;
}

}  // namespace cmodel
