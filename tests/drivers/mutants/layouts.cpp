// Wrong places: strides, broadcasts, tails, masks, aliases, indices.
#include <algorithm>
#include <cstdlib>

#include "tests/drivers/mutants/mutant.h"

namespace mutant {
namespace {

using npu::Rewrite;

bool pointwise(const Work& work) {
  return work.kind() == NPU_MAP || work.kind() == NPU_COPY;
}

template <class Change>
npu_status with_strides(Work& work, std::string* why, Change change) {
  for (size_t k = 0; pointwise(work) && k < work.operands.size(); k++)
    for (int d = 0; d < work.command.rank; d++) change(work, k, d);
  return run_right(work, why);
}

npu_status ignores_signs(Work& work, std::string* why) {
  return with_strides(work, why, [](Work& w, size_t k, int d) {
    int64_t& stride = w.operands[k].stride[d];
    stride = std::abs(stride);
  });
}

npu_status ignores_gaps(Work& work, std::string* why) {
  return with_strides(work, why, [](Work& w, size_t k, int d) {
    if (d + 1 == w.command.rank && w.operands[k].stride[d] > 1 && !w.writes(k)) w.operands[k].stride[d] = 1;
  });
}

// As if every matrix that is read lay row after row.
npu_status reads_row_major(Work& work, std::string* why) {
  if (pointwise(work) && work.command.rank == 2)
    for (size_t k = 0; k < work.operands.size(); k++)
      if (!work.writes(k) && work.stride(k, 1) > 0 && work.stride(k, 0) > 0 && !work.operands[k].limit)
        work.stride(k, 0) = 1, work.stride(k, 1) = work.size(0);
  return run_right(work, why);
}

npu_status reads_broadcasts_on(Work& work, std::string* why) {
  if (pointwise(work) && work.command.rank == 2)
    for (size_t k = 0; k < work.operands.size(); k++)
      if (!work.writes(k) && work.stride(k, 1) == 1 && work.stride(k, 0) == 0) work.stride(k, 0) = 1;
  return run_right(work, why);
}

template <int Tile>
npu_status misses_tail(Work& work, std::string* why) {
  if (pointwise(work) && work.command.rank && work.size(0) > Tile) work.size(0) -= work.size(0) % Tile;
  return run_right(work, why);
}

npu_status misses_last_element(Work& work, std::string* why) {
  if (pointwise(work) && work.command.rank && work.size(0) > 1) work.size(0)--;
  return run_right(work, why);
}

npu_status has_four_dimensions(Work& work, std::string* why) {
  for (int d = 0; pointwise(work) && d < work.command.rank - 4; d++)
    work.command.size[d] = std::min<int64_t>(work.command.size[d], 1);
  return run_right(work, why);
}

npu_status writes_beyond(Work& work, std::string* why) {
  const npu_status status = run_right(work, why);
  for (size_t k = 0; pointwise(work) && work.command.rank == 1 && k < work.operands.size(); k++)
    if (work.writes(k) && work.stride(k, 0) == 1 && work.size(0) % 16)
      if (unsigned char* at = work.element(k, work.size(0))) *at ^= 0x5a;
  return status;
}

npu_status clears_results_first(Work& work, std::string* why) {
  for (size_t k = 0; work.kind() == NPU_MAP && work.command.rank == 1 && k < work.operands.size(); k++)
    for (int64_t i = 0; work.writes(k) && i < work.size(0); i++)
      if (unsigned char* at = work.element(k, i * work.stride(k, 0)))
        std::fill_n(at, npu::dtype_size(work.operands[k].dtype), 0);
  return run_right(work, why);
}

npu_status drops_low_address_bits(Work& work, std::string* why) {
  for (npu_operand& o : work.operands)
    if (pointwise(work) && !(o.flags & NPU_OPERAND_IMMEDIATE)) o.addr &= ~npu_addr{3};
  return run_right(work, why);
}

template <int Op>
npu_status ignores_mask(Work& work, std::string* why) {
  work.rewrite([&](Rewrite& out, npu_instr in) {
    if (in.op == Op) in.mask = NPU_NO_VALUE;
    return out.emit(in);
  });
  return run_right(work, why);
}

template <int Flag>
npu_status without_index_flag(Work& work, std::string* why) {
  work.rewrite([&](Rewrite& out, npu_instr in) {
    if (in.op == NPU_OP_CHECK_INDEX) in.flags &= static_cast<uint8_t>(~Flag);
    return out.emit(in);
  });
  return run_right(work, why);
}

npu_status indexes_in_32_bits(Work& work, std::string* why) {
  work.rewrite([&](Rewrite& out, npu_instr in) {
    if (in.op == NPU_OP_CHECK_INDEX && out.type(in.a) == NPU_I64) in.a = out.cast(out.cast(in.a, NPU_I32), NPU_I64);
    return out.emit(in);
  });
  return run_right(work, why);
}

npu_status reads_immediates_as_zero(Work& work, std::string* why) {
  for (npu_operand& o : work.operands)
    if (work.kind() == NPU_COPY && (o.flags & NPU_OPERAND_IMMEDIATE)) o.addr = 0;
  return run_right(work, why);
}

npu_status numbers_dimensions_backwards(Work& work, std::string* why) {
  const uint32_t last = work.command.rank - 1u;
  work.rewrite([&](Rewrite& out, npu_instr in) {
    if (in.op == NPU_OP_INDEX && work.kind() == NPU_MAP) in.imm = last - in.imm;
    return out.emit(in);
  });
  return run_right(work, why);
}

}  // namespace

std::vector<Bug> layout_bugs() {
  return {
      {"negative-strides", "", "a negative stride is taken for positive", "negative stride", ignores_signs},
      {"gaps", "", "the innermost stride of what is read is taken for 1", "stride", ignores_gaps},
      {"row-major", "", "what is read is taken to lie row after row", "row-major", reads_row_major},
      {"broadcast", "", "a broadcast of the last dimension is read on", "broadcast", reads_broadcasts_on},
      {"tail-16", "", "what is left behind the last 16 elements of a row is not done", "partial tile", misses_tail<16>},
      {"tail-128", "", "what is left behind the last 128 elements of a row is not done", "partial tile",
       misses_tail<128>},
      {"last-element", "", "the last element of each row is not done", "last element", misses_last_element},
      {"rank-4", "", "dimensions in front of the last four are walked once", "", has_four_dimensions},
      {"stray-byte", "", "a byte behind the result is changed", "outside", writes_beyond},
      {"in-place", "MAP", "results are cleared before operands are read", "", clears_results_first},
      {"address-bits", "", "the low two bits of addresses are dropped", "", drops_low_address_bits},
      {"load-mask", "MAP", "a masked load loads", "mask", ignores_mask<NPU_OP_LOAD>},
      {"store-mask", "", "a masked store stores", "mask", ignores_mask<NPU_OP_STORE>},
      {"store-at-mask", "SCATTER", "a masked store_at stores", "mask", ignores_mask<NPU_OP_STORE_AT>},
      {"index-wrap", "MAP", "a negative index is not wrapped", "wrap", without_index_flag<NPU_INDEX_WRAP>},
      {"index-check", "MAP", "an index is not checked", "check", without_index_flag<NPU_INDEX_CHECK>},
      {"index-32", "MAP", "an index has 32 bits", "i32 instead of i64", indexes_in_32_bits},
      {"fill", "COPY", "an immediate is read as 0", "immediate", reads_immediates_as_zero},
      {"index-order", "MAP", "dimensions of `index` are counted from the last", "", numbers_dimensions_backwards},
  };
}

}  // namespace mutant
