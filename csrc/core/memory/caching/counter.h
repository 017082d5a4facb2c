// Statistics that cost a few adds. `freed` and the sums over both pools are worked out when someone asks.
#pragma once
#include <algorithm>
#include <cstdint>

#include "csrc/core/memory/caching/types.h"

namespace torch_npu::caching {

struct Counter {
  int64_t current[2] = {}, peak[2] = {}, allocated[2] = {};
  int64_t base[2] = {};  // current when the accumulated values were reset
  int64_t peak_of_both = 0;

  void add(bool large, int64_t amount) {
    current[large] += amount;
    allocated[large] += amount;
    peak[large] = std::max(peak[large], current[large]);
    peak_of_both = std::max(peak_of_both, current[0] + current[1]);
  }
  void sub(bool large, int64_t amount) { current[large] -= amount; }

  void reset_peak() {
    for (int k : {0, 1}) peak[k] = current[k];
    peak_of_both = current[0] + current[1];
  }
  void reset_accumulated() {
    for (int k : {0, 1}) {
      allocated[k] = 0;
      base[k] = current[k];
    }
  }
  StatGroup group() const {
    StatGroup out;
    for (int k : {0, 1}) {
      out.of[1 + k] = {current[k], peak[k], allocated[k], allocated[k] - current[k] + base[k]};
      out.of[0].current += out.of[1 + k].current;
      out.of[0].allocated += out.of[1 + k].allocated;
      out.of[0].freed += out.of[1 + k].freed;
    }
    out.of[0].peak = peak_of_both;
    return out;
  }
};

struct Counters {
  Counter allocation, segment, active, inactive_split;
  Counter allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  Counter oversize_allocations, oversize_segments;  // large only
  int64_t num_alloc_retries = 0, num_ooms = 0, num_sync_all_streams = 0, num_device_alloc = 0, num_device_free = 0;

  template <class F>
  void each(F f) {
    for (Counter* c :
         {&allocation, &segment, &active, &inactive_split, &allocated_bytes, &reserved_bytes, &active_bytes,
          &inactive_split_bytes, &requested_bytes, &oversize_allocations, &oversize_segments}) {
      f(*c);
    }
  }
};

}  // namespace torch_npu::caching
