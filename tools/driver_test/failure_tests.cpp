// Failures on the device, reset: what goes wrong is said once, and the device goes on.
#include <optional>

#include "tools/driver_test/case.h"
#include "tools/driver_test/line.h"

using namespace driver_test;

namespace {

// A MAP that fails on the device: check_index of a value that is out of range.
struct BadIndex : Line {
  static Builder text() {
    Builder b("check_index");
    b.store(0, b.check_index(b.load(1, NPU_I64), b.constant(NPU_I64, 10), NPU_INDEX_CHECK));
    return b;
  }
  explicit BadIndex(Rig& r) : Line(r, text(), 64, {NPU_I64, NPU_I64}, "aten::index") {
    std::vector<int64_t> values(64, 3);
    values[17] = 100;
    rig.upload(operands[1].addr, values.data(), 64 * 8);
    rig.sync();
  }

  // Gives it to the stream; a driver may also refuse it at once, and is then not asynchronous.
  void submit(npu_stream* stream) {
    const npu_status status = rig.d.submit(stream, &command);
    if (status == NPU_UNSUPPORTED) throw NotSupported{"the driver does not run check_index in a MAP"};
    if (status == NPU_ERROR_INDEX) throw NotSupported{"the driver finds a bad index at once; nothing fails later"};
    rig.ok(status, "submit");
  }
};

}  // namespace

TEST("failure: an asynchronous failure is reported exactly once, by stream_synchronize") {
  Rig rig(context);
  BadIndex bad(rig);
  for (int i = 0; i < 3; i++) {
    bad.submit(rig.stream);
    rig.refused(rig.d.stream_synchronize(rig.stream), "stream_synchronize", {NPU_ERROR_INDEX});
    const std::string text = rig.text();
    expect(
        (context.legalised || text.find("MAP") != std::string::npos) && text.find("aten::index") != std::string::npos,
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
