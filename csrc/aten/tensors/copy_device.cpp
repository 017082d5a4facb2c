#include "csrc/aten/tensors/copy_device.h"

#include <ATen/TensorIterator.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/types.h"
#include "csrc/aten/fallback/fallback.h"
#include "csrc/core/device/stream.h"
#include "csrc/core/launch/launch.h"
#include "csrc/core/memory/staging.h"
#include "csrc/core/observe/debug.h"
#include "table/kernels.h"

namespace torch_npu {
namespace {

constexpr const char* kLabel = "aten::copy_";

// operand 0 <- -operand 1. Neg and conj bits meet a plain tensor here.
npu::Program negate_program(npu_dtype compute) {
  constexpr uint16_t none = NPU_NO_VALUE;
  npu::Program program;
  program.name = "copy_negated";
  program.instrs = {
      {NPU_OP_SEGMENT, NPU_DTYPE_NONE, 0, 0, none, none, none, none, NPU_SEGMENT_EACH},
      {NPU_OP_LOAD, static_cast<uint8_t>(compute), 0, 0, none, none, none, none, 1},
      {NPU_OP_NEG, static_cast<uint8_t>(compute), 0, 0, 1, none, none, none, 0},
      {NPU_OP_STORE, NPU_DTYPE_NONE, 0, 0, 2, none, none, none, 0},
  };
  program.operand_count = 2;
  return program;
}

DeviceProgram& negation(npu_dtype dst) {
  static DeviceProgram single(negate_program(NPU_F32));
  static DeviceProgram wide(negate_program(NPU_F64));
  switch (compute_dtype(dst)) {
    case NPU_F32:
      return single;
    case NPU_F64:
      return wide;
    default:
      throw Unsupported(kLabel);
  }
}

// How an operand of the iterator appears in the command: as its own type, or as opaque words of its size.
struct Words {
  npu_dtype dtype;
  int64_t per_element;  // 2 for 16-byte elements, which no storage type holds
};

Words opaque_words(size_t element_size) {
  if (element_size == 16) return {NPU_U64, 2};
  return {bits_dtype(element_size, kLabel), 1};
}

Words words_of(const at::Tensor& tensor, bool opaque) {
  if (opaque) {
    return opaque_words(tensor.element_size());
  }
  const npu_dtype dtype = storage_dtype(tensor.scalar_type());
  if (dtype == NPU_DTYPE_NONE) {
    throw Unsupported(kLabel);
  }
  return {dtype, 1};
}

// One command: dst <- src or -src, both seen as real or opaque. Bits of the tensors are ignored.
void launch(const at::Tensor& dst, const at::Tensor& src, bool negate) {
  const bool opaque = dst.scalar_type() == src.scalar_type() && !negate;
  const Words dst_words = words_of(dst, opaque);
  const Words src_words = words_of(src, opaque);
  const auto iter = at::TensorIteratorConfig()
                        .set_check_mem_overlap(false)
                        .add_output(dst)
                        .add_const_input(src)
                        .resize_outputs(false)
                        .check_all_same_dtype(false)
                        .check_all_same_device(false)
                        .build();
  if (iter.ndim() + (dst_words.per_element > 1 ? 1 : 0) > NPU_MAX_RANK) {
    for (int64_t i = 0; i < dst.size(0); ++i) {
      launch(dst.select(0, i), src.select(0, i), negate);
    }
    return;
  }
  Command command(negate ? NPU_MAP : NPU_COPY, kLabel, iter, dst_words.per_element);
  const Words words[2] = {dst_words, src_words};
  for (int k = 0; k < 2; ++k) {
    npu_operand& operand = command.add(iter, k, words[k].dtype, words[k].per_element);
    if (dst_words.per_element > 1) operand.stride[iter.ndim()] = 1;
  }
  negate ? command.run(negation(dst_words.dtype)) : command.run();
}

// dst <- 0 for a real tensor.
void launch_zero(const at::Tensor& dst) {
  const auto iter = at::TensorIteratorConfig()
                        .set_check_mem_overlap(false)
                        .add_output(dst)
                        .add_const_input(dst)
                        .resize_outputs(false)
                        .build();
  if (iter.ndim() > NPU_MAX_RANK) {
    for (int64_t i = 0; i < dst.size(0); ++i) {
      launch_zero(dst.select(0, i));
    }
    return;
  }
  const npu_dtype type = words_of(dst, false).dtype;
  Command command(NPU_COPY, kLabel, iter);
  command.add(iter, 0, type);
  command.immediate(type, 0);
  command.run();
}

// True where either part is not zero.
void launch_truth(const at::Tensor& dst, const at::Tensor& src) {
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .add_output(dst)
                  .add_const_input(src)
                  .resize_outputs(false)
                  .check_all_same_dtype(false)
                  .build();
  launch_map_as(src.scalar_type(), iter, table::truth, kLabel);
}

void launch_any(const at::Tensor& dst, const at::Tensor& src) {
  const bool negate = dst.is_neg() != src.is_neg();
  const bool conjugate = dst.is_conj() != src.is_conj();
  if (!dst.is_complex() && !src.is_complex()) {
    launch(dst, src, negate);
  } else if (!dst.is_complex()) {
    if (dst.scalar_type() == at::kBool) {
      return launch_truth(dst, src);
    }
    launch(dst, parts(src).select(-1, 0), negate);
  } else if (!src.is_complex()) {
    const at::Tensor to = parts(dst);
    launch(to.select(-1, 0), src, negate);
    launch_zero(to.select(-1, 1));
  } else if (!negate && !conjugate && dst.scalar_type() == src.scalar_type()) {
    launch(dst, src, false);
  } else {
    const at::Tensor to = parts(dst);
    const at::Tensor from = parts(src);
    if (!conjugate) {
      launch(to, from, negate);
    } else {
      launch(to.select(-1, 0), from.select(-1, 0), negate);
      launch(to.select(-1, 1), from.select(-1, 1), !negate);
    }
  }
}

}  // namespace

bool has_copy_command(c10::DeviceIndex device) {
  return (opened_device(device).properties.commands & (1u << NPU_COPY)) != 0;
}

void copy_on_device(const at::Tensor& dst, const at::Tensor& src) {
  const bool same =
      dst.scalar_type() == src.scalar_type() && dst.is_conj() == src.is_conj() && dst.is_neg() == src.is_neg();
  if (same && dst.strides() == src.strides() && dst.is_non_overlapping_and_dense()) {
    const c10::DeviceIndex index = dst.device().index();
    const Device& device = torch_npu::device(index);  // throws in a forked child
    torch_npu::copy_on_stream(device, current_stream_handle(index), address_of(dst.mutable_data_ptr()),
                              address_of(src.const_data_ptr()), dst.nbytes(), "copying on the device");
    return;
  }
  try {
    launch_any(dst, src);
  } catch (const Unsupported&) {
    fallback::note(kLabel);
    const debug::FallbackScope logged(kLabel);
    write_from_host(dst, read_to_host(src));
  }
}

}  // namespace torch_npu
