// A chip's file from times: of a chip that is known.
#include <algorithm>
#include <stdexcept>

#include "support/cost/fit.h"
#include "tests/cpp/harness/harness.h"

namespace {

npu::Chip some_chip() {
  npu::Chip chip;
  chip.clock_mhz = 800;
  chip.launch_cycles = 450;
  chip.rows = chip.columns = 32;
  chip.dram_gbps = 40;
  chip.function_cycles = 5;
  return chip;
}

// Small and large commands of each sort, as the model times them.
std::vector<npu::Sample> samples_of(const npu::Chip& chip) {
  std::vector<npu::Sample> samples;
  const auto add = [&](npu::Work work) {
    work.kind = work.k ? NPU_MATMUL : NPU_MAP;
    work.product = NPU_F32;
    samples.push_back({work, npu::predict(chip, work).total / chip.clock_mhz / 1000});
  };
  for (const int64_t points : {16, 500, 20'000, 3'000'000}) {
    npu::Work work;
    work.bytes = 8 * points;
    work.ops = points;
    work.instructions = 1;
    add(work);
    work.ops = 30 * points;
    work.instructions = 30;
    add(work);
    work.ops = 0;
    work.functions = {{uint8_t{NPU_OP_EXP}, 20 * points}};
    add(work);
  }
  for (const int64_t side : {8, 33, 64, 200, 512}) {
    npu::Work work;
    work.batch = 1;
    work.m = side;
    work.n = side + 5;
    work.k = 3 * side;
    work.bytes = 40 * side * side;
    add(work);
  }
  return samples;
}

}  // namespace

TEST(fit_finds_the_chip_that_the_times_came_from) {
  const npu::Chip chip = some_chip();
  npu::Chip start;
  start.clock_mhz = 800;
  const npu::Fit fit = npu::fit_chip(start, samples_of(chip));
  CHECK_NOTE(fit.worst_ratio < 1.15, "the worst command is off by " + std::to_string(fit.worst_ratio));
  CHECK_NOTE(fit.median_ratio < 1.03, "the usual command is off by " + std::to_string(fit.median_ratio));
  harness::check_near(fit.chip.dram_gbps, 40, 4, __FILE__, __LINE__);
  harness::check_near(fit.chip.launch_cycles, 450, 45, __FILE__, __LINE__);
}

TEST(fit_names_what_no_command_tells) {
  npu::Chip start;
  start.scatter_cycles = 7;
  const npu::Fit fit = npu::fit_chip(start, samples_of(some_chip()));
  EQUAL(fit.chip.scatter_cycles, 7.0);
  CHECK(std::find(fit.unknown.begin(), fit.unknown.end(), "vector.scatter_cycles") != fit.unknown.end());
  CHECK(std::find(fit.unknown.begin(), fit.unknown.end(), "launch_cycles") == fit.unknown.end());
}

TEST(fit_of_nothing_is_refused) {
  try {
    npu::fit_chip({}, {});
    harness::fail("expected a refusal");
  } catch (const std::invalid_argument& problem) {
    EQUAL(std::string(problem.what()), "expected commands with a time, got none");
  }
}

TEST(fit_a_chip_is_read_as_it_was_written) {
  npu::Chip chip = some_chip();
  chip.name = "a chip";
  chip.overlap = 0;
  chip.function[NPU_OP_EXP] = 3.5;
  const npu::Chip again = npu::parse_chip(npu::to_text(chip));
  EQUAL(npu::to_text(again), npu::to_text(chip));
  EQUAL(again.name, "a chip");
  EQUAL(again.overlap, 0.0);
  EQUAL(again.function.at(NPU_OP_EXP), 3.5);
}
