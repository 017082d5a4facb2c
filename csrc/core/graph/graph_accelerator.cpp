// torch.accelerator.Graph on this device. PyTorch has it from 2.12 on.
#if TORCH_NPU_TORCH_MINOR >= 12
#include <ATen/core/GraphImplInterface.h>

#include "csrc/core/graph/graph.h"

namespace torch_npu {
namespace {

class AcceleratorGraph final : public at::GraphImplInterface {
 public:
  explicit AcceleratorGraph(const at::GraphImplArgs&) {}
  // A stream is captured, whoever gives work to it: the modes, which say what other threads may do, make no difference.
  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode) override { graph_.capture_begin(pool); }
  void capture_end() override { graph_.capture_end(); }
  void instantiate() override {}
  void replay() override { graph_.replay(); }
  void reset() override { graph_.reset(); }
  at::MempoolId_t pool() const override { return graph_.pool(); }
  void enable_debug_mode() override {}
  void debug_dump(const std::string& path) override { graph_.debug_dump(path); }

 private:
  Graph graph_;
};

}  // namespace
}  // namespace torch_npu

namespace at {
// The key is the device's name, in capitals.
REGISTER_GRAPH_IMPL(NPU, torch_npu::AcceleratorGraph)
}  // namespace at
#endif
