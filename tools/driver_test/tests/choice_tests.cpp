// Choices: the ways to run a command that a driver announces.
#include <algorithm>
#include <cstring>
#include <set>

#include "tools/driver_test/command/case.h"

using namespace driver_test;

namespace {

decltype(npu_driver::choices) require_choices(const Rig& rig) {
  const auto ask = npu::choices_of(rig.d);
  if (!ask) throw NotSupported{"the driver announces no choices"};
  return ask;
}

// Commands of three kinds, large enough to be worth a choice.
Case product(Random& random) {
  int64_t m = random.between(60, 200), n = random.between(60, 400);
  const int64_t k = random.between(60, 300);
  if (random.chance(40)) m = random.between(1, 8);
  if (random.chance(30)) std::swap(m, n);
  Case c(NPU_MATMUL, {m, n});
  c.command.u.matmul.k = k;
  c.command.u.matmul.acc_dtype = NPU_F32;
  const int dtype = random.chance(70) ? NPU_F32 : NPU_BF16;
  c.input(random, dtype, Data::kSmall, random.chance(60), -1, {m, k});
  c.input(random, dtype, Data::kSmall, random.chance(60), -1, {k, n});
  c.output(random, NPU_F32, random.chance(60));
  if (random.chance(50)) {
    Builder b("epilogue");
    b.store(2, b.op(NPU_OP_MAX, b.acc(NPU_F32), b.constant(NPU_F32, 0)));
    c.set(b);
  }
  return c;
}

Case map(Random& random) {
  Case c(NPU_MAP, {random.between(50, 150), random.between(100, 400)});
  c.input(random, NPU_F32, Data::kSmall);
  c.input(random, NPU_F32, Data::kSmall);
  c.output(random, NPU_F32);
  Builder b("sum");
  const Id x = b.load(0, NPU_F32);
  b.store(2, b.op(NPU_OP_ADD, b.op(NPU_OP_MUL, x, b.load(1, NPU_F32)), x));
  c.set(b);
  return c;
}

Case reduce(Random& random) {
  Case c(NPU_REDUCE, {random.between(50, 150), random.between(100, 400)}, 1);
  c.input(random, NPU_F32, Data::kSmall);
  c.output(random, NPU_F32, false, 1);
  Builder b("rows");
  const Id total = b.fold(NPU_FOLD_SUM, b.load(0, NPU_F32));
  b.segment(NPU_SEGMENT_ROW);
  b.store(1, total);
  c.set(b);
  return c;
}

Case some_case(Random& random) {
  const int64_t kind = random.below(4);
  return kind < 2 ? product(random) : kind == 2 ? map(random) : reduce(random);
}

// The command as the driver sees it before memory is there, with its program, for the time of a call.
std::vector<npu_choice> announced(const Rig& rig, Case& c, uint32_t capacity = 255, uint32_t* count = nullptr) {
  const auto ask = require_choices(rig);
  npu_command command = c.command;
  npu_program* program = nullptr;
  if (c.program) {
    const npu_program_desc desc = c.program->desc();
    if (rig.d.program_create(rig.device, &desc, &program) != NPU_OK) return {};
  }
  command.program = program;
  command.operands = c.operands.data();
  command.operand_count = static_cast<uint32_t>(c.operands.size());
  std::vector<npu_choice> found(capacity);
  uint32_t number = 0;
  const npu_status status = ask(rig.device, &command, found.data(), capacity, &number);
  if (program) rig.d.program_destroy(program);
  if (status == NPU_UNSUPPORTED) return {};
  rig.ok(status, "choices");
  if (count) *count = number;
  found.resize(std::min(number, capacity));
  return found;
}

}  // namespace

TEST("choices: numbers and texts are in order, and so is a short list") {
  Rig rig(context);
  Random random = context.random();
  int64_t seen = 0;
  for (int i = 0; i < 20; i++) {
    Case c = some_case(random);
    uint32_t count = 0, again = 0;
    const auto all = announced(rig, c, 255, &count);
    seen += count;
    expect(count <= 255, "expected at most 255 choices, got ", count);
    std::set<uint32_t> ids;
    std::set<std::string> texts;
    for (const npu_choice& choice : all) {
      expect(choice.id >= 1 && choice.id <= 255, "expected a number of 1 to 255, got ", choice.id);
      expect(std::memchr(choice.text, 0, sizeof choice.text) && choice.text[0], "choice ", choice.id,
             ": expected a text of 1 to 59 characters and a zero behind it");
      expect(ids.insert(choice.id).second, "expected each number once, got ", choice.id, " twice");
      expect(texts.insert(choice.text).second, "expected each text once, got ", choice.text, " twice");
    }
    const auto some = announced(rig, c, 1, &again);
    expect(again == count, "with room for one choice: expected the number of all, ", count, ", got ", again);
    expect(some.empty() || some[0].id == all[0].id, "with room for one choice: expected the first of all");
  }
  if (seen == 0) throw NotSupported{"no choice for any of the commands"};
  context.note = say(seen, " choices of 20 commands");
}

TEST("choices: every choice gives the right result") {
  Rig rig(context);
  Random random = context.random();
  int64_t runs = 0;
  for (int i = 0; i < std::max(4, context.count / 10); i++) {
    const uint64_t seed = random.next();
    Random first(seed);
    Case probe = some_case(first);
    std::vector<npu_choice> all = announced(rig, probe);
    if (!all.empty()) all.push_back({0, "none"});
    for (const npu_choice& choice : all) {
      Random same(seed);
      Case c = some_case(same);
      c.choice = static_cast<uint8_t>(choice.id);
      try {
        runs += c.run(rig);
      } catch (const Failed& failed) {
        fail("choice ", choice.text, ": ", failed.text);
      }
    }
  }
  if (runs == 0) throw NotSupported{"no choice for any of the commands"};
  context.note = say(runs, " commands with a choice");
}

TEST("choices: a number that was not announced is refused") {
  Rig rig(context);
  Random random = context.random();
  require_choices(rig);
  for (int i = 0; i < 4; i++) {
    const uint64_t seed = random.next();
    Random first(seed);
    Case probe = some_case(first);
    std::set<uint32_t> ids;
    for (const npu_choice& choice : announced(rig, probe)) ids.insert(choice.id);
    uint32_t other = 255;  // the highest number that is none of them
    while (ids.count(other)) other--;
    Random same(seed);
    Case c = some_case(same);
    c.choice = static_cast<uint8_t>(other);
    std::string refused;
    try {
      if (!c.run(rig)) refused = "NPU_UNSUPPORTED";
    } catch (const Failed& failed) {
      refused = failed.text;
    }
    expect(!refused.empty(), "choice ", other, ": expected NPU_ERROR_INVALID, got a result");
    expect(refused.find("NPU_ERROR_INVALID") != std::string::npos || refused == "NPU_UNSUPPORTED", refused);
    rig.still_works();
  }
}
