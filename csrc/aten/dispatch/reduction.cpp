#include "csrc/aten/dispatch/reduction.h"

#include <cstdlib>
#include <cstring>

namespace torch_npu {

npu_dtype compute_type(const at::Tensor& tensor, const char* label) {
  const npu_dtype type = storage_dtype(tensor.scalar_type());
  if (type == NPU_DTYPE_NONE) {
    throw Unsupported(label);
  }
  return compute_dtype(type);
}

Rows::Rows(const char* label, at::IntArrayRef sizes, DimMask inner)
    : label_(label), rank_(static_cast<int>(sizes.size())), inner_(inner) {
  if (rank_ > kDims) {
    throw Unsupported(label);
  }
  std::copy(sizes.begin(), sizes.end(), size_.begin());
}

npu_operand& Rows::next(const at::Tensor& tensor) {
  const npu_dtype type = storage_dtype(tensor.scalar_type());
  if (type == NPU_DTYPE_NONE || tensor.is_neg() || tensor.is_conj()) {
    throw Unsupported(label_);
  }
  TORCH_INTERNAL_ASSERT(count_ < kOperands);
  if (tensor.is_cpu()) {  // an op that accepts 0-d CPU tensors has to say so; this is for the fallback
    throw Unsupported(label_);
  }
  device_ = tensor.device().index();
  npu_operand& operand = operands_[count_];
  operand.addr = reinterpret_cast<npu_addr>(tensor.data_ptr());
  operand.dtype = type;
  return operand;
}

Rows& Rows::add(const at::Tensor& tensor) {
  next(tensor);
  auto& strides = strides_[count_++].at;
  const int skip = rank_ - static_cast<int>(tensor.dim());
  for (int d = 0; d < rank_; ++d) {
    strides[d] = d < skip || tensor.size(d - skip) == 1 ? 0 : tensor.stride(d - skip);
  }
  return *this;
}

Rows& Rows::reduced(const at::Tensor& tensor) {
  if (tensor.dim() == rank_) {
    return add(tensor);
  }
  next(tensor);
  auto& strides = strides_[count_++].at;
  int from = 0;
  for (int d = 0; d < rank_; ++d) {
    strides[d] = inner_[d] ? 0 : tensor.stride(from++);
  }
  return *this;
}

Rows& Rows::strided(const at::Tensor& tensor, at::IntArrayRef strides, int64_t limit, int64_t offset) {
  npu_operand& operand = next(tensor);
  operand.limit = limit;
  operand.addr += offset * tensor.element_size();
  std::copy(strides.begin(), strides.end(), strides_[count_++].at.begin());
  return *this;
}

Rows& Rows::scalar(const at::Tensor& tensor) {
  next(tensor);
  strides_[count_++].at.fill(0);
  return *this;
}

Rows& Rows::number(double value) {
  npu_operand& operand = operands_[count_];
  operand.flags = NPU_OPERAND_IMMEDIATE;
  operand.dtype = NPU_F64;
  std::memcpy(&operand.addr, &value, sizeof(value));
  strides_[count_++].at.fill(0);
  return *this;
}

// Folds commute, and rows may come in any order: walk memory forwards, as TensorIterator does.
std::array<int, Rows::kDims> Rows::sorted_dims() const {
  std::array<int, kDims> dims;
  std::array<int64_t, kDims> weight;
  for (int d = 0; d < rank_; ++d) {
    weight[d] = 0;
    for (int i = 0; i < count_; ++i) {
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

bool Rows::finish(npu_command& command, npu_command_kind kind) {
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
        for (int k = 0; k < count_ && joined; ++k) {
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
    throw Unsupported(label_);
  }
  const int pad = indexed_ ? NPU_MAX_RANK - rank : 0;
  command.struct_size = sizeof(command);
  command.kind = kind;
  command.rank = pad + rank;
  command.inner_rank = kind == NPU_MAP ? 0 : std::max(inner, 1);
  command.operands = operands_;
  command.operand_count = count_;
  command.label = label_;
  for (int d = 0; d < pad + rank; ++d) {
    const int from = d - pad;
    const bool real = from >= 0 && from < total;
    command.size[d] = real ? size_[order[from]] : 1;
    for (int i = 0; i < count_; ++i) {
      operands_[i].stride[d] = real ? strides_[i].at[order[from]] : 0;
    }
  }
  return true;
}

void Rows::go(npu_command& command, DeviceProgram* program, Params params) {
  if (program) {
    command.program = program->on(device_);
  }
  command.params = params.begin();
  command.param_count = static_cast<uint32_t>(params.size());
  submit(device_, command);
}

void Rows::reduce(DeviceProgram& program, Params params) {
  npu_command command{};
  if (finish(command, NPU_REDUCE)) {
    go(command, &program, params);
  }
}

void Rows::scan(DeviceProgram& program, Params params) {
  npu_command command{};
  if (finish(command, NPU_SCAN)) {
    go(command, &program, params);
  }
}

void Rows::map(DeviceProgram& program, Params params) {
  npu_command command{};
  if (finish(command, NPU_MAP)) {
    go(command, &program, params);
  }
}

void Rows::sort(int64_t count, bool descending, bool stable) {
  operands_[1].dtype = NPU_I64;
  npu_command command{};
  if (finish(command, NPU_SORT)) {
    command.u.sort.count = count;
    command.u.sort.descending = descending;
    command.u.sort.stable = stable;
    go(command, nullptr, {});
  }
}

}  // namespace torch_npu
