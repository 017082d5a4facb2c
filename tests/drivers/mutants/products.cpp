// Wrong products and convolutions.
#include <algorithm>
#include <cstring>

#include "support/reference/value.h"
#include "tests/drivers/mutants/mutant.h"

namespace mutant {
namespace {

bool is_product(const Work& work) {
  return work.kind() == NPU_MATMUL;
}

float bf16(float value) {
  return npu::bf16_to_f32(npu::f32_to_bf16(value));
}

template <int Operand>
npu_status reads_row_major(Work& work, std::string* why) {
  if (is_product(work)) {
    work.stride(Operand, 0) = 1;
    work.stride(Operand, 1) = Operand ? work.size(0) : work.command.u.matmul.k;
  }
  return run_right(work, why);
}

// Which: 0 for n, 1 for m, 2 for k.
template <int Which, int Tile>
npu_status misses_tail(Work& work, std::string* why) {
  if (!is_product(work)) return run_right(work, why);
  int64_t& size = Which == 2 ? work.command.u.matmul.k : work.size(Which);
  if (size > Tile) size -= size % Tile;
  return run_right(work, why);
}

npu_status misses_last_product(Work& work, std::string* why) {
  if (is_product(work) && work.command.u.matmul.k > 1) work.command.u.matmul.k--;
  return run_right(work, why);
}

npu_status reads_one_batch(Work& work, std::string* why) {
  for (int d = 0; is_product(work) && d < work.command.rank - 2; d++) work.operands[1].stride[d] = 0;
  return run_right(work, why);
}

// The product in F32 of a matrix in memory, as one loop; `round` is what becomes of a sum, `take` of an input.
template <class Round, class Take>
npu_status product_of(Work& work, std::string* why, Round round, Take take) {
  if (!is_product(work) || work.has_program || work.command.rank != 2 || work.command.u.matmul.acc_dtype != NPU_F32)
    return run_right(work, why);
  if (const npu_status status = run_right(work, why); status != NPU_OK) return status;  // it knows every rule
  const auto load = [&](size_t k, int64_t row, int64_t column) {
    const npu_operand& o = work.operands[k];
    return take(npu::load_value(work.element(k, row * o.stride[0] + column * o.stride[1]), o.dtype, NPU_F32).f32);
  };
  for (int64_t m = 0; m < work.size(1); m++)
    for (int64_t n = 0; n < work.size(0); n++) {
      float sum = 0;
      for (int64_t k = 0; k < work.command.u.matmul.k; k++) sum = round(sum + load(0, m, k) * load(1, k, n));
      npu::Value value{};
      value.f32 = sum;
      const npu_operand& o = work.operands[2];
      npu::store_value(work.element(2, m * o.stride[0] + n * o.stride[1]), o.dtype, value, NPU_F32);
    }
  return NPU_OK;
}

npu_status sums_in_bf16(Work& work, std::string* why) {
  return product_of(work, why, [](float v) { return bf16(v); }, [](float v) { return v; });
}

npu_status rounds_inputs(Work& work, std::string* why) {
  return product_of(work, why, [](float v) { return v; }, [](float v) { return bf16(v); });
}

npu_status adds_to_what_was_there(Work& work, std::string* why) {
  if (is_product(work) && !work.has_program) {
    work.need_program();
    work.rewrite([](npu::Rewrite& out, npu_instr in) {
      if (in.op == NPU_OP_STORE) in.a = out.op(NPU_OP_ADD, out.type(in.a), in.a, out.load(2, out.type(in.a)));
      return out.emit(in);
    });
  }
  return run_right(work, why);
}

template <int Kind>
npu_status skips_epilogue(Work& work, std::string* why) {
  if (work.kind() == Kind) work.has_program = false;
  return run_right(work, why);
}

npu_status skips_relu(Work& work, std::string* why) {
  if (is_product(work))
    work.rewrite([](npu::Rewrite& out, const npu_instr& in) { return in.op == NPU_OP_MAX ? in.a : out.emit(in); });
  return run_right(work, why);
}

// Puts a whole tile of 16 columns into memory.
npu_status writes_whole_tiles(Work& work, std::string* why) {
  const npu_status status = run_right(work, why);
  if (status == NPU_OK && is_product(work) && !work.has_program && work.stride(2, 0) == 1 && work.command.rank == 2 &&
      work.size(1) > 0)
    for (int64_t n = work.size(0); n % 16; n++)
      if (unsigned char* at = work.element(2, (work.size(1) - 1) * work.stride(2, 1) + n))
        std::memset(at, 0, static_cast<size_t>(npu::dtype_size(work.operands[2].dtype)));
  return status;
}

template <class Change>
npu_status changed(Work& work, std::string* why, Change change) {
  if (work.kind() == NPU_CONV) change(work, work.command.u.conv);
  return run_right(work, why);
}

npu_status ignores_padding(Work& work, std::string* why) {
  return changed(work, why, [](Work&, npu_conv& c) { std::fill_n(c.padding, 3, 0); });
}

npu_status ignores_dilation(Work& work, std::string* why) {
  return changed(work, why, [](Work&, npu_conv& c) { std::fill_n(c.dilation, c.spatial_rank, 1); });
}

npu_status swaps_steps(Work& work, std::string* why) {
  return changed(work, why, [](Work&, npu_conv& c) {
    if (c.spatial_rank > 1) std::swap(c.stride[0], c.stride[1]);
  });
}

npu_status flips_kernels(Work& work, std::string* why) {
  return changed(work, why, [](Work& w, npu_conv& c) {
    if (c.mode == NPU_CONV_GRAD_WEIGHT) return;
    for (uint32_t d = 0; d < c.spatial_rank; d++) {
      npu_operand& weight = w.operands[1];
      const auto width = static_cast<uint64_t>(npu::dtype_size(weight.dtype));
      weight.addr += static_cast<uint64_t>(weight.stride[d + 2] * (c.kernel[d] - 1)) * width;
      weight.stride[d + 2] = -weight.stride[d + 2];
    }
  });
}

npu_status misses_last_channel(Work& work, std::string* why) {
  return changed(work, why, [](Work&, npu_conv& c) {
    if (c.mode == NPU_CONV_FORWARD && c.groups == 1 && c.in_channels > 1) c.in_channels--;
  });
}

npu_status misses_last_image(Work& work, std::string* why) {
  return changed(work, why, [](Work&, npu_conv& c) {
    if (c.mode == NPU_CONV_GRAD_WEIGHT && c.batch > 1) c.batch--;
  });
}

}  // namespace

std::vector<Bug> product_bugs() {
  return {
      {"matmul-b-row-major", "MATMUL", "B is read with strides (N, 1)", "row-major", reads_row_major<1>},
      {"matmul-a-row-major", "MATMUL", "A is read with strides (K, 1)", "row-major", reads_row_major<0>},
      {"matmul-k-tail", "MATMUL", "products behind the last 16 of a sum are left out", "partial tile",
       misses_tail<2, 16>},
      {"matmul-m-tail", "MATMUL", "rows behind the last 32 are not done", "partial tile", misses_tail<1, 32>},
      {"matmul-n-tail", "MATMUL", "columns behind the last 64 are not done", "partial tile", misses_tail<0, 64>},
      {"matmul-last-product", "MATMUL", "the last product of each sum is left out", "last", misses_last_product},
      {"matmul-batch", "MATMUL", "the first batch of B is read for all", "batch", reads_one_batch},
      {"matmul-acc-bf16", "MATMUL", "sums are kept in bf16", "acc in bf16", sums_in_bf16},
      {"matmul-bf16-inputs", "MATMUL", "F32 inputs are rounded to bf16 unasked", "rounded to bf16", rounds_inputs},
      {"matmul-accumulates", "MATMUL", "the sum is added to what was there", "adds onto", adds_to_what_was_there},
      {"matmul-epilogue", "MATMUL", "the program is not run", "program", skips_epilogue<NPU_MATMUL>},
      {"matmul-relu", "MATMUL", "max is left out of the program", "left out", skips_relu},
      {"matmul-whole-tiles", "MATMUL", "a whole tile is stored at the end of the last row", "outside",
       writes_whole_tiles},
      {"conv-padding", "CONV", "padding is ignored", "padding", ignores_padding},
      {"conv-dilation", "CONV", "dilation is ignored", "dilation", ignores_dilation},
      {"conv-stride", "CONV", "the steps of two dimensions are exchanged", "stride", swaps_steps},
      {"conv-flip", "CONV", "kernels are turned round", "flipped", flips_kernels},
      {"conv-channel", "CONV", "the last input channel is left out", "channel", misses_last_channel},
      {"conv-image", "CONV", "the last image is left out of a weight gradient", "batch", misses_last_image},
      {"conv-epilogue", "CONV", "the program is not run", "program", skips_epilogue<NPU_CONV>},
  };
}

}  // namespace mutant
