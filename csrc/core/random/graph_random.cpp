#include "csrc/core/random/graph_random.h"

#include <c10/util/Exception.h>

#include <map>
#include <mutex>
#include <optional>

namespace torch_npu {
namespace {

// Where the last replay started, by stand-in; none before the first replay.
struct Starts {
  std::mutex mutex;
  uint64_t next = 0x9d2c5680ca000000;  // a parameter that is one of these by chance would be taken for a seed
  std::map<uint64_t, std::optional<std::pair<uint64_t, uint64_t>>> all;
};

Starts& starts() {
  static auto* starts = new Starts;
  return *starts;
}

std::pair<uint64_t, uint64_t> start_of(uint64_t stand_in) {
  std::lock_guard lock(starts().mutex);
  const auto found = starts().all.find(stand_in);
  TORCH_CHECK(found != starts().all.end() && found->second,
              "expected a replay of the graph whose random numbers are used, got none yet");
  return *found->second;
}

}  // namespace

GraphRandom::~GraphRandom() {
  // What was drawn may still wait for its backward pass; 40 bytes are kept for it.
  std::lock_guard lock(starts().mutex);
  for (const Source& source : sources_)
    if (const auto found = starts().all.find(source.stand_in); !found->second) starts().all.erase(found);
}

std::pair<uint64_t, uint64_t> GraphRandom::draw(NPUGeneratorImpl* generator, uint64_t increment) {
  auto source = sources_.begin();
  while (source != sources_.end() && source->generator.get() != generator) ++source;
  if (source == sources_.end()) {
    std::lock_guard lock(starts().mutex);
    sources_.push_back({c10::intrusive_ptr<NPUGeneratorImpl>::reclaim_copy(generator), starts().next++});
    source = sources_.end() - 1;
    starts().all[source->stand_in] = std::nullopt;
  }
  const uint64_t offset = source->drawn;
  source->drawn += (increment + 3) / 4 * 4;
  return {source->stand_in, offset};
}

void GraphRandom::look_through(const std::vector<npu_scalar>& params, size_t first) {
  std::lock_guard lock(starts().mutex);
  if (starts().all.empty()) return;
  for (size_t k = first; k + 1 < params.size(); ++k)
    if (starts().all.count(params[k].u)) draws_.push_back({k, params[k].u, params[k + 1].u});
}

void GraphRandom::fill(std::vector<npu_scalar>& params) {
  for (const Source& source : sources_) {
    std::lock_guard generator_lock(source.generator->mutex_);
    std::lock_guard lock(starts().mutex);
    starts().all[source.stand_in] = source.generator->philox_engine_inputs(source.drawn);
  }
  for (const Draw& draw : draws_) {
    const auto [seed, offset] = start_of(draw.stand_in);
    params[draw.param].u = seed;
    params[draw.param + 1].u = offset + draw.offset;
  }
}

std::pair<uint64_t, uint64_t> numbers_of(uint64_t seed, uint64_t offset) {
  {
    std::lock_guard lock(starts().mutex);
    if (!starts().all.count(seed)) return {seed, offset};
  }
  const auto [first, start] = start_of(seed);
  return {first, start + offset};
}

}  // namespace torch_npu
