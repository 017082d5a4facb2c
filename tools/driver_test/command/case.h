// One command with its memory, run on the driver and on the reference, and the comparison of the two.
#pragma once
#include <optional>

#include "npu/command.h"
#include "support/program/program.h"
#include "tools/driver_test/command/builder.h"
#include "tools/driver_test/command/compare.h"
#include "tools/driver_test/frame/rig.h"

namespace driver_test {

// What random elements look like.
enum class Data {
  kSmall,    // small whole numbers: sums and products of a few hundred are exact in every type and order
  kReal,     // [-2, 2]
  kSpecial,  // kReal with NaN, infinities, -0, subnormals and extremes; whole-width integers
  kZero,
};

// What became of a command.
struct Ran {
  bool supported = true;
  std::string failed;          // a sentence; empty: all is right
  npu_status status = NPU_OK;  // what the driver said,
  npu_status expected = NPU_OK;
  std::string text;            // ... and its words
  std::optional<Wrong> wrong;  // where results differ
  std::vector<Buffer> want, got;
};

struct Case : View {
  Tolerance tolerance;
  bool same_nans = false;  // to the last bit
  uint8_t choice = 0;      // of the command when it is submitted
  bool by_budget = false;  // of no known sort: what may differ is found by trying (support/verify/budget.h)
  // Replaces the comparison of one buffer (-1: none): gets the initial, the expected and the driver's buffers.
  int checked_buffer = -1;
  std::function<void(const std::vector<Buffer>& before, const Buffer& want, const Buffer& got)> check;

  Case(npu_command_kind kind, std::vector<int64_t> size, int inner_rank = 0);
  void set(const Builder& builder) { program = builder.program; }
  void sharpen(const Context& context);  // no tolerance, where --exact or --exact-sums asks for it

  // Adds an operand over the first `rank` dimensions (-1: all) of `size` (the command's if empty), in a buffer of its
  // own with room around it; other strides are 0. The layout is row-major, or random: permuted, gaps, backwards, and
  // broadcast where it is only read.
  uint32_t input(Random& random, int dtype, Data data, bool plain = false, int rank = -1,
                 std::vector<int64_t> size = {});
  uint32_t output(Random& random, int dtype, bool plain = false, int rank = -1, std::vector<int64_t> size = {});
  // With these strides, one per dimension of `size`; `room` elements before and behind what is touched.
  uint32_t at_strides(Random& random, int dtype, Data data, const std::vector<int64_t>& size,
                      const std::vector<int64_t>& strides, int64_t room = 3);
  // A table for load_at and store_at: `elements` long, strides 0, limit set.
  uint32_t table(Random& random, int dtype, int64_t elements, Data data);
  uint32_t immediate(Random& random, int dtype, Data data);
  void alias(uint32_t operand);  // adds an operand that is `operand` again: in place
  int buffer_of(uint32_t operand) const { return places[operand].buffer; }
  int64_t offset_of(uint32_t operand) const { return places[operand].offset; }

  // Runs it, and throws Failed with all that is known of a failure: explain/run.cpp. Counts the case, and whether it
  // was supported. False: the driver does not support it.
  bool run(Rig& rig);
  // Allocates and uploads, submits, synchronises, downloads, compares.
  Ran attempt(Rig& rig);
  std::string describe() const;
  std::string place_of(size_t buffer, int64_t element) const;  // "operand 2 at [0, 5]"
  // As a recording that npu-replay reads, with the reference's results. After run(), which gives addresses.
  void save(const std::string& path);

 private:
  uint32_t add(Random& random, int dtype, Data data, bool plain, bool written, int rank, std::vector<int64_t> size);
  uint32_t place(Random& random, int dtype, Data data, const std::vector<int64_t>& size,
                 const std::vector<int64_t>& strides, int64_t before, int64_t after);
  void launch(Rig& rig, npu_program* handle, Ran& ran);
  void judge(Rig& rig, Ran& ran);
  std::optional<Wrong> judge_by_budget(const Ran& ran, bool exact);
};

void fill(Random& random, Buffer& buffer, Data data);

// What makes random commands of one sort. All of them are tests, and --random mixes them.
struct Maker {
  std::string name;
  Case (*make)(Random&);
};
std::vector<Maker>& makers();

struct RegisterRandom {
  RegisterRandom(const char* name, Case (*make)(Random&));
};
// RANDOM_TEST("behaviour, stated", function that makes a case)
#define RANDOM_TEST(name, make) static driver_test::RegisterRandom NPU_JOIN(register_, __LINE__)(name, make)

// --random: `count` commands of all sorts, mixed. The exit status; a failure is printed, and saved where `save` is a
// path.
int run_random(Context context, int64_t count, const std::string& filter, const std::string& save);

// Runs the cases with these numbers, each with a stream of its own; which one it was is printed when it fails, and
// --case repeats it.
void cases(Context& context, const std::vector<int64_t>& numbers, const std::function<void(Random&, int64_t)>& run);
// --count random cases.
void random_cases(Context& context, Rig& rig, const std::function<Case(Random&)>& make);
// Throws NotSupported if no case was supported, and writes the counts to the note otherwise.
void conclude(Context& context);

const std::vector<int>& all_dtypes();
// Strides of memory whose dimensions lie in this order, the innermost last; dimensions that are left out broadcast.
std::vector<int64_t> strides_in_order(const std::vector<int64_t>& size, const std::vector<int>& order);
// Sizes of tiles that hardware has, one less and one more.
const std::vector<int64_t>& tile_sizes();
std::vector<int64_t> random_sizes(Random& random, int least_rank, int most_rank, int64_t most_points = 4000);

}  // namespace driver_test
