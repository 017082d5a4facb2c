// Where random numbers come from. The stream of a random command is a function of --seed, of the test's name and of the
// command's number in it, so that no two tests, commands or seeds see the same numbers, and any command can be
// repeated.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace driver_test {

// A bijection of 64-bit numbers in which every bit of the result depends on every bit given (the finaliser of
// SplitMix64).
constexpr uint64_t scramble(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

constexpr uint64_t stream_of(uint64_t seed, std::string_view test, uint64_t number) {
  uint64_t name = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : test) name = (name ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return scramble(scramble(scramble(seed + 0x9E3779B97F4A7C15u) + name) + number);
}

// A small, fast generator: the n-th number is scrambled from n under a key, so that two streams are never one stream
// seen from two places.
class Random {
 public:
  explicit Random(uint64_t stream) : key_(stream) {}
  uint64_t next() { return scramble(key_ ^ scramble(++count_ * 0x9E3779B97F4A7C15u)); }
  int64_t below(int64_t n) { return n <= 1 ? 0 : static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }

 private:
  uint64_t key_, count_ = 0;
};

}  // namespace driver_test
