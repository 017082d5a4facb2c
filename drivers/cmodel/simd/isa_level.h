// Which instructions the C model may use: what the processor has, or less where NPU_CMODEL_ISA says so.
#pragma once

namespace cmodel {

enum class IsaLevel { kBase, kAvx2, kAvx512 };

IsaLevel isa_level();

}  // namespace cmodel
