// What a command's `choice` asks for (npu_driver::choices), and the numbers of these wishes.
#pragma once
#include <cstdint>
#include <span>

#include "npu/command.h"

namespace cmodel {

// Zeros: as the engine decides.
struct Choice {
  enum Kind : uint8_t { kAny, kVectors, kTiles, kDense };
  enum Answer : uint8_t { kDecide, kNo, kYes };
  int threads = 0;  // at most
  // MATMUL
  Kind way = kAny;              // product/matmul.h
  int rows = 0, cols = 0;       // of a tile of the result
  Answer transposed = kDecide;  // compute the transposed result
  Answer left_once = kDecide;   // pack the left operand once and the right one in pieces, or the other way round
  // MAP
  int tile = 0;  // points
};

// A wish that commands of some kind may have, with any number of threads.
struct Wish {
  const char* text;
  Choice choice;
};

// How many threads, at most; 0: all.
constexpr int kThreadLimits[] = {0, 1, 2, 4};

// Wishes that commands of this kind and type may have; the first asks for nothing.
std::span<const Wish> wishes_of(const npu_command& command);
// The number of a wish with one of kThreadLimits.
uint8_t number_of(int wish, int limit);
// Whether `choice` of the command is such a number.
bool is_choice(const npu_command& command);
// What the command asks for; nothing in particular if its number is none of ours.
Choice choice_of(const npu_command& command);

}  // namespace cmodel
