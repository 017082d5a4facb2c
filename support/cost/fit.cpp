#include "support/cost/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

namespace npu {
namespace {

struct Parameter {
  const char* key;
  double Chip::* value;
  double least;
  double trial;  // where the search begins for one that is 0
};

// What times tell. The sides of the matrix engine are found apart, because they are whole numbers.
constexpr Parameter kParameters[] = {
    {"launch_cycles", &Chip::launch_cycles, 0, 100},        {"memory.dram_gbps", &Chip::dram_gbps, 1e-6, 100},
    {"matrix.fill_cycles", &Chip::fill_cycles, 0, 16},      {"matrix.f32_passes", &Chip::f32_passes, 1e-3, 1},
    {"matrix.int8_rate", &Chip::int8_rate, 1e-3, 1},        {"matrix.unfold_cycles", &Chip::unfold_cycles, 0, 0.1},
    {"vector.op_cycles", &Chip::op_cycles, 0, 1},           {"vector.function_cycles", &Chip::function_cycles, 0, 8},
    {"vector.fold_cycles", &Chip::fold_cycles, 0, 1},       {"vector.gather_cycles", &Chip::gather_cycles, 0, 1},
    {"vector.scatter_cycles", &Chip::scatter_cycles, 0, 1}, {"vector.op_launch_cycles", &Chip::op_launch_cycles, 0, 10},
};
constexpr std::array kSides = {4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0};

double ratio(const Chip& chip, const Sample& sample) {
  const double predicted = predict(chip, sample.work).total / chip.clock_mhz / 1000;
  return std::max(predicted, 1e-12) / sample.milliseconds;
}

// The mean of how far the logarithms are apart: a command that is off by half counts as one that is off by two, and few
// that the model cannot explain do not pull the others away.
double error(const Chip& chip, std::span<const Sample> samples) {
  double sum = 0;
  for (const Sample& sample : samples) sum += std::abs(std::log(ratio(chip, sample)));
  return sum / static_cast<double>(samples.size());
}

// One parameter after the other is made larger or smaller as long as that helps, by steps that become finer.
double descend(Chip& chip, std::span<const Sample> samples) {
  double best = error(chip, samples);
  for (double step = 4; step > 1.01; step = std::sqrt(step)) {
    for (bool better = true; better;) {
      better = false;
      for (const Parameter& parameter : kParameters) {
        double& value = chip.*parameter.value;
        const double before = value;
        for (const double next : {before > 0 ? before * step : parameter.trial * (step - 1), before / step, 0.0}) {
          value = std::max(next, parameter.least);
          const double now = error(chip, samples);
          if (now < best - 1e-9) {
            best = now;
            better = true;
            break;
          }
          value = before;
        }
      }
    }
  }
  return best;
}

bool matters(const Chip& chip, const Parameter& parameter, std::span<const Sample> samples) {
  Chip other = chip;
  other.*parameter.value = std::max(chip.*parameter.value, parameter.trial) * 8;
  return std::any_of(samples.begin(), samples.end(),
                     [&](const Sample& s) { return ratio(other, s) > ratio(chip, s) * 1.001; });
}

}  // namespace

Fit fit_chip(const Chip& start, std::span<const Sample> samples) {
  if (samples.empty()) throw std::invalid_argument("expected commands with a time, got none");
  Fit fit;
  fit.chip = start;
  double best = descend(fit.chip, samples);
  for (const double side : kSides) {
    Chip chip = start;
    chip.rows = chip.columns = side;
    if (const double now = descend(chip, samples); now < best - 1e-6) {
      best = now;
      fit.chip = chip;
    }
  }
  std::vector<double> ratios;
  for (const Sample& sample : samples) {
    const double one = ratio(fit.chip, sample);
    ratios.push_back(std::max(one, 1 / one));
  }
  std::sort(ratios.begin(), ratios.end());
  fit.median_ratio = ratios[ratios.size() / 2];
  fit.worst_ratio = ratios.back();
  for (const Parameter& parameter : kParameters)
    if (!matters(fit.chip, parameter, samples)) {
      fit.chip.*parameter.value = start.*parameter.value;
      fit.unknown.emplace_back(parameter.key);
    }
  return fit;
}

}  // namespace npu
