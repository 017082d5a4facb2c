// Wrong folds, scans, sorts and scatters.
#include <algorithm>
#include <cstring>

#include "tests/drivers/mutants/mutant.h"

namespace mutant {
namespace {

using npu::Rewrite;

int kind_of(const npu_instr& in) {
  return in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN ? static_cast<int>(in.imm & 0xff) : -1;
}

bool real(int dtype) {
  return dtype == NPU_F32 || dtype == NPU_F64;
}

// Changes what goes into folds of a kind.
template <class Change>
npu_status before_fold(Work& work, std::string* why, std::vector<int> kinds, Change change) {
  work.rewrite([&](Rewrite& out, npu_instr in) {
    if (std::find(kinds.begin(), kinds.end(), kind_of(in)) != kinds.end()) change(out, in);
    return out.emit(in);
  });
  return run_right(work, why);
}

npu_status max_from_zero(Work& work, std::string* why) {
  return before_fold(work, why, {NPU_FOLD_MAX}, [](Rewrite& out, npu_instr& in) {
    if (in.dtype != NPU_BOOL) in.a = out.op(NPU_OP_MAX, in.dtype, in.a, out.constant(in.dtype, 0));
  });
}

npu_status prod_from_zero(Work& work, std::string* why) {
  return before_fold(work, why, {NPU_FOLD_PROD}, [](Rewrite& out, npu_instr& in) { in.a = out.constant(in.dtype, 0); });
}

npu_status folds_lose_nan(Work& work, std::string* why) {
  return before_fold(work, why, {NPU_FOLD_MAX, NPU_FOLD_MIN}, [](Rewrite& out, npu_instr& in) {
    if (!real(in.dtype)) return;
    const uint16_t number = out.op(NPU_OP_EQ, NPU_BOOL, in.a, in.a);
    in.mask = in.mask == NPU_NO_VALUE ? number : out.op(NPU_OP_AND, NPU_BOOL, in.mask, number);
  });
}

npu_status ignores_fold_mask(Work& work, std::string* why) {
  work.rewrite([&](Rewrite& out, npu_instr in) {
    if (in.op == NPU_OP_FOLD) in.mask = NPU_NO_VALUE;
    return out.emit(in);
  });
  return run_right(work, why);
}

// Of equals the highest index: the lowest of the negative ones.
npu_status last_of_equals(Work& work, std::string* why) {
  std::vector<uint16_t> folds;
  work.rewrite([&](Rewrite& out, npu_instr in) {
    const bool arg = in.op == NPU_OP_FOLD && (kind_of(in) == NPU_FOLD_ARGMAX || kind_of(in) == NPU_FOLD_ARGMIN);
    if (arg) in.b = out.op(NPU_OP_NEG, NPU_I64, in.b);
    const uint16_t made = out.emit(in);
    if (arg) folds.push_back(made);
    const bool index = in.op == NPU_OP_GET && in.imm == 1 && std::find(folds.begin(), folds.end(), in.a) != folds.end();
    return index ? out.op(NPU_OP_NEG, NPU_I64, made) : made;
  });
  return run_right(work, why);
}

npu_status misses_tail(Work& work, std::string* why) {
  if (work.kind() == NPU_REDUCE && work.command.inner_rank && work.size(0) > 16) work.size(0) -= work.size(0) % 16;
  return run_right(work, why);
}

npu_status folds_one_dimension(Work& work, std::string* why) {
  if (work.kind() == NPU_REDUCE && work.command.inner_rank > 1) work.size(1) = std::min<int64_t>(work.size(1), 1);
  return run_right(work, why);
}

npu_status empty_rows_are_zero(Work& work, std::string* why) {
  if (work.kind() == NPU_REDUCE && work.command.inner_rank == 1 && work.size(0) == 0)
    work.rewrite([](Rewrite& out, npu_instr in) {
      if (in.op == NPU_OP_STORE) in.a = out.constant(out.type(in.a), 0);
      return out.emit(in);
    });
  return run_right(work, why);
}

npu_status sums_in_f16(Work& work, std::string* why) {
  return before_fold(work, why, {NPU_FOLD_SUM}, [](Rewrite& out, npu_instr& in) {
    if (in.dtype == NPU_F32) in.a = out.cast(in.a, NPU_F32, NPU_BF16);
  });
}

// Every 64 elements a scan begins anew.
npu_status scan_restarts(Work& work, std::string* why) {
  if (work.kind() != NPU_SCAN) return run_right(work, why);
  const int64_t n = work.size(0);
  const std::vector<npu_operand> operands = work.operands;
  npu_status status = NPU_OK;
  for (int64_t at = 0; at == 0 || (at < n && status == NPU_OK); at += 64) {
    work.size(0) = std::min<int64_t>(n - at, 64);
    for (size_t k = 0; k < operands.size(); k++)
      if (!(operands[k].flags & NPU_OPERAND_IMMEDIATE))
        work.operands[k].addr =
            operands[k].addr + static_cast<uint64_t>(at * work.stride(k, 0) * npu::dtype_size(operands[k].dtype));
    status = run_right(work, why);
  }
  return status;
}

template <class Change>
npu_status sorted(Work& work, std::string* why, Change change) {
  if (work.kind() == NPU_SORT) change(work);
  return run_right(work, why);
}

npu_status always_ascending(Work& work, std::string* why) {
  return sorted(work, why, [](Work& w) { w.command.u.sort.descending = 0; });
}

npu_status counts_one_less(Work& work, std::string* why) {
  return sorted(work, why, [](Work& w) { w.command.u.sort.count = std::max<int64_t>(w.command.u.sort.count - 1, 0); });
}

npu_status leaves_payload(Work& work, std::string* why) {
  const npu_status status = run_right(work, why);
  const bool numbers = work.kind() == NPU_SORT && (work.operands[1].flags & NPU_OPERAND_IMMEDIATE);
  if (status == NPU_OK && numbers && work.command.rank == 1)
    for (int64_t i = 0; i < work.command.u.sort.count; i++) {
      const int64_t number = i;
      std::memcpy(work.element(3, i * work.stride(3, 0)), &number,
                  static_cast<size_t>(npu::dtype_size(work.operands[3].dtype)));
    }
  return status;
}

// Equal keys in the opposite order: the row is sorted from its end.
npu_status not_stable(Work& work, std::string* why) {
  const bool concerned =
      work.kind() == NPU_SORT && (work.operands[1].flags & NPU_OPERAND_IMMEDIATE) && work.command.rank == 1;
  const int64_t n = concerned ? work.size(0) : 0;
  if (n > 1) {
    work.operands[0].addr +=
        static_cast<uint64_t>((n - 1) * work.stride(0, 0) * npu::dtype_size(work.operands[0].dtype));
    work.stride(0, 0) = -work.stride(0, 0);
  }
  const npu_status status = run_right(work, why);
  if (status != NPU_OK || n < 2 || work.command.rank != 1) return status;
  for (int64_t i = 0; i < work.command.u.sort.count; i++) {
    const auto width = static_cast<size_t>(npu::dtype_size(work.operands[3].dtype));
    unsigned char* at = work.element(3, i * work.stride(3, 0));
    int64_t number = 0;
    std::memcpy(&number, at, width);
    number = n - 1 - number;
    std::memcpy(at, &number, width);
  }
  return status;
}

npu_status first_store_stays(Work& work, std::string* why) {
  for (size_t k = 0; work.kind() == NPU_SCATTER && k < work.operands.size(); k++)
    for (int d = 0; d < work.command.rank && work.command.size[d]; d++) {
      npu_operand& o = work.operands[k];
      o.addr += static_cast<uint64_t>((work.command.size[d] - 1) * o.stride[d] * npu::dtype_size(o.dtype));
      o.stride[d] = -o.stride[d];
    }
  return run_right(work, why);
}

template <int From, int To>
npu_status other_mode(Work& work, std::string* why) {
  work.rewrite([&](Rewrite& out, npu_instr in) {
    if (in.op == NPU_OP_STORE_AT && in.flags == From) in.flags = To;
    return out.emit(in);
  });
  return run_right(work, why);
}

}  // namespace

std::vector<Bug> row_bugs() {
  return {
      {"max-from-zero", "REDUCE", "max starts at 0", "starts at 0", max_from_zero},
      {"prod-from-zero", "REDUCE", "prod starts at 0", "starts at 0", prod_from_zero},
      {"fold-loses-nan", "REDUCE", "max and min leave NaNs out", "NaN", folds_lose_nan},
      {"fold-mask", "REDUCE", "a masked fold takes the element", "mask", ignores_fold_mask},
      {"argmax-last", "REDUCE", "of equals the last index is given", "highest index", last_of_equals},
      {"reduce-tail", "REDUCE", "what is left behind the last 16 elements of a row is not folded", "partial tile",
       misses_tail},
      {"reduce-one-dimension", "REDUCE", "only the last dimension is folded", "", folds_one_dimension},
      {"empty-rows", "REDUCE", "a row without elements yields 0", "identity", empty_rows_are_zero},
      {"sum-bf16", "REDUCE", "what is added up is rounded to bf16", "bf16", sums_in_f16},
      {"scan-restarts", "SCAN", "a scan begins anew every 64 elements", "begins anew", scan_restarts},
      {"sort-ascending", "SORT", "descending is ignored", "descending", always_ascending},
      {"sort-count", "SORT", "the last result is not written", "last element", counts_one_less},
      {"sort-payload", "SORT", "the payload does not move", "payload", leaves_payload},
      {"sort-stable", "SORT", "equal keys change their order", "equal keys", not_stable},
      {"scatter-first", "SCATTER", "of several stores the first stays", "order", first_store_stays},
      {"scatter-set", "SCATTER", "add stores instead", "set instead of add", other_mode<NPU_STORE_ADD, NPU_STORE_SET>},
  };
}

}  // namespace mutant
