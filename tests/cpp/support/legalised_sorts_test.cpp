// What the rules for SORT and SCATTER promise beside right results: few commands, scratch in proportion, and work on
// what differs only.
#include <algorithm>
#include <cstring>

#include "support/legalise/planner.h"
#include "support/legalise/rules/rule.h"
#include "tests/cpp/harness/harness.h"

using namespace npu::legalise;

namespace {

struct Made {
  bool fits = false;
  std::vector<Draft> drafts;
  std::vector<uint64_t> scratch;
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const uint64_t one : scratch) sum += one;
    return sum;
  }
  const Draft* of(npu_command_kind kind) const {
    const auto is = [&](const Draft& draft) { return draft.command.kind == kind; };
    const auto found = std::find_if(drafts.begin(), drafts.end(), is);
    return found == drafts.end() ? nullptr : &*found;
  }
};

Made make(const char* name, const Draft& refused) {
  Made made;
  std::vector<uint32_t> aliases(refused.operands.size());
  for (uint32_t k = 0; k < aliases.size(); ++k) aliases[k] = k;
  Script script(made.scratch, aliases);
  for (const Rule& rule : rules())
    if (std::strcmp(rule.name, name) == 0) made.fits = rule.make(refused, script);
  made.drafts = script.drafts;
  return made;
}

Operand operand(uint32_t number, int dtype, const std::vector<int64_t>& strides, int64_t limit = 0) {
  Operand out;
  out.form.dtype = static_cast<uint8_t>(dtype);
  out.form.limit = limit;
  set_strides(out.form, strides);
  out.place = {Place::kOperand, number, 0};
  return out;
}

Draft sort_of(int64_t rows, int64_t n, int64_t count, int dtype) {
  Draft draft(NPU_SORT, {rows, n}, 1);
  draft.command.u.sort.count = count;
  Operand places = operand(1, NPU_I64, {});
  places.form.flags = NPU_OPERAND_IMMEDIATE;
  draft.operands = {operand(0, dtype, {n, 1}), places, operand(2, dtype, {count, 1}), operand(3, NPU_I64, {count, 1})};
  return draft;
}

Param known(int from, int64_t value) {
  npu_scalar scalar{};
  scalar.i = value;
  return {from, scalar, true};
}

constexpr const char* kRows = R"(
program rows(grad, index, out; size, stride)
each:
  %0 = load index : i64
  %1 = param size : i64
  %2 = check_index %0, %1, check
  %3 = param stride : i64
  %4 = mul %2, %3
  %5 = load grad : f32
  store_at out, %5, %4, add
)";

// The gradient of an embedding: tokens x width, into words x width.
Draft embedding(int64_t tokens, int64_t width, int64_t words) {
  Draft draft(NPU_SCATTER, {tokens, width});
  draft.operands = {operand(0, NPU_F32, {width, 1}), operand(1, NPU_I64, {1, 0}), operand(2, NPU_F32, {0, 1})};
  draft.params = {known(0, words), known(1, width)};
  draft.program = std::make_shared<const npu::Program>(npu::parse(kRows));
  return draft;
}

}  // namespace

TEST(a_network_exchanges_sixteen_items_at_a_point) {
  EQUAL(make("sorting network", sort_of(1, 1024, 1024, NPU_F32)).drafts.size(), size_t{17});
  EQUAL(make("sorting network", sort_of(64, 1024, 1024, NPU_F32)).drafts.size(), size_t{17});
  EQUAL(make("sorting network", sort_of(1, 32000, 32000, NPU_F32)).drafts.size(), size_t{36});
}

TEST(a_network_that_keeps_few_does_less_and_less) {
  const Made made = make("sorting network", sort_of(1, 32000, 50, NPU_F32));
  EQUAL(made.drafts.size(), size_t{26});
  int64_t points = 0;
  for (const Draft& draft : made.drafts) points += draft.points();
  CHECK(points < 3 * 32000);
}

TEST(a_network_has_scratch_for_its_items_only) {
  // Eight bytes for each of 1024 keys and places; twelve where a key has 64 bits.
  EQUAL(make("sorting network", sort_of(4, 1000, 1000, NPU_F32)).bytes(), uint64_t{4 * 1024 * 8});
  EQUAL(make("sorting network", sort_of(4, 1000, 1000, NPU_F64)).bytes(), uint64_t{4 * 1024 * 12});
}

TEST(few_results_are_found_by_as_many_folds) {
  const Made made = make("the least, again and again", sort_of(1, 32000, 3, NPU_F32));
  EQUAL(made.drafts.size(), size_t{5});
  CHECK(!make("the least, again and again", sort_of(1, 32000, 5, NPU_F32)).fits);
}

TEST(the_gradient_of_an_embedding_sorts_tokens_and_not_features) {
  const Made made = make("each element searches its points", embedding(512, 896, 151936));
  CHECK(made.fits);
  const Draft* sort = made.of(NPU_SORT);
  CHECK(sort && sort->points() == 512);
  // Values four times over, and a slot for each word.
  CHECK(made.bytes() < uint64_t{12 * 512 * 896 * 4 + 2 * 151936 * 4});
}

TEST(a_scatter_whose_bounds_nobody_knows_is_not_walked) {
  Draft draft = embedding(512, 896, 151936);
  draft.params[0].known = false;
  CHECK(!make("each element searches its points", draft).fits);
  draft.operands[2].form.limit = 151936 * 896;
  CHECK(make("each element searches its points", draft).fits);
}

TEST(a_set_that_another_rule_left_is_for_the_driver_alone) {
  const Made made = make("points that meet are combined first", embedding(512, 896, 151936));
  CHECK(made.fits && made.of(NPU_SCATTER) && made.of(NPU_SCATTER)->plain);
}

TEST(a_signature_has_the_numbers_that_say_where_a_scatter_stores) {
  const std::vector<uint32_t> aliases = {0, 1, 2};
  CHECK(signature(embedding(8, 4, 10), aliases) != signature(embedding(8, 4, 11), aliases));
}
