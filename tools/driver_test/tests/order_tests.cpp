// Many commands and copies that depend on each other, given at once and waited for once: what a queue, two engines
// beside each other, or a cache in front of memory get wrong. Every number is small and whole, so that results are
// exact in any order of accumulation.
#include <algorithm>
#include <map>
#include <optional>

#include "support/program/program.h"
#include "support/reference/reference.h"
#include "tools/driver_test/command/case.h"
#include "tools/driver_test/frame/watched.h"

using namespace driver_test;

namespace {

constexpr int64_t kSide = 32, kElements = kSide * kSide;
constexpr uint64_t kBytes = kElements * sizeof(float);

struct Image {
  std::vector<Bytes> buffers;
  std::optional<npu_scalar> param;  // what every command would get instead of its own
};

// What is given to the device in one call, and what it does to memory.
struct Step {
  std::string name;
  std::function<npu_status(npu_stream*)> give;
  std::function<void(Image&)> apply;
};

class Chain {
 public:
  explicit Chain(Rig& rig, Random& random) : rig_(rig), random_(random) {
    for (int i = 0; i < 6; i++) {
      addr_.push_back(rig.alloc(kBytes));
      image_.buffers.push_back(numbers());
      rig.upload(addr_.back(), image_.buffers.back());
    }
    slow_ = rig.alloc(2 * kSlow);
    rig.upload(slow_, Bytes(2 * kSlow, 1));
    rig.sync();
    first_ = image_;
    for (const Builder& builder : {clamp(), add()}) make(builder);
  }
  ~Chain() {
    for (npu_program* program : programs_)
      if (program) rig_.d.program_destroy(program);
    for (const npu_addr addr : addr_) rig_.free(addr);
    rig_.free(slow_);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  int64_t commands() const { return commands_; }

  // Work that takes a while, so that what follows waits in a queue.
  void delay(npu_stream* stream) {
    for (int i = 0; i < 2; i++)
      rig_.ok(rig_.d.copy_on_device(stream, slow_ + (i % 2 ? 0 : kSlow), slow_ + (i % 2 ? kSlow : 0), kSlow),
              "copy_on_device");
  }

  void give(npu_stream* stream) {
    const bool brings_back = last_sums_ != SIZE_MAX;
    Step step = random_step();
    npu_status status = step.give(stream);
    if (status == NPU_UNSUPPORTED && brings_back) {  // or sums of sums would grow until they are rounded
      step = copy_in(last_);
      status = step.give(stream);
    }
    if (status == NPU_UNSUPPORTED) return last_sums_ = SIZE_MAX, void();
    rig_.ok(status, step.name.c_str());
    step.apply(image_);
    steps_.push_back(step);
  }

  void compare() {
    std::vector<Bytes> got;
    for (const npu_addr addr : addr_) got.push_back(rig_.download(addr, kBytes));
    if (got == image_.buffers) return;
    size_t wrong = 0;
    while (got[wrong] == image_.buffers[wrong]) wrong++;
    int64_t element = 0, count = 0;
    for (int64_t i = kElements - 1; i >= 0; i--)
      if (value(got[wrong], i) != value(image_.buffers[wrong], i)) element = i, count++;
    std::string list;
    for (size_t i = 0; i < steps_.size(); i++) list += say("\n  ", i, ": ", steps_[i].name);
    fail("after ", steps_.size(), " commands and copies given at once: buffer ", wrong, ", element [", element / kSide,
         ", ", element % kSide, "]: expected ", value(image_.buffers[wrong], element), ", got ",
         value(got[wrong], element), "; ", count, " of ", kElements, " are wrong", explanation(got), list);
  }

 private:
  static constexpr uint64_t kSlow = 2 << 20;

  static float value(const Bytes& bytes, int64_t element) {
    float out = 0;
    std::memcpy(&out, &bytes[static_cast<size_t>(element) * sizeof out], sizeof out);
    return out;
  }

  Bytes numbers() {
    Bytes out(kBytes);
    for (size_t i = 0; i < kBytes; i += sizeof(float)) {
      const auto number = static_cast<float>(random_.between(-4, 4));
      std::memcpy(&out[i], &number, sizeof number);
    }
    return out;
  }

  // out = max(min(x, p), -p)
  static Builder clamp() {
    Builder b("clamp");
    const Id most = b.param(NPU_F32, 0);
    b.store(0, b.op(NPU_OP_MAX, b.op(NPU_OP_MIN, b.load(1, NPU_F32), most), b.op(NPU_OP_NEG, most)));
    return b;
  }
  static Builder add() {
    Builder b("add");
    b.store(0, b.op(NPU_OP_ADD, b.load(1, NPU_F32), b.load(2, NPU_F32)));
    return b;
  }
  void make(const Builder& builder) {
    sources_.push_back(builder.program);
    const npu_program_desc desc = sources_.back().desc();
    npu_program* program = nullptr;
    if (rig_.d.program_create(rig_.device, &desc, &program) != NPU_OK) program = nullptr;
    programs_.push_back(program);
  }

  // A command over whole buffers; operand k lies in buffer places[k].
  Step command_step(int kind, std::vector<int64_t> size, const std::vector<size_t>& places, int program, double param,
                    bool transposed = false) {
    npu_command command{};
    command.struct_size = sizeof command;
    command.kind = static_cast<uint8_t>(kind);
    command.rank = static_cast<uint8_t>(size.size());
    std::copy(size.begin(), size.end(), command.size);
    command.label = "driver-test";
    if (kind == NPU_MATMUL) command.u.matmul = {kSide, NPU_F32, 0, {}};
    std::vector<npu_operand> operands;
    for (const size_t place : places) {
      npu_operand o{};
      o.addr = addr_[place];
      o.dtype = NPU_F32;
      for (size_t d = 0; d < size.size(); d++) o.stride[d] = d + 1 == size.size() ? 1 : kSide;
      operands.push_back(o);
    }
    if (transposed) std::swap(operands[1].stride[0], operands[1].stride[1]);
    npu_scalar scalar{};
    scalar.f = param;
    std::string name =
        say(npu::command_name(kind), program >= 0 ? " " + sources_[static_cast<size_t>(program)].name : "",
            transposed ? " transposed" : "", ", buffer ", places[0], " from ", places[1]);
    for (size_t k = 2; k < places.size(); k++) name += say(" and ", places[k]);
    if (program == 0) name += say(", param ", param);
    if (kind == NPU_MATMUL) name = say("MATMUL, buffer ", places[2], " from ", places[0], " and ", places[1]);
    const auto with = [=](auto use, const std::optional<npu_scalar>& instead = {}) {
      const npu_scalar param_used = instead.value_or(scalar);
      npu_command own = command;
      own.operands = operands.data();
      own.operand_count = static_cast<uint32_t>(operands.size());
      own.params = &param_used;
      own.param_count = program == 0 ? 1 : 0;
      return use(own);
    };
    Step step;
    step.name = name;
    step.give = [=, this](npu_stream* stream) {
      return with([&](npu_command& own) {
        if (program >= 0 && !(own.program = programs_[static_cast<size_t>(program)])) return NPU_UNSUPPORTED;
        const npu_status status = rig_.d.submit(stream, &own);
        commands_ += status == NPU_OK;
        return status;
      });
    };
    step.apply = [=, this](Image& image) {
      with(
          [&](npu_command& own) {
            npu_program_desc desc{};
            if (program >= 0) desc = sources_[static_cast<size_t>(program)].desc();
            std::string error;
            return npu::run_reference(own, program >= 0 ? &desc : nullptr, translate(image), &error);
          },
          image.param);
    };
    return step;
  }

  npu::Translate translate(Image& image) const {
    return [&image, this](npu_addr addr, uint64_t size, bool) -> void* {
      for (size_t i = 0; i < addr_.size(); i++)
        if (addr >= addr_[i] && addr + size <= addr_[i] + kBytes) return image.buffers[i].data() + (addr - addr_[i]);
      return nullptr;
    };
  }

  Step copy_in(size_t to) {
    const Bytes data = numbers();
    return {say("copy_to_device, buffer ", to),
            [=, this](npu_stream* stream) { return rig_.d.copy_to_device(stream, addr_[to], data.data(), kBytes, 0); },
            [=](Image& image) { image.buffers[to] = data; }};
  }

  Step copy_across(size_t to, size_t from) {
    return {say("copy_on_device, buffer ", to, " from ", from),
            [=, this](npu_stream* stream) { return rig_.d.copy_on_device(stream, addr_[to], addr_[from], kBytes); },
            [=](Image& image) { image.buffers[to] = image.buffers[from]; }};
  }

  // Reads what the step before wrote, if it can.
  Step random_step() {
    std::vector<size_t> places = {0, 1, 2, 3, 4, 5};
    for (size_t i = 5; i > 0; i--)
      std::swap(places[i], places[static_cast<size_t>(random_.below(static_cast<int64_t>(i + 1)))]);
    const size_t to = places[0], other = places[2], from = last_ == to ? places[1] : last_;
    const int64_t sort = random_.below(10);
    const size_t sums = last_sums_;
    last_sums_ = SIZE_MAX;
    last_ = to;
    if (sums != SIZE_MAX)  // sums are brought back to small numbers before anything else sees them
      return last_ = sums,
             command_step(NPU_MAP, {kElements}, {sums, sums}, 0, static_cast<double>(random_.between(1, 8)));
    if (sort == 0) return copy_in(to);
    if (sort <= 2) return copy_across(to, from);
    if (sort <= 4) return command_step(NPU_COPY, {kSide, kSide}, {to, from}, -1, 0, sort == 4);
    last_sums_ = to;
    if (sort <= 7) return command_step(NPU_MAP, {kElements}, {to, from, other}, 1, 0);
    return command_step(NPU_MATMUL, {kSide, kSide}, {from, other, to}, -1, 0);
  }

  // Which slip between two steps gives what the device has?
  std::string explanation(const std::vector<Bytes>& got) const {
    const auto gives = [&](const std::vector<size_t>& order) {
      Image image = first_;
      for (const size_t k : order) steps_[k].apply(image);
      return image.buffers == got;
    };
    Image stale = first_;
    std::memset(&stale.param.emplace(), kOverwritten, sizeof(npu_scalar));
    for (const Step& step : steps_) step.apply(stale);
    if (stale.buffers == got)
      return "\n  looks like: stale params: they are read after submit has returned (the driver keeps the pointer)";
    std::vector<size_t> order(steps_.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    for (size_t i = 0; i < order.size(); i++) {
      std::vector<size_t> other = order;
      other.erase(other.begin() + static_cast<std::ptrdiff_t>(i));
      if (gives(other)) return say("\n  looks like: step ", i, " has not run when the results are read");
      for (size_t at = 0; at < i; at++) {
        std::vector<size_t> moved = other;
        moved.insert(moved.begin() + static_cast<std::ptrdiff_t>(at), i);
        if (gives(moved)) return say("\n  looks like: step ", i, " runs before step ", at, " (ordering)");
      }
    }
    return "\n  looks like: steps run out of order, or read what memory held before (ordering), if each alone is right";
  }

  Rig& rig_;
  Random& random_;
  std::vector<npu_addr> addr_;
  npu_addr slow_ = 0;
  Image image_, first_;
  std::vector<npu::Program> sources_;
  std::vector<npu_program*> programs_;
  std::vector<Step> steps_;
  size_t last_ = 0, last_sums_ = SIZE_MAX;
  int64_t commands_ = 0;
};

int64_t rounds(const Context& context) {
  return std::max(4, context.count / 5);
}

}  // namespace

TEST("order: commands and copies that depend on each other run in the order given") {
  Rig rig(context);
  int64_t commands = 0;
  for (const int64_t round : context.chosen(rounds(context))) {
    Random random = context.random(static_cast<uint64_t>(round));
    Chain chain(rig, random);
    if (random.chance(70)) chain.delay(rig.stream);
    for (int i = 0; i < 24; i++) chain.give(rig.stream);
    rig.sync();
    chain.compare();
    commands += chain.commands();
  }
  context.note = say(commands, " commands among copies");
}

TEST("order: commands and copies on two streams run in the order that events give them") {
  Rig rig(context);
  npu_stream* streams[2] = {rig.new_stream(), rig.new_stream()};
  npu_event* event = rig.new_event();
  int64_t commands = 0;
  for (const int64_t round : context.chosen(rounds(context))) {
    Random random = context.random(static_cast<uint64_t>(round));
    Chain chain(rig, random);
    size_t on = 0;
    chain.delay(streams[on]);
    for (int i = 0; i < 24; i++) {
      if (random.chance(40)) {
        rig.ok(rig.d.event_record(event, streams[on]), "event_record");
        on = 1 - on;
        rig.ok(rig.d.stream_wait_event(streams[on], event), "stream_wait_event");
        if (random.chance(20)) chain.delay(streams[1 - on]);
      }
      chain.give(streams[on]);
    }
    rig.sync(streams[on]);
    chain.compare();
    rig.sync(streams[1 - on]);
    commands += chain.commands();
  }
  rig.d.event_destroy(event);
  context.note = say(commands, " commands among copies");
}
