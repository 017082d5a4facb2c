// A driver that refuses every command and makes each from others all the same: `make` writes the drafts, the reference
// runs them. So a rule alone is tried with whatever tests drivers.
#pragma once
#include <functional>

#include "npu/runtime.h"
#include "support/legalise/rules/rule.h"

namespace legalise_test {

// False: it does not fit, and the driver says NPU_UNSUPPORTED.
using Make = std::function<bool(const npu::legalise::Draft& refused, npu::legalise::Script& script)>;

// One for the process; what it makes commands of is `make` from now on.
const npu_driver* making_driver(Make make);

}  // namespace legalise_test
