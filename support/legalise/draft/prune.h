// What a program does not need: a rule may write freely, and prune at the end.
#pragma once
#include "support/legalise/draft/draft.h"

namespace npu::legalise {

// Takes out instructions whose value nothing uses, and the operands, parameters and constants that no instruction
// names. Folds and scans stay.
void prune(Draft& draft);

}  // namespace npu::legalise
