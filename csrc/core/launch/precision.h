// The switch for fast products: torch.npu.matmul.allow_bf16_reduced_precision.
#pragma once

namespace torch_npu {

// While it is on, MATMUL and CONV carry NPU_MATMUL_REDUCED: a driver may round their F32 inputs to BF16.
bool reduced_products() noexcept;
void set_reduced_products(bool on) noexcept;

}  // namespace torch_npu
