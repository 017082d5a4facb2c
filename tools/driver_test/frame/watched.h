// The driver's table with a witness in front of every function: it notes the call before it is made (flight.h), and it
// gives the driver memory of its own, which it overwrites as soon as the call has returned. runtime.h: "Memory behind a
// pointer argument is read or written during the call only". A driver that keeps a pointer to operands, params, a
// program's instructions or the bytes of a copy reads kOverwritten there.
#pragma once
#include "npu/runtime.h"

namespace driver_test {

constexpr unsigned char kOverwritten = 0x5a;

// One per process; `driver` has a complete table (npu::table_problem).
const npu_driver* watched(const npu_driver* driver);

}  // namespace driver_test
