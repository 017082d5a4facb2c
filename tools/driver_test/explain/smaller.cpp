// A failing command made small: sizes, layout, program, data and params are made simpler one at a time, for as long as
// the driver still fails in the same way.
#include <algorithm>

#include "support/program/op_info.h"
#include "support/program/operand_shape.h"
#include "support/verify/element.h"
#include "tools/driver_test/explain/trial.h"

namespace driver_test {

namespace {

constexpr double kSeconds = 2;
constexpr int kTries = 300;

// All that may be simpler by one step, what helps most first.
std::vector<Case> steps_from(const Case& from) {
  std::vector<Case> out;
  const auto sized = [&](auto field) {
    const int64_t n = field(out.emplace_back(from));
    out.pop_back();
    for (const int64_t less : {int64_t{1}, n / 2, n - 1}) {
      if (less < 1 || less >= n) continue;
      field(out.emplace_back(from)) = less;
    }
  };
  for (int d = 0; d < from.command.rank && from.command.kind != NPU_CONV; d++)
    sized([d](Case& c) -> int64_t& { return c.command.size[d]; });
  if (from.command.kind == NPU_MATMUL) sized([](Case& c) -> int64_t& { return c.command.u.matmul.k; });
  for (Case& c : out)
    if (c.command.kind == NPU_SORT)
      c.command.u.sort.count = std::min(c.command.u.sort.count, c.command.size[c.command.rank - 1]);
  for (size_t i = 0; from.program && i < from.program->instrs.size(); i++) {
    const npu_instr& in = from.program->instrs[i];
    const bool store = in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT;
    const bool fold = in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN || in.op == NPU_OP_GET;
    if (fold || (!store && npu::op_info(in.op).args == 0)) continue;
    Case c = from;
    c.program = npu::Rewrite(*from.program).run([&](npu::Rewrite& made, const npu_instr& now) {
      if (made.visited() != i) return made.emit(now);
      for (const uint16_t instead : {now.a, now.b, now.c})
        if (store || (instead != NPU_NO_VALUE && made.type(instead) == now.dtype)) return instead;
      return made.emit(now);
    });
    if (c.program->instrs.size() < from.program->instrs.size()) out.push_back(std::move(c));
  }
  for (size_t n = 0; n < from.buffers.size(); n++) {
    Case ones = from;
    Buffer& b = ones.buffers[n];
    for (int64_t i = 0; i < b.elements; i++) put(b, i, 1);
    if (b.bytes != from.buffers[n].bytes) out.push_back(std::move(ones));
  }
  for (size_t i = 0; i < from.params.size(); i++) {
    Case one = from;
    one.params[i].u = 0;
    if (from.params[i].u) out.push_back(std::move(one));
  }
  return out;
}

// Instructions whose value nobody uses.
void sweep(Case& c) {
  for (bool again = c.program.has_value(); again;) {
    again = false;
    std::vector<bool> used(c.program->instrs.size());
    for (const npu_instr& in : c.program->instrs)
      for (const uint16_t id : {in.a, in.b, in.c, in.mask})
        if (id != NPU_NO_VALUE) used[id] = true;
    for (size_t i = 0; i < used.size() && !again; i++) {
      const npu_instr& in = c.program->instrs[i];
      if (used[i] || in.dtype == NPU_DTYPE_NONE || in.op == NPU_OP_CHECK_INDEX) continue;
      const npu::Program old = *c.program;
      c.program = npu::Rewrite(old).run(
          [&](npu::Rewrite& made, const npu_instr& now) { return made.visited() == i ? uint16_t{0} : made.emit(now); });
      again = true;
    }
  }
}

// In the same way: with the same status, and wrong results if they were wrong.
bool still_fails(Rig& rig, Case& c, const Ran& first, Ran* now) {
  try {
    *now = c.attempt(rig);
  } catch (const std::exception&) {  // no valid command
    return false;
  } catch (const Failed&) {
    return false;
  }
  return !now->failed.empty() && now->status == first.status && now->expected == first.expected &&
         now->wrong.has_value() == first.wrong.has_value();
}

// The elements that the wrong result was made of, as far as that is plain to see.
std::string inputs_of(const Case& c, const Ran& ran) {
  constexpr int64_t kShown = 8;
  std::string out;
  for (size_t k = 0; ran.wrong && k < c.operands.size(); k++) {
    if (c.places[k].buffer < 0 || c.places[k].buffer == static_cast<int>(ran.wrong->buffer)) continue;
    const Buffer& b = c.buffers[static_cast<size_t>(c.places[k].buffer)];
    int64_t size[NPU_MAX_RANK] = {}, point[NPU_MAX_RANK] = {}, shown = 0;
    View view = c;
    view.link();
    npu::operand_shape(view.command, static_cast<uint32_t>(k), size);
    out += say("\n    operand ", k, " holds");
    for (bool more = !c.operands[k].limit; more && shown < kShown; shown++) {
      int64_t at = c.places[k].offset;
      for (int d = 0; d < c.command.rank; d++) at += point[d] * c.operands[k].stride[d];
      if (at >= 0 && at < b.elements) out += " " + npu::element_text(bits_of(b, at), b.dtype);
      more = false;
      for (int d = c.command.rank - 1; d >= 0 && !more; d--) more = ++point[d] < size[d] || (point[d] = 0, false);
    }
    if (c.operands[k].limit)
      for (; shown < std::min(kShown, b.elements); shown++) out += " " + npu::element_text(bits_of(b, shown), b.dtype);
    if (shown == kShown) out += " ...";
  }
  return out;
}

}  // namespace

std::string smaller(Rig& rig, const Case& failed, const Ran& ran) {
  if (failed.checked_buffer >= 0 || failed.choice) return ran.wrong ? inputs_of(failed, ran) : "";
  const auto start = std::chrono::steady_clock::now();
  Case best = failed;
  Ran found = ran;
  int tries = 0, steps = 0;
  const auto go_on = [&] {
    return tries < kTries && std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < kSeconds;
  };
  for (bool moved = true; moved && go_on();) {
    moved = false;
    for (Case& step : steps_from(best)) {
      if (!go_on()) break;
      sweep(step);
      Ran now;
      tries++;
      if (!still_fails(rig, step, ran, &now)) continue;
      best = step, found = now, moved = true, steps++;
      break;
    }
  }
  if (steps == 0) return inputs_of(failed, ran);
  return say("\n  made smaller, it still fails: ", found.failed, inputs_of(best, found), "\n", best.describe());
}

}  // namespace driver_test
