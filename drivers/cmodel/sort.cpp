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

// Keys of a row. The usual type has a loop of its own, without branches.
void keys_of(uint64_t* out, const char* keys, int64_t step, int dtype, uint64_t flip, int64_t n) {
  if (dtype == NPU_F32 && step == sizeof(float)) {
    for (int64_t i = 0; i < n; ++i) {
      uint32_t bits;
      std::memcpy(&bits, keys + i * 4, sizeof bits);
      bits = bits == 0x80000000u ? 0 : bits;
      const uint32_t down = ~bits, up = bits | 0x80000000u;
      const uint32_t ordered = bits & 0x80000000u ? down : up;
      out[i] = ((bits & 0x7fffffffu) > 0x7f800000u ? 0xffffffffu : ordered) ^ flip;
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = key_of(keys + i * step, dtype) ^ flip;
}

// The first `count` of n in order, a small part of them. Most keys are only compared with the worst of the best so far.
void select(std::vector<Pair>& best, const uint64_t* keys, int64_t n, int64_t count) {
  auto before = [](const Pair& a, const Pair& b) { return a.key != b.key ? a.key < b.key : a.at < b.at; };
  const size_t most = static_cast<size_t>(4 * count + 64);
  best.clear();
  uint64_t worst = ~uint64_t{0};
  bool full = false;  // `worst` is known
  auto shrink = [&] {
    std::nth_element(best.begin(), best.begin() + (count - 1), best.end(), before);
    best.resize(static_cast<size_t>(count));
    worst = best.back().key;
    full = true;
  };
  constexpr int64_t kStep = 32;
  for (int64_t i = 0; i < n; i += kStep) {
    const int64_t end = std::min(n, i + kStep);
    if (full) {
      int any = 0;
      for (int64_t k = i; k < end; ++k) any |= keys[k] < worst;
      if (!any) continue;
    }
    for (int64_t k = i; k < end; ++k) {
      if (full && keys[k] >= worst) continue;  // of equals, the first stay
      best.push_back({keys[k], static_cast<uint64_t>(k)});
      if (best.size() == most) shrink();
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
      ordered.resize(static_cast<size_t>(n));
      keys_of(ordered.data(), keys, key_step, key_type, flip, n);
      if (count < n / 8) {
        select(pairs, ordered.data(), n, count);
      } else {
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
