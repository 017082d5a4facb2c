#include "csrc/aten/dispatch/reduction.h"

#include <algorithm>
#include <cstdlib>

namespace torch_npu {

npu_dtype compute_type(const at::Tensor& tensor, const char* label) {
  const npu_dtype type = storage_dtype(tensor.scalar_type());
  if (type == NPU_DTYPE_NONE) {
    throw Unsupported(label);
  }
  return compute_dtype(type);
}

Rows::Rows(const char* label, at::IntArrayRef sizes, DimMask inner)
    : command_(NPU_MAP, label), rank_(static_cast<int>(sizes.size())), inner_(inner) {
  if (rank_ > kDims) {
    throw Unsupported(label);
  }
  std::copy(sizes.begin(), sizes.end(), size_.begin());
}

npu_operand& Rows::next(const at::Tensor& tensor) {
  const npu_dtype type = storage_dtype(tensor.scalar_type());
  // An op that accepts 0-d CPU tensors has to say so; here they are for the fallback.
  if (type == NPU_DTYPE_NONE || tensor.is_neg() || tensor.is_conj() || tensor.is_cpu()) {
    throw Unsupported(command_->label);
  }
  command_.set_device(tensor.device().index());
  return command_.add(tensor.data_ptr(), type);
}

Rows& Rows::add(const at::Tensor& tensor) {
  next(tensor);
  const int skip = rank_ - static_cast<int>(tensor.dim());
  for (int d = 0; d < rank_; ++d) {
    strides()[d] = d < skip || tensor.size(d - skip) == 1 ? 0 : tensor.stride(d - skip);
  }
  return *this;
}

Rows& Rows::reduced(const at::Tensor& tensor) {
  if (tensor.dim() == rank_) {
    return add(tensor);
  }
  next(tensor);
  int from = 0;
  for (int d = 0; d < rank_; ++d) {
    strides()[d] = inner_[d] ? 0 : tensor.stride(from++);
  }
  return *this;
}

Rows& Rows::strided(const at::Tensor& tensor, at::IntArrayRef strides, int64_t limit, int64_t offset) {
  npu_operand& operand = next(tensor);
  operand.limit = limit;
  operand.addr += offset * tensor.element_size();
  std::copy(strides.begin(), strides.end(), this->strides());
  return *this;
}

Rows& Rows::scalar(const at::Tensor& tensor) {
  next(tensor);
  std::fill_n(strides(), rank_, 0);
  return *this;
}

Rows& Rows::number(double value) {
  command_.immediate(value);
  std::fill_n(strides(), rank_, 0);
  return *this;
}

// Folds commute, and rows may come in any order: walk memory forwards, as TensorIterator does.
std::array<int, Rows::kDims> Rows::sorted_dims() const {
  std::array<int, kDims> dims;
  std::array<int64_t, kDims> weight;
  for (int d = 0; d < rank_; ++d) {
    weight[d] = 0;
    for (uint32_t i = 0; i < command_->operand_count; ++i) {
      weight[d] += std::abs(strides_[i].at[d]);
    }
    int at = d;
    for (; at > 0 && weight[dims[at - 1]] < weight[d]; --at) {
      dims[at] = dims[at - 1];
    }
    dims[at] = d;
  }
  return dims;
}

bool Rows::finish(npu_command_kind kind) {
  std::array<int, kDims> order;
  int total = 0;
  int kept = 0;
  const auto by_stride = sorted_dims();
  for (const bool inside : {false, true}) {
    const int group = total;
    for (int i = 0; i < rank_; ++i) {
      const int d = by_stride[i];
      if (inner_[d] != inside || size_[d] == 1) {
        continue;
      }
      if (size_[d] == 0 && !(inside && kind == NPU_REDUCE)) {
        return false;
      }
      if (total > group) {  // merge with the neighbour if every operand walks on without a gap
        const int before = order[total - 1];
        bool joined = true;
        for (uint32_t k = 0; k < command_->operand_count && joined; ++k) {
          joined = strides_[k].at[before] == strides_[k].at[d] * size_[d];
        }
        if (joined) {
          size_[d] *= size_[before];
          order[total - 1] = d;
          continue;
        }
      }
      order[total++] = d;
    }
    if (!inside) {
      kept = total;
    }
  }
  const int inner = total - kept;
  // A command folds at least one dimension: if all have one element, one of size 1.
  const int rank = kind == NPU_MAP && !indexed_ ? total : kept + std::max(inner, 1);
  if (rank > NPU_MAX_RANK || (indexed_ && inner > 1)) {
    throw Unsupported(command_->label);
  }
  const int pad = indexed_ ? NPU_MAX_RANK - rank : 0;
  command_->kind = kind;
  command_->rank = static_cast<uint8_t>(pad + rank);
  command_->inner_rank = static_cast<uint8_t>(kind == NPU_MAP ? 0 : std::max(inner, 1));
  for (int d = 0; d < pad + rank; ++d) {
    const int from = d - pad;
    const bool real = from >= 0 && from < total;
    command_->size[d] = real ? size_[order[from]] : 1;
    for (uint32_t i = 0; i < command_->operand_count; ++i) {
      command_.operand(static_cast<int>(i)).stride[d] = real ? strides_[i].at[order[from]] : 0;
    }
  }
  return true;
}

void Rows::run(npu_command_kind kind, DeviceProgram& program, Params params) {
  if (!finish(kind)) return;
  for (const npu_scalar& param : params) command_.param(param);
  command_.run(program);
}

void Rows::sort(int64_t count, bool descending, bool stable) {
  command_.operand(1).dtype = NPU_I64;
  if (!finish(NPU_SORT)) return;
  command_->u.sort.count = count;
  command_->u.sort.descending = descending;
  command_->u.sort.stable = stable;
  command_.run();
}

}  // namespace torch_npu
