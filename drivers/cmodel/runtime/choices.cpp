#include "drivers/cmodel/runtime/choices.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "drivers/cmodel/product/gemm.h"
#include "drivers/cmodel/runtime/device.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {
namespace {

// A number is 1 + way * kThreadCounts + which of these. 0: all.
constexpr int kThreads[] = {0, 1, 2, 4};
constexpr int kThreadCounts = 4;

struct Way {
  const char* text;
  Choice choice;
};

using C = Choice;
// The first way of a kind is the engine's own. Numbers are remembered: add at the end.
constexpr Way kMatmul[] = {
    {"", {}},
    {"tile=112x128", {0, C::kTiles, 112, 128}},
    {"tile=112x256", {0, C::kTiles, 112, 256}},
    {"tile=56x512", {0, C::kTiles, 56, 512}},
    {"tile=224x128", {0, C::kTiles, 224, 128}},
    {"tile=224x512", {0, C::kTiles, 224, 512}},
    {"tile=448x64", {0, C::kTiles, 448, 64}},
    {"tile=448x256", {0, C::kTiles, 448, 256}},
    {"turned=no", {0, C::kTiles, 0, 0, C::kNo}},
    {"turned=yes", {0, C::kTiles, 0, 0, C::kYes}},
    {"packed=left", {0, C::kTiles, 0, 0, C::kDecide, C::kYes}},
    {"packed=right", {0, C::kTiles, 0, 0, C::kDecide, C::kNo}},
    {"kernel=tiles", {0, C::kTiles}},
    {"kernel=blas", {0, C::kBlas}},
    {"kernel=vectors", {0, C::kVectors}},
};
constexpr Way kMap[] = {
    {"", {}},
    {"tile=512", {0, C::kAny, 0, 0, C::kDecide, C::kDecide, 512}},
    {"tile=1024", {0, C::kAny, 0, 0, C::kDecide, C::kDecide, 1024}},
    {"tile=2048", {0, C::kAny, 0, 0, C::kDecide, C::kDecide, 2048}},
    {"tile=4096", {0, C::kAny, 0, 0, C::kDecide, C::kDecide, 4096}},
    {"tile=16384", {0, C::kAny, 0, 0, C::kDecide, C::kDecide, 16384}},
};
constexpr Way kOther[] = {{"", {}}};

struct Ways {
  const Way* list;
  int count;
};

Ways ways_of(const npu_command& c) {
  if (c.kind == NPU_MATMUL && c.u.matmul.acc_dtype == NPU_F32) return {kMatmul, std::size(kMatmul)};
  if (c.kind == NPU_MAP) return {kMap, std::size(kMap)};
  return {kOther, std::size(kOther)};
}

// Multiply-adds, or points.
int64_t work_of(const npu_command& c) {
  int64_t work = c.kind == NPU_MATMUL ? std::max<int64_t>(c.u.matmul.k, 1) : 1;
  for (int d = 0; d < c.rank; ++d) work *= c.size[d];
  return work;
}

bool fits(const npu_command& c, const Choice& way) {
  if (c.kind != NPU_MATMUL) return true;
  const int64_t m = c.size[c.rank - 2], n = c.size[c.rank - 1];
  if (way.kernel == Choice::kBlas) {  // of other types it would convert copies first
    return blas::have_openblas() && c.operands[0].dtype == NPU_F32 && c.operands[1].dtype == NPU_F32;
  }
  if (way.kernel == Choice::kVectors) return std::min(m, n) > 1 && std::min(m, n) <= 8;
  if (m == 1 || n == 1) return way.kernel == Choice::kTiles && !way.rows && !way.turned && !way.left_once;
  if (way.rows) return std::max(m, n) >= 64 && 2 * std::max(m, n) >= std::min(way.rows, way.cols);
  return way.turned || way.left_once;
}

}  // namespace

Choice choice_of(const npu_command& command) {
  if (command.choice == 0 || !is_choice(command)) return {};
  const int number = command.choice - 1;
  Choice choice = ways_of(command).list[number / kThreadCounts].choice;
  choice.threads = kThreads[number % kThreadCounts];
  return choice;
}

bool is_choice(const npu_command& command) {
  const bool measured =
      command.kind == NPU_MATMUL || command.kind == NPU_MAP || command.kind == NPU_REDUCE || command.kind == NPU_SCAN;
  return measured && command.choice >= 2 && command.choice <= ways_of(command).count * kThreadCounts;
}

std::vector<npu_choice> choices_for(const npu_command& command) {
  constexpr int64_t kSmall = 1 << 14;  // a measurement would be one of the call
  constexpr int64_t kLarge = 1 << 27;  // surely worth all threads
  std::vector<npu_choice> found;
  npu_command c = command;
  const int64_t work = work_of(c);
  if (work < kSmall) return found;
  const Ways ways = ways_of(c);
  const int threads = pool_threads();
  for (int way = 0; way < ways.count; ++way) {
    if (way > 0 && !fits(c, ways.list[way].choice)) continue;
    for (int t = 0; t < kThreadCounts; ++t) {
      const int limit = kThreads[t];
      if (limit >= threads || (limit && work > kLarge) || (!limit && way == 0)) continue;
      c.choice = static_cast<uint8_t>(1 + way * kThreadCounts + t);
      if (!is_choice(c)) continue;
      npu_choice& choice = found.emplace_back();
      choice.id = c.choice;
      const char* comma = limit && way ? "," : "";
      const std::string some = limit ? "threads=" + std::to_string(limit) : "";
      std::snprintf(choice.text, sizeof choice.text, "%s%s%s", ways.list[way].text, comma, some.c_str());
    }
  }
  return found;
}

}  // namespace cmodel
