// Surviving bad chips: a driver that does not answer, crashes, or answers nonsense. Whoever loads drivers calls them
// through the table that stands here. docs/design/bad-chips.md.
#pragma once
#include "npu/runtime.h"

namespace npu::guard {

// The guarded table of a driver: every call is noted on the way. One per table and for ever. Null: there are too many.
//
// - A wait that lasts longer than the time limit is ended: the device is reset, and the call answers NPU_ERROR_TIMEOUT
//   with a text that names the commands that are not known to be done. Ctrl-C does the same when it comes twice.
// - A status that the contract does not have becomes NPU_ERROR_INTERNAL, with a text that has its number.
const npu_driver* guarded(const npu_driver* driver);

// Seconds that one call of a driver may take; 0, as at the start: any time.
void set_time_limit(double seconds);
double time_limit();

// From now on, a crash in a driver says on stderr which call and which commands were under way, and goes on as it would
// have gone on. Once per process.
void report_crashes();

}  // namespace npu::guard
