// Captured graphs, as torch.cuda.CUDAGraph: the commands that streams would have run between capture_begin and
// capture_end, given to the current stream again by replay. Addresses are those of the capture, so memory that was
// allocated in it stays in a private pool as long as the graph lives.
#pragma once
#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>
#include <string>

#include "csrc/core/device/device.h"

namespace torch_npu {

struct Capture;

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;

  // Of the current stream of the current device, which must not be the default stream. pool {0, 0}: one of its own.
  void capture_begin(c10::MempoolId_t pool);
  void capture_end();
  // On the current stream of the device.
  void replay();
  // Forgets the commands and lets go of the memory. May be captured again.
  void reset();
  c10::MempoolId_t pool() const;
  // The commands in order, as text.
  void debug_dump(const std::string& path) const;
  size_t size() const;

 private:
  Capture& finished(const char* doing) const;
  std::shared_ptr<Capture> capture_;
};

// A name for a pool that several graphs can share.
c10::MempoolId_t graph_pool_handle();

}  // namespace torch_npu
