// Ways to run a command that the C model announces (npu_driver::choices), and what a command's `choice` asks for.
#pragma once
#include <cstdint>
#include <vector>

#include "npu/runtime.h"

namespace cmodel {

// Zeros: as the engine decides.
struct Choice {
  enum Kernel : uint8_t { kAny, kTiles, kBlas, kVectors };
  enum Answer : uint8_t { kDecide, kNo, kYes };
  int threads = 0;  // at most
  // MATMUL
  Kernel kernel = kAny;
  int rows = 0, cols = 0;      // of a tile of the result
  Answer turned = kDecide;     // compute the transposed result
  Answer left_once = kDecide;  // pack the left operand once and the right one in pieces, or the other way round
  // MAP
  int tile = 0;  // points
};

// What the command asks for; nothing in particular if its number is none of ours.
Choice choice_of(const npu_command& command);
// Whether `choice` of the command is a number that commands of its kind and types may have.
bool is_choice(const npu_command& command);
// What may be worth measuring for this command, which is valid.
std::vector<npu_choice> choices_for(const npu_command& command);

}  // namespace cmodel
