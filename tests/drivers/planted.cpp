// The C model with one bug, as hardware has them: always at the same kind of command. Options: driver=[...] (the C
// model in exact mode), kind=MATMUL and last=84 (the commands concerned: their kind and last size), and bug=
//   rounding   one element of the result is off by its last bit
//   stride     one stride of an input is too small by one
//   stray      one byte behind the result is overwritten
//   index      the command fails with NPU_ERROR_INDEX
#include <cstring>
#include <stdexcept>

#include "support/loading/spec.h"
#include "support/program/op_info.h"
#include "support/verify/wrapper.h"

namespace npu {

const char* const wrapper_name = "planted";

namespace {

class Planted : public Watcher {
 public:
  explicit Planted(const std::string& options) {
    sides = {"cmodel:mode=exact"};
    for (const auto& [key, value] : parse_options(options)) {
      if (key == "driver")
        sides = {value};
      else if (key == "bug")
        bug_ = value;
      else if (key == "kind")
        kind_ = value;
      else if (key == "last")
        last_ = std::stoll(value);
      else
        throw std::invalid_argument("planted: did not expect " + key);
    }
  }

  Outcome run(Launch& launch) override {
    const npu_command& good = *launch.command;
    const bool concerned = kind_ == command_name(good.kind) && good.rank > 0 && good.size[good.rank - 1] == last_;
    if (concerned && bug_ == "index") return {NPU_ERROR_INDEX, "planted: a bad index"};
    npu_command command = good;
    std::vector<npu_operand> operands(good.operands, good.operands + good.operand_count);
    if (concerned && bug_ == "stride") shrink(operands, launch.regions, good.rank);
    command.operands = operands.data();
    const Outcome outcome = submit_to(launch, 0, command);
    if (outcome.status != NPU_OK) return outcome;
    for (const Region& region : launch.regions) {
      if (!region.write) continue;
      std::byte* bytes = launch.mirror().find(region.addr, region.size);
      read_side(*launch.stream, 0, region.addr, bytes, region.size);
      if (concerned && bug_ == "rounding" && is_float(region.dtype)) {
        const auto width = static_cast<uint64_t>(dtype_size(region.dtype));
        const uint64_t middle = region.size / width / 2 * width;
        bytes[middle] ^= std::byte{1};
        write_side(*launch.stream, 0, region.addr, bytes, region.size);
      }
      const npu_addr behind = region.addr + region.size;
      if (concerned && bug_ == "stray" && launch.mirror().find(behind, 1)) {
        const std::byte bad{0x5a};
        write_side(*launch.stream, 0, behind, &bad, 1);
      }
    }
    return outcome;
  }

 private:
  static void shrink(std::vector<npu_operand>& operands, const std::vector<Region>& regions, int rank) {
    for (const Region& region : regions)
      for (int d = 0; d < rank && region.read; ++d)
        if (operands[region.operand].stride[d] > 1) {
          --operands[region.operand].stride[d];
          return;
        }
  }

  std::string bug_ = "rounding", kind_ = "MATMUL";
  int64_t last_ = 84;
};

}  // namespace

std::unique_ptr<Watcher> make_watcher(const std::string& options) {
  return std::make_unique<Planted>(options);
}

}  // namespace npu
