// Random numbers in captured graphs. A capture cannot know what a generator will stand at when the graph is replayed,
// so programs get a stand-in for the seed, and every replay puts numbers in its place. The stand-in may leave the
// graph: what a forward pass drew belongs to its backward pass, which can be a graph of its own or run outside of any.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "csrc/core/random/generator.h"
#include "npu/command.h"

namespace torch_npu {

class GraphRandom {
 public:
  GraphRandom() = default;
  ~GraphRandom();
  GraphRandom(const GraphRandom&) = delete;

  // While captured: a stand-in for the seed, and an offset from what a replay will start at.
  std::pair<uint64_t, uint64_t> draw(NPUGeneratorImpl* generator, uint64_t increment);
  // Remembers which of params[first...] are stand-ins, of this graph or of another. Programs take the offset right
  // behind the seed.
  void look_through(const std::vector<npu_scalar>& params, size_t first);
  // At each replay: draws from the generators and fills in what look_through found.
  void fill(std::vector<npu_scalar>& params);

 private:
  struct Source {
    c10::intrusive_ptr<NPUGeneratorImpl> generator;
    uint64_t stand_in, drawn = 0;
  };
  struct Draw {
    size_t param;  // of the seed
    uint64_t stand_in, offset;
  };
  std::vector<Source> sources_;
  std::vector<Draw> draws_;
};

// Seed and offset that a forward pass handed to its backward pass: the numbers of the last replay, if they are from a
// graph.
std::pair<uint64_t, uint64_t> numbers_of(uint64_t seed, uint64_t offset);

}  // namespace torch_npu
