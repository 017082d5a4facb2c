// Bad arguments, asynchronous failures, reset: what goes wrong is said once, and the device goes on.
#include <algorithm>
#include <optional>

#include "tools/driver_test/case.h"

using namespace driver_test;

namespace {

// out[i] = a[i] + b[i] in F32 over n elements.
struct Add {
  Rig& rig;
  npu_program* program = nullptr;
  npu_operand operands[3] = {};
  npu_command command{};
  int64_t n = 1000;

  explicit Add(Rig& r) : rig(r) {
    Builder b("add");
    Id sum = b.op(NPU_OP_ADD, b.load(1, NPU_F32), b.load(2, NPU_F32));
    b.store(0, sum);
    const npu_program_desc desc = b.program.desc();
    const npu_status status = rig.d.program_create(rig.device, &desc, &program);
    if (status == NPU_UNSUPPORTED) throw NotSupported{"the driver does not have the program add"};
    rig.ok(status, "program_create");
    for (npu_operand& o : operands) {
      o.addr = rig.alloc(static_cast<uint64_t>(n) * 4);
      o.dtype = NPU_F32;
      o.stride[0] = 1;
      rig.upload(o.addr, Bytes(static_cast<uint64_t>(n) * 4, 0));
    }
    command.struct_size = sizeof command;
    command.kind = NPU_MAP;
    command.rank = 1;
    command.size[0] = n;
    command.operand_count = 3;
    command.operands = operands;
    command.program = program;
    command.label = "aten::add";
    const npu_status first = rig.d.submit(rig.stream, &command);
    if (first == NPU_UNSUPPORTED) throw NotSupported{"the driver does not run the program add in a MAP"};
    rig.ok(first, "submit of a good command");
    rig.sync();
  }
  ~Add() { rig.d.program_destroy(program); }

  // The changed command must fail, at once or at the next synchronisation; then the good one must work.
  void must_fail(const char* what, const npu_command& bad, std::vector<npu_status> allowed, npu_addr named = 0) {
    npu_status status = rig.d.submit(rig.stream, &bad);
    if (status == NPU_UNSUPPORTED) return;
    if (status == NPU_OK) status = rig.d.stream_synchronize(rig.stream);
    rig.refused(status, what, std::move(allowed));
    if (named) {
      const std::string text = rig.text();
      expect(text.find("0x") != std::string::npos, what, ": error_text must name the address, got '", text, "'");
      expect(text.find("MAP") != std::string::npos, what, ": error_text must name the command MAP, got '", text, "'");
    }
    rig.sync();
    rig.ok(rig.d.submit(rig.stream, &command), "a good command after the failure");
    rig.sync();
  }
};

// A MAP that fails on the device: check_index of a value that is out of range.
struct BadIndex {
  Rig& rig;
  npu_program* program = nullptr;
  npu_operand operands[2] = {};
  npu_command command{};

  explicit BadIndex(Rig& r, int64_t value = 100) : rig(r) {
    Builder b("bad_index");
    Id index = b.check_index(b.load(1, NPU_I64), b.constant(NPU_I64, 10), NPU_INDEX_CHECK);
    b.store(0, index);
    const npu_program_desc desc = b.program.desc();
    const npu_status status = rig.d.program_create(rig.device, &desc, &program);
    if (status == NPU_UNSUPPORTED) throw NotSupported{"the driver does not have check_index"};
    rig.ok(status, "program_create");
    for (npu_operand& o : operands) {
      o.addr = rig.alloc(64 * 8);
      o.dtype = NPU_I64;
      o.stride[0] = 1;
    }
    std::vector<int64_t> values(64, 3);
    values[17] = value;
    rig.upload(operands[1].addr, values.data(), 64 * 8);
    rig.sync();
    command.struct_size = sizeof command;
    command.kind = NPU_MAP;
    command.rank = 1;
    command.size[0] = 64;
    command.operand_count = 2;
    command.operands = operands;
    command.program = program;
    command.label = "aten::index";
  }
  ~BadIndex() { rig.d.program_destroy(program); }

  // Gives it to the stream; a driver may also refuse it at once, and is then not asynchronous.
  void submit(npu_stream* stream) {
    const npu_status status = rig.d.submit(stream, &command);
    if (status == NPU_UNSUPPORTED) throw NotSupported{"the driver does not run check_index in a MAP"};
    if (status == NPU_ERROR_INDEX) throw NotSupported{"the driver finds a bad index at once; nothing fails later"};
    rig.ok(status, "submit");
  }
};

}  // namespace

