// What the rules of products make: how many commands, and how much scratch. That they are right is tested elsewhere,
// with random commands.
#include <algorithm>
#include <cstring>
#include <optional>

#include "support/legalise/rules/rule.h"
#include "support/reference/reference.h"
#include "tests/cpp/harness/harness.h"

namespace {

using npu::legalise::Draft;
using npu::legalise::Operand;
using npu::legalise::Rule;
using npu::legalise::Script;

struct Made {
  std::vector<Draft> drafts;
  std::vector<uint64_t> scratch;
  size_t count(npu_command_kind kind) const {
    return static_cast<size_t>(
        std::count_if(drafts.begin(), drafts.end(), [&](const Draft& draft) { return draft.command.kind == kind; }));
  }
};

// What a rule of this name makes; nothing if it does not fit.
std::optional<Made> make(const char* name, const Draft& refused) {
  for (const Rule& rule : npu::legalise::rules()) {
    if (std::strcmp(rule.name, name) != 0) continue;
    Made made;
    const std::vector<uint32_t> aliases = {0, 1, 2};
    Script script(made.scratch, aliases);
    if (!rule.make(refused, script)) return std::nullopt;
    made.drafts = script.drafts;
    return made;
  }
  harness::fail(std::string("expected a rule of the name ") + name);
  return std::nullopt;
}

Operand operand(uint32_t number, const std::vector<int64_t>& strides) {
  Operand out;
  out.form.dtype = NPU_F32;
  npu::legalise::set_strides(out.form, strides);
  out.place = {npu::legalise::Place::kOperand, number, 0};
  return out;
}

Operand dense(uint32_t number, const std::vector<int64_t>& size) {
  return operand(number, npu::legalise::dense_strides(size));
}

// A convolution of square images, stride 1, of kernel size 2 * padding + 1.
Draft conv(npu_conv_mode mode, int64_t batch, int64_t channels, int64_t groups, int64_t extent, int64_t padding) {
  const int64_t kernel = 2 * padding + 1;
  const std::vector<int64_t> image = {batch, channels, extent, extent};
  const std::vector<int64_t> weight = {channels, channels / groups, kernel, kernel};
  const bool weight_grad = mode == NPU_CONV_GRAD_WEIGHT;
  Draft draft(NPU_CONV, weight_grad ? weight : image);
  npu_conv& form = draft.command.u.conv;
  form.mode = mode;
  form.spatial_rank = 2;
  form.batch = batch;
  form.in_channels = form.out_channels = channels;
  form.groups = groups;
  form.acc_dtype = NPU_F32;
  for (int d = 0; d < 2; ++d) {
    form.in_size[d] = form.out_size[d] = extent;
    form.kernel[d] = kernel;
    form.stride[d] = form.dilation[d] = 1;
    form.padding[d] = padding;
  }
  draft.operands = {dense(0, image), dense(1, weight_grad ? image : weight), dense(2, draft.size())};
  return draft;
}

Draft matmul(const std::vector<int64_t>& size, int64_t k, const std::vector<int64_t>& a,
             const std::vector<int64_t>& b) {
  Draft draft(NPU_MATMUL, size);
  draft.command.u.matmul.k = k;
  draft.command.u.matmul.acc_dtype = NPU_F32;
  draft.operands = {operand(0, a), operand(1, b), dense(2, size)};
  return draft;
}

// Runs what a rule made by the reference, on host memory.
void run(const Made& made, const std::vector<void*>& operands) {
  std::vector<std::vector<char>> scratch;
  for (const uint64_t bytes : made.scratch) scratch.emplace_back(bytes);
  for (const Draft& draft : made.drafts) {
    npu_command command = draft.command;
    std::vector<npu_operand> bound;
    for (const Operand& part : draft.operands) {
      const auto [kind, number, offset] = part.place;
      npu_operand& form = bound.emplace_back(part.form);
      if (kind == npu::legalise::Place::kLiteral) continue;
      char* base =
          kind == npu::legalise::Place::kScratch ? scratch[number].data() : static_cast<char*>(operands[number]);
      form.addr = reinterpret_cast<npu_addr>(base + offset);
    }
    command.operands = bound.data();
    command.operand_count = static_cast<uint32_t>(bound.size());
    const npu_program_desc desc = draft.program ? draft.program->desc() : npu_program_desc{};
    std::string error;
    const auto translate = [](npu_addr addr, uint64_t, bool) { return reinterpret_cast<void*>(addr); };
    EQUAL(npu::run_reference(command, draft.program ? &desc : nullptr, translate, &error), NPU_OK);
  }
}

// [3, terms] times [terms, 2] of u8, all 255 but for one, into i32: what a rule makes of it.
std::vector<int32_t> product_of_bytes(const char* rule, int64_t terms) {
  Draft draft = matmul({3, 2}, terms, {terms, 1}, {2, 1});
  draft.command.u.matmul.acc_dtype = NPU_I32;
  draft.operands[0].form.dtype = draft.operands[1].form.dtype = NPU_U8;
  draft.operands[2].form.dtype = NPU_I32;
  std::vector<uint8_t> a(static_cast<size_t>(3 * terms), 255), b(static_cast<size_t>(2 * terms), 255);
  a.back() = 254;
  std::vector<int32_t> result(6, -1);
  const auto made = make(rule, draft);
  CHECK(made);
  if (made) run(*made, {a.data(), b.data(), result.data()});
  return result;
}

constexpr const char* kWindows = "convolution, as products of windows";
constexpr const char* kThree = "product of at most three dimensions";
constexpr const char* kMaps = "product, as sums of rows in MAPs";

}  // namespace

