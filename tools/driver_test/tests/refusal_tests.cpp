// Commands and programs that break a rule: they are refused with a text, and the device goes on.
#include <algorithm>

#include "tools/driver_test/command/case.h"
#include "tools/driver_test/command/line.h"

using namespace driver_test;

namespace {

// out[i] = a[i] + b[i] in F32 over n elements.
struct Add : Line {
  static Builder text() {
    Builder b("add");
    b.store(0, b.op(NPU_OP_ADD, b.load(1, NPU_F32), b.load(2, NPU_F32)));
    return b;
  }
  explicit Add(Rig& r) : Line(r, text(), 1000, {NPU_F32, NPU_F32, NPU_F32}, "aten::add") {
    for (const npu_operand& o : operands) rig.upload(o.addr, Bytes(4000, 0));
    submit();
    rig.sync();
  }

  // The changed command must fail, at once or at the next synchronisation; then the good one must work.
  void must_fail(const char* what, const npu_command& bad, std::vector<npu_status> allowed, npu_addr named = 0) {
    npu_status status = rig.d.submit(rig.stream, &bad);
    if (status == NPU_UNSUPPORTED) return;
    if (status == NPU_OK) status = rig.d.stream_synchronize(rig.stream);
    rig.refused(status, what, std::move(allowed));
    if (named && !rig.context.legalised) {
      const std::string text = rig.text();
      expect(text.find("0x") != std::string::npos, what, ": error_text must name the address, got '", text, "'");
      expect(text.find("MAP") != std::string::npos, what, ": error_text must name the command MAP, got '", text, "'");
    }
    rig.sync();
    rig.ok(rig.d.submit(rig.stream, &command), "a good command after the failure");
    rig.sync();
  }
};

}  // namespace

TEST("failure: a command whose address lies outside a live allocation is refused, naming it") {
  Rig rig(context);
  Add add(rig);
  const std::vector<npu_status> allowed = {NPU_ERROR_ADDRESS, NPU_ERROR_INVALID};
  npu_addr gone = rig.alloc(4000);
  rig.free(gone);
  for (size_t i = 0; i < 3; i++) {
    auto with = [&](const char* what, npu_addr addr, int64_t stride) {
      npu_operand bad[3] = {add.operands[0], add.operands[1], add.operands[2]};
      bad[i].addr = addr;
      bad[i].stride[0] = stride;
      npu_command command = add.command;
      command.operands = bad;
      add.must_fail(say(what, ", operand ", i).c_str(), command, allowed, addr);
    };
    const npu_addr good = add.operands[i].addr;
    // Scratch of what legalisation made may lie there by now.
    if (!context.legalised) with("use after free", gone, 1);
    with("beyond the end", good + 8 * rig.properties.alignment, static_cast<int64_t>(rig.properties.alignment));
    with("a stride that leaves the block", good, int64_t{1} << 40);
    with("a negative stride that leaves the block", good, -(int64_t{1} << 40));
    with("a stride that wraps around", good, INT64_MAX / 2 - 1000000);
    with("address 0", 0, 1);
    with("a host pointer", reinterpret_cast<uintptr_t>(&add), 1);
    with("the last address", ~uint64_t{0} - 3, 1);
  }
  rig.still_works();
}

// out[i] = x[i] where kept[i], over two allocations and what lies between them.
TEST("failure: a masked access over several allocations is checked element by element") {
  Rig rig(context);
  constexpr int64_t n = 1024;
  const npu_addr blocks[3] = {rig.alloc(n * 4), rig.alloc(n * 4), rig.alloc(n * 4)};
  const npu_addr first = std::min(blocks[0], blocks[2]), last = std::max(blocks[0], blocks[2]);
  const auto apart = static_cast<int64_t>(last - first) / 4, points = apart + n;
  if (apart < 2 * n || points > 64 * n) throw NotSupported{"the driver puts three allocations in other places"};
  Builder b("masked");
  b.store(0, b.load(1, NPU_F32, b.load(2, NPU_BOOL)));
  Line masked(rig, b, points, {NPU_F32, NPU_F32, NPU_BOOL}, "masked");
  masked.operands[1].addr = first;
  rig.free(blocks[1]);  // only now: nothing else may lie between the two
  Bytes kept(static_cast<size_t>(points), 1);
  std::fill(kept.begin() + n, kept.begin() + apart, 0);
  rig.upload(first, Bytes(n * 4, 7));
  rig.upload(last, Bytes(n * 4, 9));
  const auto run = [&] {
    rig.upload(masked.operands[2].addr, kept);
    return masked.run();
  };
  const npu_status status = run();
  if (status == NPU_UNSUPPORTED) throw NotSupported{"the driver does not run masked loads"};
  rig.ok(status, "a walk over two allocations, masked between them");
  const Bytes got = rig.download(masked.operands[0].addr, static_cast<uint64_t>(points) * 4);
  for (int64_t i = 0; i < points; i++)
    expect(got[static_cast<size_t>(i) * 4] == (i < n ? 7 : i < apart ? 0 : 9), "element ", i);
  kept[static_cast<size_t>(n + n / 2)] = 1;
  rig.refused(run(), "an element between the allocations", {NPU_ERROR_ADDRESS});
  kept[static_cast<size_t>(n + n / 2)] = 0;
  rig.ok(run(), "the good command after the failure");
  rig.still_works();
}

