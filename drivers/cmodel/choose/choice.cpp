#include "drivers/cmodel/choose/choice.h"

namespace cmodel {
namespace {

using C = Choice;
// Numbers are remembered: add at the end.
constexpr Wish kMatmul[] = {
    {"", {}},
    {"tile=112x128", {0, C::kTiles, 112, 128}},
    {"tile=112x256", {0, C::kTiles, 112, 256}},
    {"tile=56x512", {0, C::kTiles, 56, 512}},
    {"tile=224x128", {0, C::kTiles, 224, 128}},
    {"tile=224x512", {0, C::kTiles, 224, 512}},
    {"tile=448x64", {0, C::kTiles, 448, 64}},
    {"tile=448x256", {0, C::kTiles, 448, 256}},
    {"transposed=no", {0, C::kTiles, 0, 0, C::kNo}},
    {"transposed=yes", {0, C::kTiles, 0, 0, C::kYes}},
    {"packed=left", {0, C::kTiles, 0, 0, C::kDecide, C::kYes}},
    {"packed=right", {0, C::kTiles, 0, 0, C::kDecide, C::kNo}},
    {"way=tiles", {0, C::kTiles}},
    {"way=dense", {0, C::kDense}},
    {"way=vectors", {0, C::kVectors}},
};
constexpr Wish of_points(const char* text, int points) {
  return {text, {0, C::kAny, 0, 0, C::kDecide, C::kDecide, points}};
}
constexpr Wish kMap[] = {
    {"", {}},
    of_points("tile=512", 512),
    of_points("tile=1024", 1024),
    of_points("tile=2048", 2048),
    of_points("tile=4096", 4096),
    of_points("tile=16384", 16384),
};
constexpr Wish kOther[] = {{"", {}}};

constexpr int kLimits = std::size(kThreadLimits);

}  // namespace

std::span<const Wish> wishes_of(const npu_command& c) {
  if (c.kind == NPU_MATMUL && c.u.matmul.acc_dtype == NPU_F32) return kMatmul;
  if (c.kind == NPU_MAP) return kMap;
  return kOther;
}

uint8_t number_of(int wish, int limit) {
  return static_cast<uint8_t>(1 + wish * kLimits + limit);
}

bool is_choice(const npu_command& command) {
  const bool measured =
      command.kind == NPU_MATMUL || command.kind == NPU_MAP || command.kind == NPU_REDUCE || command.kind == NPU_SCAN;
  return measured && command.choice >= 2 && command.choice <= int(wishes_of(command).size()) * kLimits;
}

Choice choice_of(const npu_command& command) {
  if (command.choice == 0 || !is_choice(command)) return {};
  const int number = command.choice - 1;
  Choice choice = wishes_of(command)[size_t(number / kLimits)].choice;
  choice.threads = kThreadLimits[number % kLimits];
  return choice;
}

}  // namespace cmodel
