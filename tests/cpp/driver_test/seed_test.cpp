// The random streams of the driver test: no test, command or --seed sees the numbers of another.
#include <algorithm>

#include "tests/cpp/harness/harness.h"
#include "tools/driver_test/frame/seed.h"

using driver_test::Random;
using driver_test::stream_of;

TEST(streams_of_tests_cases_and_seeds_are_all_different) {
  std::vector<uint64_t> seen;
  for (uint64_t seed = 0; seed < 50; seed++)
    for (int test = 0; test < 50; test++) {
      const std::string name = "MAP: behaviour number " + std::to_string(test);
      for (uint64_t number = 0; number < 200; number++) seen.push_back(stream_of(seed, name, number));
    }
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

// Of a generator that walks along one circle, the next seed's stream would be this one's from its second number on.
TEST(neighbouring_streams_share_no_numbers) {
  std::vector<uint64_t> seen;
  for (uint64_t seed = 0; seed < 40; seed++)
    for (uint64_t number = 0; number < 40; number++) {
      Random random(stream_of(seed, "COPY: random types", number));
      for (int i = 0; i < 100; i++) seen.push_back(random.next());
    }
  for (uint64_t key = 0; key < 1000; key++) {
    Random random(key);
    for (int i = 0; i < 100; i++) seen.push_back(random.next());
  }
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

TEST(the_same_case_is_the_same_numbers_again) {
  Random one(stream_of(7, "SORT", 3)), two(stream_of(7, "SORT", 3));
  for (int i = 0; i < 100; i++) EQUAL(one.next(), two.next());
}
