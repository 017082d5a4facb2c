// Numbers of 64 bits in words: how long programs become, what is an address, what a sort takes. That the numbers are
// right is the matter of tests/codegen/test_words.py and of the driver test.
#include <algorithm>

#include "support/legalise/draft/prune.h"
#include "support/legalise/numbers/in_words.h"
#include "support/legalise/rules/rule.h"
#include "support/program/formula.h"
#include "tests/cpp/support/command.h"

namespace {

using namespace npu::legalise;

Operand dense(int dtype, const std::vector<int64_t>& size, uint32_t number, int64_t limit = 0) {
  Operand operand;
  operand.form.dtype = static_cast<uint8_t>(dtype);
  operand.form.limit = limit;
  set_strides(operand.form, dense_strides(size));
  operand.place = {Place::kOperand, number, 0};
  return operand;
}

Draft map(const std::string& formula, const std::vector<int64_t>& size, const std::vector<Operand>& operands) {
  Draft draft(NPU_MAP, size);
  draft.operands = operands;
  draft.program = std::make_shared<const npu::Program>(npu::parse(npu::formula_text(formula, "f32")));
  for (uint32_t k = 0; k < draft.program->param_count; ++k) draft.params.push_back({static_cast<int>(k), {}});
  return draft;
}

// What a rule makes; none: it does not fit.
std::vector<Draft> made_by(const std::string& rule, const Draft& draft) {
  std::vector<uint64_t> scratch;
  std::vector<uint32_t> aliases;
  for (uint32_t k = 0; k < draft.operands.size(); ++k) aliases.push_back(k);
  Script script(scratch, aliases);
  for (const Rule& one : rules())
    if (one.name == rule && !one.make(draft, script)) script.drafts.clear();
  return script.drafts;
}

npu::Program in_words(const Draft& draft) {
  const std::vector<Draft> made = made_by("64 bits in words", draft);
  CHECK(made.size() == 1);
  if (made.empty()) return {};
  const npu::Program program = *made[0].program;
  EQUAL(npu::validate(program.desc()), std::string());
  for (uint32_t k = 0; k < program.instrs.size(); ++k) {
    const int type = program.instrs[k].dtype;
    CHECK(type == NPU_DTYPE_NONE || !is_wide(type) || npu::is_address(program.desc(), k));
  }
  return program;
}

TEST(dropout_in_words_is_one_program) {
  const std::vector<int64_t> size = {4096};
  const npu::Program program =
      in_words(map(R"(
formula dropout(out, x, kept; seed: i64, offset: i64, threshold: i64, scale)
each:
  %keep = philox(seed, offset, index(0), 0) >= threshold
  out = where(%keep, x * scale, 0)
  kept = %keep
)",
                   size, {dense(NPU_F32, size, 0), dense(NPU_F32, size, 1), dense(NPU_BOOL, size, 2)}));
  CHECK(program.instrs.size() < 500);
  EQUAL(program.param_count, 7u);  // two words of each i64
}

TEST(an_offset_that_is_known_to_fit_takes_one_word) {
  const std::vector<int64_t> size = {32, 64};
  const npu::Program program = in_words(map(R"(
formula transpose(out, x)
each:
  out = load_at(x, index(1) * 32 + index(0))
)",
                                            size, {dense(NPU_F32, size, 0), dense(NPU_F32, {}, 1, 2048)}));
  // segment, index, const, mul, index, add, cast, load_at, store
  EQUAL(program.instrs.size(), size_t{9});
}

TEST(what_is_loaded_as_i32_from_i64_is_its_low_word) {
  const std::vector<int64_t> size = {8};
  const Draft draft =
      map("formula f(out: i32, x: i32)\neach:\n  out = x\n", size, {dense(NPU_I32, size, 0), dense(NPU_I64, size, 1)});
  const std::vector<Draft> made = made_by("64 bits in words", draft);
  CHECK(made.size() == 1 && made[0].operands.size() == 2);
  const Operand& words = made[0].operands[0];  // the first that the program uses
  EQUAL(words.place.number, 1u);
  EQUAL(int{words.form.dtype}, int{NPU_I32});
  EQUAL(words.form.stride[0], int64_t{2});
}

TEST(a_function_of_f64_has_no_form_in_words) {
  const std::vector<int64_t> size = {8};
  const Draft draft =
      map("formula f(out, x): f64\neach:\n  out = exp(x)\n", size, {dense(NPU_F64, size, 0), dense(NPU_F64, size, 1)});
  CHECK(made_by("64 bits in words", draft).empty());
}

TEST(a_program_without_64_bits_is_left_alone) {
  const std::vector<int64_t> size = {8};
  const Draft draft = map("formula f(out, x)\neach:\n  out = load_at(x, i64(i32(index(0))))\n", size,
                          {dense(NPU_F32, size, 0), dense(NPU_F32, {}, 1, 8)});
  CHECK(!made_by("64 bits in words", draft).empty());  // its index is an i64
  Draft once = made_by("64 bits in words", draft)[0];
  CHECK(made_by("64 bits in words", once).empty());
}

TEST(an_i64_with_another_use_than_an_offset_is_no_address) {
  const npu::Program program = npu::parse(R"(program f(x, out, y)
each:
  %0 = index 0 : i32
  %1 = cast %0 : i64
  %2 = load_at x, %1 : f32
  %3 = cast %0 : i64
  %4 = add %3, %3
  store out, %2
  store y, %4
)");
  CHECK(npu::is_address(program.desc(), 2));
  CHECK(!npu::is_address(program.desc(), 4));
  CHECK(!npu::is_address(program.desc(), 5));
}

TEST(a_sort_of_64_bits_is_five_commands_with_scratch_in_proportion) {
  const std::vector<int64_t> size = {16, 100};
  Draft sort(NPU_SORT, size, 1);
  sort.command.u.sort.count = 100;
  Operand none;
  none.form.dtype = NPU_I64;
  none.form.flags = NPU_OPERAND_IMMEDIATE;
  sort.operands = {dense(NPU_I64, size, 0), none, dense(NPU_I64, size, 2), dense(NPU_I64, size, 3)};
  const std::vector<Draft> made = made_by("sort by words", sort);
  EQUAL(made.size(), size_t{5});  // words, sort, move, sort, results
  size_t scratch = 0;
  for (const Draft& draft : made)
    for (const Operand& operand : draft.operands)
      if (operand.place.kind == Place::kScratch) scratch = std::max(scratch, size_t{operand.place.number} + 1);
  CHECK(scratch <= 7);  // of 4 bytes an element
}

TEST(pruning_drops_what_nothing_uses) {
  const std::vector<int64_t> size = {8};
  Draft draft = map("formula f(out, x, y; a, b)\neach:\n  out = x * a\n", size,
                    {dense(NPU_F32, size, 0), dense(NPU_F32, size, 1), dense(NPU_F32, size, 2)});
  draft.program = std::make_shared<const npu::Program>(npu::parse(R"(program f(out, y, x; b, a)
each:
  %0 = param b : f32
  %1 = load y : f32
  %2 = mul %0, %1
  %3 = load x : f32
  %4 = param a : f32
  %5 = add %3, %4
  store out, %5
)"));
  prune(draft);
  EQUAL(npu::to_text(draft.program->desc()), std::string(R"(program f(o0, o1; p0)
each:
  %1 = load o1 : f32
  %2 = param p0 : f32
  %3 = add %1, %2 : f32
  store o0, %3
)"));
  EQUAL(draft.operands[1].place.number, 2u);
  EQUAL(draft.params[0].from, 1);
}

}  // namespace