TEST(a_convolution_of_one_by_one_is_one_product) {
  const auto made = make(kWindows, conv(NPU_CONV_FORWARD, 8, 64, 1, 56, 0));
  CHECK(made && made->drafts.size() == 1 && made->count(NPU_MATMUL) == 1 && made->scratch.empty());
}

// Nine parts, for padding takes no part: each of a product, and of COPYs of its windows, its result or a weight.
TEST(a_convolution_of_three_by_three_is_few_commands) {
  for (const npu_conv_mode mode : {NPU_CONV_FORWARD, NPU_CONV_GRAD_INPUT, NPU_CONV_GRAD_WEIGHT}) {
    const auto made = make(kWindows, conv(mode, 1, 64, 1, 56, 1));
    CHECK(made);
    if (!made) continue;
    EQUAL(made->count(NPU_MATMUL), size_t{9});
    CHECK_NOTE(made->drafts.size() <= 30, "expected 30 commands at most, got " + std::to_string(made->drafts.size()));
  }
}

TEST(windows_that_are_large_are_laid_out_a_part_at_a_time) {
  constexpr uint64_t kImage = uint64_t{64} * 512 * 512 * 4;  // bytes; all of its windows are nine times that
  const auto made = make(kWindows, conv(NPU_CONV_FORWARD, 1, 64, 1, 512, 1));
  CHECK(made);
  if (!made) return;
  const uint64_t most = *std::max_element(made->scratch.begin(), made->scratch.end());
  CHECK_NOTE(most <= kImage, "expected no more scratch than the image has, got " + std::to_string(most) + " bytes");
}

TEST(a_depthwise_convolution_has_no_products_and_no_scratch) {
  const auto made = make("convolution of narrow groups, as sums in a MAP", conv(NPU_CONV_FORWARD, 8, 32, 32, 56, 1));
  CHECK(made && made->drafts.size() == 9 && made->count(NPU_MAP) == 9 && made->scratch.empty());
}

TEST(a_batch_that_lies_as_rows_is_one_product) {
  const auto made = make(kThree, matmul({4, 6, 16, 8}, 32, {6 * 16 * 32, 16 * 32, 32, 1}, {0, 0, 8, 1}));
  CHECK(made && made->drafts.size() == 1 && made->drafts[0].command.rank == 2);
  if (made) EQUAL(made->drafts[0].command.size[0], int64_t{4 * 6 * 16});
}

TEST(two_batch_dimensions_that_lie_as_one_are_one_product) {
  const auto made = make(kThree, matmul({4, 6, 16, 8}, 32, {6 * 16 * 32, 16 * 32, 32, 1}, {6 * 256, 256, 8, 1}));
  CHECK(made && made->drafts.size() == 1 && made->drafts[0].command.rank == 3);
}

TEST(a_batch_of_too_many_for_a_command_each_is_refused) {
  const auto made = make("product of two dimensions", matmul({5000, 16, 8}, 32, {512, 32, 1}, {256, 8, 1}));
  CHECK(!made);
}

TEST(a_long_sum_is_few_maps_of_bounded_scratch) {
  const auto made = make(kMaps, matmul({64, 64}, 100000, {100000, 1}, {64, 1}));
  CHECK(made);
  if (!made) return;
  CHECK_NOTE(made->drafts.size() <= 64, "expected 64 MAPs at most, got " + std::to_string(made->drafts.size()));
  for (const uint64_t bytes : made->scratch) CHECK(bytes <= uint64_t{4} * (1 << 22) + 4 * 64 * 64);
}

// 255 * 255 * 258 is the last sum below 2^24.
TEST(an_integer_product_in_floats_is_exact_where_its_sums_are_not_f32) {
  for (const char* rule : {"integer product, in f32", "integer product, in bf16"}) {
    const std::vector<int32_t> result = product_of_bytes(rule, 1001);
    const int32_t full = 255 * 255 * 1001;
    CHECK((result == std::vector<int32_t>{full, full, full, full, full - 255, full - 255}));
  }
  CHECK(!make("integer product, in f32", matmul({3, 2}, 8, {8, 1}, {2, 1})));
}

// Terms that no number of pieces divides: there is a rest.
TEST(a_sum_in_pieces_has_every_term) {
  for (const int64_t terms : {767, 769, 3001, 5003}) {
    const std::vector<int32_t> result = product_of_bytes("product, as sums in MAPs", terms);
    const auto full = static_cast<int32_t>(255 * 255 * terms);
    CHECK((result == std::vector<int32_t>{full, full, full, full, full - 255, full - 255}));
  }
}
