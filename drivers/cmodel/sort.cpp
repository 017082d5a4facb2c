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

void sort_pairs(std::vector<Pair>& pairs, std::vector<Pair>& spare, int64_t count, int bytes) {
  auto before = [](const Pair& a, const Pair& b) { return a.key != b.key ? a.key < b.key : a.at < b.at; };
  const int64_t n = static_cast<int64_t>(pairs.size());
  if (count < n / 8) {
    std::nth_element(pairs.begin(), pairs.begin() + count, pairs.end(), before);
    std::sort(pairs.begin(), pairs.begin() + count, before);
  } else if (n >= 512) {
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
    std::vector<uint64_t> out;
    for (int64_t row = begin; row < end; ++row) {
      int64_t offset[4] = {}, rest = row;
      for (int d = rank - 2; d >= 0; --d) {
        const int64_t coordinate = rest % command.size[d];
        rest /= command.size[d];
        for (int i = 0; i < 4; ++i) offset[i] += coordinate * o[i].stride[d];
      }
      pairs.resize(static_cast<size_t>(n));
      const char* keys = (o[0].immediate ? reinterpret_cast<const char*>(&o[0].bits) : o[0].ptr) + offset[0] * key_size;
      const int64_t key_step = o[0].stride[rank - 1] * key_size;
      for (int64_t i = 0; i < n; ++i)
        pairs[static_cast<size_t>(i)] = {key_of(keys + i * key_step, key_type) ^ flip, static_cast<uint64_t>(i)};
      sort_pairs(pairs, spare, count, key_size);
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