// out[i] = x[offset[i]] with no limit, in x and in another allocation; a driver may have a rule against the latter.
TEST("failure: what load_at may reach does not depend on allocations elsewhere") {
  for (const int dtype : {NPU_U8, NPU_I32}) {
    Rig rig(context);
    const npu_addr blocks[2] = {rig.alloc(512), rig.alloc(512)};
    const npu_addr first = std::min(blocks[0], blocks[1]), last = std::max(blocks[0], blocks[1]);
    const auto apart = static_cast<int64_t>(last - first) / 4;
    if (apart > (dtype == NPU_U8 ? UINT8_MAX : INT32_MAX)) continue;
    Builder b("reach");
    b.store(0, b.load_at(1, NPU_F32, b.cast(b.load(2, NPU_I32), NPU_I64)));
    Line line(rig, b, 2, {NPU_F32, NPU_F32, dtype}, "reach");
    line.operands[1].addr = first;
    line.operands[1].stride[0] = 0;
    rig.upload(first, Bytes(512, 7));
    rig.upload(last, Bytes(512, 9));
    const auto reach = static_cast<uint32_t>(apart);
    Bytes offsets(dtype == NPU_U8 ? 2 : 8, 0);
    std::memcpy(&offsets[offsets.size() / 2], &reach, offsets.size() / 2);
    rig.upload(line.operands[2].addr, offsets);
    const auto run = [&] {
      const npu_status status = line.run();
      if (status != NPU_OK) return status;
      const Bytes got = rig.download(line.operands[0].addr, 8);
      expect(got[0] == 7 && got[4] == 9, "expected the elements of both allocations, got others");
      return status;
    };
    const npu_status alone = run();
    if (alone == NPU_UNSUPPORTED) throw NotSupported{"the driver does not run load_at without a limit"};
    npu_addr others[80];
    for (npu_addr& one : others) one = rig.alloc(512);
    for (size_t i = 0; i < 80; i += 2) rig.free(others[i]);
    const npu_status among = run();
    expect(among == alone || among == NPU_UNSUPPORTED, "expected ", status_name(alone), " as without them, got ",
           status_name(among));
  }
}

TEST("failure: a command that breaks a rule is refused as NPU_ERROR_INVALID") {
  Rig rig(context);
  Add add(rig);
  const std::vector<npu_status> invalid = {NPU_ERROR_INVALID};
  auto with = [&](const char* what, const std::function<void(npu_command&, npu_operand*)>& change) {
    npu_operand bad[3] = {add.operands[0], add.operands[1], add.operands[2]};
    npu_command command = add.command;
    command.operands = bad;
    change(command, bad);
    add.must_fail(what, command, invalid);
  };
  with("rank 9", [](npu_command& c, npu_operand*) { c.rank = 9; });
  with("kind 8", [](npu_command& c, npu_operand*) { c.kind = 8; });
  with("a negative size", [](npu_command& c, npu_operand*) { c.size[0] = -1; });
  with("two operands of three", [](npu_command& c, npu_operand*) { c.operand_count = 2; });
  with("65 operands", [](npu_command& c, npu_operand*) { c.operand_count = 65; });
  with("no operands", [](npu_command& c, npu_operand*) { c.operands = nullptr; });
  with("no program", [](npu_command& c, npu_operand*) { c.program = nullptr; });
  with("dtype 13", [](npu_command&, npu_operand* o) { o[1].dtype = 13; });
  with("an unknown operand flag", [](npu_command&, npu_operand* o) { o[1].flags = 0x80; });
  with("a store to an immediate", [](npu_command&, npu_operand* o) {
    o[0].flags = NPU_OPERAND_IMMEDIATE;
    o[0].stride[0] = 0;
  });
  with("inner_rank 1 in a MAP", [](npu_command& c, npu_operand*) { c.inner_rank = 1; });
  with("a MAP program in a SCATTER", [](npu_command& c, npu_operand*) { c.kind = NPU_SCATTER; });
  rig.still_works();
}

TEST("failure: a program that breaks a rule is refused") {
  Rig rig(context);
  {
    Add probe(rig);
  }
  auto with = [&](const char* what, const std::function<void(npu::Program&)>& change) {
    Builder b("broken");
    b.store(0, b.op(NPU_OP_ADD, b.load(1, NPU_F32), b.load(2, NPU_F32)));
    change(b.program);
    npu_program_desc desc = b.program.desc();
    expect(!npu::validate(desc).empty(), "the suite itself: '", what, "' is no broken program");
    npu_program* program = nullptr;
    const npu_status status = rig.d.program_create(rig.device, &desc, &program);
    if (status == NPU_OK) rig.d.program_destroy(program);
    rig.refused(status, what, {NPU_ERROR_INVALID, NPU_UNSUPPORTED});
  };
  with("no segment first", [](npu::Program& p) { p.instrs.erase(p.instrs.begin()); });
  with("an argument that comes later", [](npu::Program& p) { p.instrs[3].b = 4; });
  with("an argument that defines no value", [](npu::Program& p) { p.instrs[3].b = 0; });
  with("an instruction that does not exist", [](npu::Program& p) { p.instrs[3].op = 250; });
  with("a storage type as compute type", [](npu::Program& p) { p.instrs[1].dtype = NPU_BF16; });
  with("two types in one add", [](npu::Program& p) { p.instrs[2].dtype = NPU_I32; });
  with("an operand beyond operand_count", [](npu::Program& p) { p.instrs[1].imm = 40; });
  with("65 operands", [](npu::Program& p) { p.operand_count = 65; });
  with("a mask that is no bool", [](npu::Program& p) { p.instrs[4].mask = 1; });
  with("a reserved field that is not 0", [](npu::Program& p) { p.instrs[1].zero = 1; });
  with("no instruction", [](npu::Program& p) { p.instrs.clear(); });
  with("a missing argument", [](npu::Program& p) { p.instrs[3].b = NPU_NO_VALUE; });
  {
    Add again(rig);
  }
}
