// How long a chip that need not exist would take for a command: a small text file describes the chip, the command says
// what has to be computed and moved. docs/whatif.md has the model and its error.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "npu/command.h"
#include "npu/program.h"

namespace npu {

struct Chip {
  std::string name = "chip";
  double clock_mhz = 1000;
  double launch_cycles = 100;  // of a command, before anything of it runs
  double overlap = 1;          // 1: computes and moves at the same time; 0: one after the other

  // Of the matrix engine: an array of rows x columns multipliers that a step of k enters per cycle.
  double rows = 16, columns = 16;
  double fill_cycles = 32;   // of a tile of results: until the first result comes, and while the last ones leave
  double f32_passes = 1;     // products of narrower parts that make one of F32
  double int8_rate = 1;      // steps of int8 per cycle
  double unfold_cycles = 0;  // of an element of a convolution's window that is copied to where the array reads it

  // Of the vector unit.
  double lanes = 16;
  double op_cycles = 1;                // of an instruction, on as many points as there are lanes
  double function_cycles = 8;          // the same of exp, log, division, roots and the like
  std::map<uint8_t, double> function;  // of some of them, by NPU_OP_*
  double op_launch_cycles = 0;         // of an instruction, however many points: for units that run one after the other
  double fold_cycles = 0;              // of a row's fold, beside its points
  double gather_cycles = 0;            // of an element that is loaded under a mask or from a computed address
  double scatter_cycles = 0;           // of one that is stored there

  // Of the memories.
  double sram_kb = 1024;   // for tiles of products, and for rows that are read several times
  double dram_gbps = 100;  // 10^9 bytes a second
  double host_gbps = 16;   // between host and device
  double line_bytes = 1;   // what an element moves whose neighbours in memory are not wanted
};

// Throws std::invalid_argument: "line 3: expected ..., got ...". The keys are above, in sections as docs/whatif.md
// says.
Chip parse_chip(std::string_view text);
// The way back, a key per line; functions of a time of their own too.
std::string to_text(const Chip& chip);

// What a command's time depends on. Plain numbers, so that equal commands can be counted together.
struct Work {
  uint8_t kind = 0;     // npu_command_kind, or kTransfer
  uint8_t product = 0;  // npu_dtype of the factors
  int64_t batch = 0, m = 0, n = 0, k = 0;
  int64_t ops = 0;                                     // instructions times points, without functions
  std::vector<std::pair<uint8_t, int64_t>> functions;  // the same of each NPU_OP_* that is one
  int64_t instructions = 0;                            // of the program, without loads and constants
  int64_t unfolded = 0;                                // elements of a convolution's windows
  int64_t folds = 0, gathers = 0, scatters = 0;
  int64_t bytes = 0;                 // every operand once
  int64_t apart = 0;                 // elements of operands that have no neighbours
  int64_t again = 0, row_bytes = 0;  // bytes read once more by later segments, and of one row
  auto operator<=>(const Work&) const = default;
  static constexpr uint8_t kTransfer = 255;
};

Work work_of(const npu_command& command, const npu_program_desc* program);

struct Cycles {
  double matrix = 0, vector = 0, memory = 0, launch = 0, total = 0;
  const char* bound() const;  // what it waits for most: "matrix", "vector", "memory" or "launch"
};
Cycles predict(const Chip& chip, const Work& work);

}  // namespace npu