TEST("failure: a command whose address lies outside a live allocation is refused, naming it") {
  Rig rig(context);
  Add add(rig);
  const std::vector<npu_status> allowed = {NPU_ERROR_ADDRESS, NPU_ERROR_INVALID};
  npu_addr gone = rig.alloc(static_cast<uint64_t>(add.n) * 4);
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
    with("use after free", gone, 1);
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
  rig.free(blocks[1]);
  Builder b("masked");
  b.store(0, b.load(1, NPU_F32, b.load(2, NPU_BOOL)));
  const npu_program_desc desc = b.program.desc();
  npu_program* program = nullptr;
  if (rig.d.program_create(rig.device, &desc, &program) == NPU_UNSUPPORTED)
    throw NotSupported{"the driver does not have masked loads"};
  npu_operand operands[3] = {};
  const int dtypes[3] = {NPU_F32, NPU_F32, NPU_BOOL};
  // Too large for what lies between the two.
  const uint64_t large = static_cast<uint64_t>(points) * 4;
  operands[0].addr = rig.alloc(large);
  operands[1].addr = first;
  operands[2].addr = rig.alloc(large);
  for (int i = 0; i < 3; i++) operands[i].dtype = static_cast<uint8_t>(dtypes[i]), operands[i].stride[0] = 1;
  Bytes kept(static_cast<size_t>(points), 1);
  std::fill(kept.begin() + n, kept.begin() + apart, 0);
  rig.upload(first, Bytes(n * 4, 7));
  rig.upload(last, Bytes(n * 4, 9));
  npu_command command{};
  command.struct_size = sizeof command;
  command.kind = NPU_MAP;
  command.rank = 1;
  command.size[0] = points;
  command.operand_count = 3;
  command.operands = operands;
  command.program = program;
  command.label = "masked";
  const auto run = [&] {
    rig.upload(operands[2].addr, kept);
    const npu_status status = rig.d.submit(rig.stream, &command);
    return status == NPU_OK ? rig.d.stream_synchronize(rig.stream) : status;
  };
  const npu_status status = run();
  if (status == NPU_UNSUPPORTED) throw NotSupported{"the driver does not run masked loads"};
  rig.ok(status, "a walk over two allocations, masked between them");
  const Bytes got = rig.download(operands[0].addr, static_cast<uint64_t>(points) * 4);
  for (int64_t i = 0; i < points; i++)
    expect(got[static_cast<size_t>(i) * 4] == (i < n ? 7 : i < apart ? 0 : 9), "element ", i);
  kept[static_cast<size_t>(n + n / 2)] = 1;
  rig.refused(run(), "an element between the allocations", {NPU_ERROR_ADDRESS});
  kept[static_cast<size_t>(n + n / 2)] = 0;
  rig.ok(run(), "the good command after the failure");
  rig.d.program_destroy(program);
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
    const npu_program_desc desc = b.program.desc();
    npu_program* program = nullptr;
    if (rig.d.program_create(rig.device, &desc, &program) == NPU_UNSUPPORTED)
      throw NotSupported{"the driver does not have load_at"};
    npu_operand operands[3] = {};
    const npu_addr places[3] = {rig.alloc(512), first, rig.alloc(512)};
    const int dtypes[3] = {NPU_F32, NPU_F32, dtype};
    for (int i = 0; i < 3; i++) {
      operands[i].addr = places[i];
      operands[i].dtype = static_cast<uint8_t>(dtypes[i]);
      operands[i].stride[0] = i == 1 ? 0 : 1;
    }
    rig.upload(first, Bytes(512, 7));
    rig.upload(last, Bytes(512, 9));
    const auto reach = static_cast<uint32_t>(apart);
    Bytes offsets(dtype == NPU_U8 ? 2 : 8, 0);
    std::memcpy(&offsets[offsets.size() / 2], &reach, offsets.size() / 2);
    rig.upload(places[2], offsets);
    npu_command command{};
    command.struct_size = sizeof command;
    command.kind = NPU_MAP;
    command.rank = 1;
    command.size[0] = 2;
    command.operand_count = 3;
    command.operands = operands;
    command.program = program;
    command.label = "reach";
    const auto run = [&] {
      npu_status status = rig.d.submit(rig.stream, &command);
      if (status == NPU_OK) status = rig.d.stream_synchronize(rig.stream);
      if (status != NPU_OK) return status;
      const Bytes got = rig.download(places[0], 8);
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
    rig.d.program_destroy(program);
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

TEST("failure: an asynchronous failure is reported exactly once, by stream_synchronize") {
  Rig rig(context);
  BadIndex bad(rig);
  for (int i = 0; i < 3; i++) {
    bad.submit(rig.stream);
    rig.refused(rig.d.stream_synchronize(rig.stream), "stream_synchronize", {NPU_ERROR_INDEX});
    const std::string text = rig.text();
    expect(text.find("MAP") != std::string::npos && text.find("aten::index") != std::string::npos,
           "error_text must name the command MAP and its label aten::index, got '", text, "'");
    rig.sync();
    rig.ok(rig.d.device_synchronize(rig.device), "device_synchronize after the report");
  }
  rig.still_works();
}

TEST("failure: the work behind a failed command still runs") {
  Rig rig(context);
  BadIndex bad(rig);
  const uint64_t size = 1 << 20;
  npu_addr from = rig.alloc(size), to = rig.alloc(size);
  Bytes want = pattern(size, 8);
  rig.upload(from, want);
  bad.submit(rig.stream);
  rig.ok(rig.d.copy_on_device(rig.stream, to, from, size), "copy_on_device behind the failure");
  bad.submit(rig.stream);  // only the first failure is reported
  rig.refused(rig.d.stream_synchronize(rig.stream), "stream_synchronize", {NPU_ERROR_INDEX});
  rig.sync();
  expect_equal(rig.download(to, size), want, "work behind a failed command");
}

TEST("failure: event_synchronize reports a failure before the event, not one behind it") {
  Rig rig(context);
  BadIndex bad(rig);
  npu_event* event = rig.new_event();
  bad.submit(rig.stream);
  rig.ok(rig.d.event_record(event, rig.stream), "event_record");
  rig.refused(rig.d.event_synchronize(event), "event_synchronize", {NPU_ERROR_INDEX});
  rig.ok(rig.d.event_synchronize(event), "event_synchronize again");
  rig.sync();
  rig.ok(rig.d.event_record(event, rig.stream), "event_record");
  bad.submit(rig.stream);
  rig.ok(rig.d.event_synchronize(event), "event_synchronize of an event before the failure");
  rig.refused(rig.d.stream_synchronize(rig.stream), "stream_synchronize", {NPU_ERROR_INDEX});
}

TEST("failure: device_synchronize reports the failure of any stream, once") {
  Rig rig(context);
  BadIndex bad(rig);
  npu_stream* other = rig.new_stream();
  bad.submit(other);
  rig.refused(rig.d.device_synchronize(rig.device), "device_synchronize", {NPU_ERROR_INDEX});
  rig.sync(other);
  rig.ok(rig.d.device_synchronize(rig.device), "device_synchronize again");
  // A failure of one stream is not another's.
  bad.submit(other);
  rig.sync(rig.stream);
  rig.refused(rig.d.stream_synchronize(other), "stream_synchronize", {NPU_ERROR_INDEX});
}

TEST("failure: reset drops failures and keeps memory, streams and events") {
  Rig rig(context);
  npu_stream* stream = rig.new_stream();
  npu_event* event = rig.new_event();
  npu_addr addr = rig.alloc(1 << 16);
  Bytes want = pattern(1 << 16, 3);
  rig.upload(addr, want);
  rig.sync();
  std::optional<BadIndex> bad;
  try {
    bad.emplace(rig);
    bad->submit(stream);
  } catch (const NotSupported&) {
    bad.reset();
  }
  rig.ok(rig.d.event_record(event, stream), "event_record");
  rig.ok(rig.d.device_reset(rig.device), "device_reset");
  rig.ok(rig.d.stream_synchronize(stream), "stream_synchronize after device_reset");
  rig.ok(rig.d.event_synchronize(event), "event_synchronize after device_reset");
  expect_equal(rig.download(addr, 1 << 16, stream), want, "memory after device_reset");
  rig.d.event_destroy(event);
  rig.d.stream_destroy(stream);
  rig.still_works();
  context.note = bad ? "" : "without a failure to drop: the driver has no asynchronous one";
}

TEST("failure: a program may be destroyed while its command is queued") {
  Rig rig(context);
  Random random(context.seed);
  for (int i = 0; i < 50; i++) {
    Case one(NPU_MAP, {20000});
    Builder b("queued");
    b.store(0, b.op(NPU_OP_SQRT, b.op(NPU_OP_ABS, b.load(1, NPU_F32))));
    one.set(b);
    one.output(random, NPU_F32, true);
    one.input(random, NPU_F32, Data::kReal, true);
    one.run(rig);  // destroys the program right behind submit
  }
  conclude(context);
}
