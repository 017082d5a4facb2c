#include "drivers/cmodel/runtime/choices.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "drivers/cmodel/choose/choice.h"
#include "drivers/cmodel/product/gemm.h"
#include "drivers/cmodel/product/tuning.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {
namespace {

// Multiply-adds, or points.
int64_t work_of(const npu_command& c) {
  int64_t work = c.kind == NPU_MATMUL ? std::max<int64_t>(c.u.matmul.k, 1) : 1;
  for (int d = 0; d < c.rank; ++d) work *= c.size[d];
  return work;
}

bool is_worth_measuring(const npu_command& c, const Choice& wish) {
  if (c.kind != NPU_MATMUL) return true;
  const int64_t m = c.size[c.rank - 2], n = c.size[c.rank - 1];
  if (wish.way == Choice::kDense) {  // of other types it would convert copies first
    return product::have_openblas() && c.operands[0].dtype == NPU_F32 && c.operands[1].dtype == NPU_F32;
  }
  if (wish.way == Choice::kVectors) return std::min(m, n) > 1 && std::min(m, n) <= 8;
  if (m == 1 || n == 1) return wish.way == Choice::kTiles && !wish.rows && !wish.transposed && !wish.left_once;
  if (wish.rows) return std::max(m, n) >= 64 && 2 * std::max(m, n) >= std::min(wish.rows, wish.cols);
  return wish.transposed || wish.left_once;
}

}  // namespace

std::vector<npu_choice> choices_for(const npu_command& command) {
  std::vector<npu_choice> found;
  npu_command c = command;
  const int64_t work = work_of(c);
  if (work < product::kMeasuredWork) return found;
  const auto wishes = wishes_of(c);
  for (int w = 0; w < int(wishes.size()); ++w) {
    const Wish& wish = wishes[size_t(w)];
    if (w > 0 && !is_worth_measuring(c, wish.choice)) continue;
    for (int t = 0; t < int(std::size(kThreadLimits)); ++t) {
      const int limit = kThreadLimits[t];
      if (limit >= pool_threads() || (limit && work > product::kThreadedWork) || (!limit && w == 0)) continue;
      c.choice = number_of(w, t);
      if (!is_choice(c)) continue;
      npu_choice& choice = found.emplace_back();
      choice.id = c.choice;
      const std::string some = limit ? (w ? ",threads=" : "threads=") + std::to_string(limit) : "";
      std::snprintf(choice.text, sizeof choice.text, "%s%s", wish.text, some.c_str());
    }
  }
  return found;
}

}  // namespace cmodel
