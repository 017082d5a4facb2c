// A driver's table that never refuses what a rule can make: for tools and frameworks that take the contract as it is.
// csrc does the same where it launches (csrc/core/launch), with PyTorch's memory.
#pragma once
#include "npu/runtime.h"
#include "support/legalise/legaliser.h"

namespace npu::legalise {

// One per driver and for ever; handles are the driver's own. At most eight drivers; null beyond that.
const npu_driver* legalised(const npu_driver* driver);

// Who hears of the decisions of devices that are opened from now on.
void tell_decisions(Legaliser::Tell tell);

}  // namespace npu::legalise
