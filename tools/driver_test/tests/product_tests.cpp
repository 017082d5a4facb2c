// MATMUL and CONV against the reference.
#include <algorithm>
#include <cmath>

#include "tools/driver_test/command/case.h"
#include "tools/driver_test/command/programs.h"

using namespace driver_test;

namespace {

struct Types {
  int a, b, result, acc;
  Data data;
};

// Whole numbers are exact in every order of accumulation; real ones are compared by the sum of absolute values.
Types random_types(Random& random) {
  static const std::vector<int> reals = {NPU_F32, NPU_F32, NPU_F16, NPU_BF16, NPU_F64};
  static const std::vector<int> whole = {NPU_I8, NPU_U8, NPU_I16, NPU_I32, NPU_I64, NPU_BOOL};
  Types t{};
  if (random.chance(75)) {
    t.a = random.pick(reals);
    t.b = random.chance(85) ? t.a : random.pick(reals);
    t.acc = t.a == NPU_F64 || t.b == NPU_F64 ? NPU_F64 : NPU_F32;
    t.result = random.chance(80) ? t.a : t.acc;
    t.data = random.chance(40) ? Data::kSmall : Data::kReal;
  } else {
    t.a = t.b = random.pick(whole);
    t.acc = random.chance(50) ? NPU_I32 : NPU_I64;
    t.result = random.chance(50) ? t.a : t.acc;
    t.data = random.chance(50) ? Data::kSmall : Data::kSpecial;
  }
  return t;
}

// acc, or relu(acc * scale + bias) with the bias along one dimension, or of every point; sometimes stored on the way to
// a second result, which may use the sums again. What was there before may be added to either.
void finish(Random& random, Case& c, const Types& t, int64_t terms, int bias_dimension) {
  c.output(random, t.result, random.chance(40));
  const bool real = t.acc == NPU_F32 || t.acc == NPU_F64;
  if (random.chance(50)) {
    Builder b("epilogue");
    const Id sums = b.acc(t.acc);
    Id value = sums;
    if (random.chance(35)) {
      npu_scalar scale{};
      if (real)
        scale.f = 2;
      else
        scale.i = 2;
      c.params.push_back(scale);
      value = b.op(NPU_OP_MUL, value, b.param(t.acc, 0));
    }
    const bool full = random.chance(35);
    const uint32_t bias = c.input(random, t.result, t.data, !full || random.chance(70));
    if (!full) {
      for (int d = 0; d < c.command.rank; d++) c.operands[bias].stride[d] = d == bias_dimension;
    }
    value = b.op(NPU_OP_ADD, value, b.load(bias, t.acc));
    if (random.chance(50)) value = b.op(NPU_OP_MAX, value, b.constant(t.acc, 0));
    Id before = none;
    if (random.chance(20)) {
      c.alias(2);
      before = b.load(static_cast<uint32_t>(c.operands.size() - 1), t.acc);
    }
    const bool goes_on = random.chance(50);
    if (before != none && !goes_on) value = b.op(NPU_OP_ADD, value, before);
    b.store(2, value);
    if (goes_on) {
      Id more = b.op(NPU_OP_ADD, value, random.chance(25) ? sums : value);
      if (before != none) more = b.op(NPU_OP_ADD, more, before);
      b.store(c.output(random, random.chance(50) ? t.result : t.acc, random.chance(40)), more);
    }
    c.set(b);
  }
  if (real && t.data == Data::kReal) c.tolerance = Tolerance::sum(terms, t.acc);
}

Case random_matmul(Random& random) {
  static const std::vector<int64_t> sizes = {1, 1, 2, 3, 5, 8, 16, 17, 31, 33, 64, 70};
  const int64_t m = random.chance(2) ? 0 : random.pick(sizes), n = random.pick(sizes);
  const int64_t k = random.chance(4) ? 0 : random.pick(sizes);
  std::vector<int64_t> batch;
  while (random.chance(35) && batch.size() < 3) batch.push_back(random.between(1, 3));
  auto with = [&](int64_t rows, int64_t columns) {
    std::vector<int64_t> size = batch;
    size.push_back(rows);
    size.push_back(columns);
    return size;
  };
  Case c(NPU_MATMUL, with(m, n));
  const Types t = random_types(random);
  c.command.u.matmul.k = k;
  c.command.u.matmul.acc_dtype = static_cast<uint8_t>(t.acc);
  const bool plain = random.chance(50);
  c.input(random, t.a, t.data, plain, -1, with(m, k));
  c.input(random, t.b, t.data, plain, -1, with(k, n));
  if (t.data == Data::kSmall && random.chance(30)) c.command.u.matmul.flags = NPU_MATMUL_REDUCED;  // exact all the same
  finish(random, c, t, k, c.command.rank - 1);
  return c;
}

Case large_matmul(Random& random) {
  const int64_t m = random.between(100, 260), n = random.between(100, 260), k = random.between(100, 400);
  Case c(NPU_MATMUL, {m, n});
  c.command.u.matmul.k = k;
  c.command.u.matmul.acc_dtype = NPU_F32;
  c.input(random, NPU_F32, Data::kReal, true, -1, {m, k});
  c.input(random, NPU_F32, Data::kReal, true, -1, {k, n});
  c.output(random, NPU_F32, true);
  if (random.chance(50)) {  // transposed
    c.operands[0].stride[0] = 1;
    c.operands[0].stride[1] = m;
  }
  c.tolerance = Tolerance::sum(k, NPU_F32);
  return c;
}

npu_conv random_geometry(Random& random) {
  npu_conv conv{};
  const int spatial = static_cast<int>(random.between(1, 3));
  conv.mode = static_cast<uint32_t>(random.below(3));
  conv.spatial_rank = static_cast<uint32_t>(spatial);
  conv.batch = random.between(1, 3);
  conv.groups = random.chance(60) ? 1 : random.between(2, 4);
  conv.in_channels = conv.groups * random.between(1, 4);
  conv.out_channels = conv.groups * random.between(1, 4);
  for (int d = 0; d < spatial; d++) {
    conv.kernel[d] = random.between(1, spatial == 3 ? 2 : 4);
    conv.stride[d] = random.between(1, 3);
    conv.dilation[d] = random.chance(70) ? 1 : 2;
    conv.padding[d] = random.between(0, 2);
    const int64_t reach = conv.dilation[d] * (conv.kernel[d] - 1) + 1;
    conv.in_size[d] = std::max<int64_t>(reach - 2 * conv.padding[d], 1) + random.below(spatial == 1   ? 30
                                                                                       : spatial == 2 ? 9
                                                                                                      : 4);
    conv.out_size[d] = (conv.in_size[d] + 2 * conv.padding[d] - reach) / conv.stride[d] + 1;
  }
  return conv;
}

// The command without a result.
Case conv_of(Random& random, npu_conv conv, const Types& t, bool plain) {
  const auto spatial = static_cast<int>(conv.spatial_rank);
  auto shape = [&](int64_t first, int64_t second, const int64_t* rest) {
    std::vector<int64_t> out = {first, second};
    out.insert(out.end(), rest, rest + spatial);
    return out;
  };
  const auto input = shape(conv.batch, conv.in_channels, conv.in_size);
  const auto weight = shape(conv.out_channels, conv.in_channels / conv.groups, conv.kernel);
  const auto output = shape(conv.batch, conv.out_channels, conv.out_size);
  const auto& first = conv.mode == NPU_CONV_FORWARD ? input : output;
  const auto& second = conv.mode == NPU_CONV_GRAD_WEIGHT ? input : weight;
  const auto& result = conv.mode == NPU_CONV_FORWARD ? output : conv.mode == NPU_CONV_GRAD_INPUT ? input : weight;
  Case c(NPU_CONV, result);
  conv.acc_dtype = static_cast<uint8_t>(t.acc);
  c.command.u.conv = conv;
  c.input(random, t.a, t.data, plain, -1, first);
  c.input(random, t.b, t.data, plain, -1, second);
  return c;
}

// How many products a result is the sum of.
int64_t terms_of(const npu_conv& conv) {
  int64_t taps = 1, positions = conv.batch;
  for (uint32_t d = 0; d < conv.spatial_rank; d++) {
    taps *= conv.kernel[d];
    positions *= conv.out_size[d];
  }
  return conv.mode == NPU_CONV_FORWARD      ? taps * conv.in_channels / conv.groups
         : conv.mode == NPU_CONV_GRAD_INPUT ? taps * conv.out_channels / conv.groups
                                            : positions;
}

Case random_conv(Random& random) {
  const npu_conv conv = random_geometry(random);
  const Types t = random_types(random);
  Case c = conv_of(random, conv, t, random.chance(50));
  finish(random, c, t, terms_of(conv), 1);
  return c;
}

// Weights that are many beside the positions, of which much is padding: it takes no part, not even where a weight is
// infinite.
Case conv_of_few_positions(Random& random) {
  npu_conv conv = random_geometry(random);
  conv.batch = random.between(1, 4);
  conv.groups = random.chance(80) ? 1 : 2;
  conv.in_channels = conv.groups * random.between(46, 52);
  conv.out_channels = conv.groups * random.between(46, 52);
  for (uint32_t d = 0; d < conv.spatial_rank; d++) {
    const int64_t reach = conv.dilation[d] * (conv.kernel[d] - 1) + 1;
    conv.in_size[d] = std::max<int64_t>(reach - 2 * conv.padding[d], 1) + random.below(3);
    conv.out_size[d] = (conv.in_size[d] + 2 * conv.padding[d] - reach) / conv.stride[d] + 1;
  }
  const Types t{NPU_F32, NPU_F32, NPU_F32, NPU_F32, random.chance(50) ? Data::kSmall : Data::kReal};
  Case c = conv_of(random, conv, t, random.chance(70));
  finish(random, c, t, terms_of(conv), 1);
  static const std::vector<double> special = {INFINITY, -INFINITY, NAN};
  for (uint32_t operand = 0; operand < 2; operand++) {
    Buffer& buffer = c.buffers[static_cast<size_t>(c.buffer_of(operand))];
    for (int64_t left = random.chance(40) ? random.between(1, 40) : 0; left > 0; left--)
      put(buffer, random.below(buffer.elements), random.pick(special));
  }
  return c;
}

// Everything in one piece, and an operand of every point: a program that may as well run behind the convolution, if it
// does not need what the sums would be written over.
Case conv_in_one_piece(Random& random) {
  npu_conv conv = random_geometry(random);
  conv.mode = random.chance(50) ? NPU_CONV_FORWARD : NPU_CONV_GRAD_INPUT;
  Case c = conv_of(random, conv, {NPU_F32, NPU_F32, NPU_F32, NPU_F32, Data::kSmall}, true);
  const uint32_t result = c.output(random, NPU_F32, true);
  const auto full = [&] { return c.input(random, NPU_F32, Data::kSmall, true); };
  Builder b("epilogue");
  Id value = b.acc(NPU_F32), mask = none;
  if (random.chance(60)) value = b.op(NPU_OP_ADD, value, b.load(full(), NPU_F32));
  if (random.chance(15)) value = b.op(NPU_OP_ADD, value, b.load(result, NPU_F32));
  if (random.chance(15)) {
    c.alias(result);
    value = b.op(NPU_OP_ADD, value, b.load(static_cast<uint32_t>(c.operands.size() - 1), NPU_F32));
  }
  if (random.chance(20)) value = b.op(NPU_OP_MUL, value, b.load(c.immediate(random, NPU_F32, Data::kSmall), NPU_F32));
  if (random.chance(50)) {
    const Id off = b.compare(NPU_OP_LE, b.load(full(), NPU_F32), b.constant(NPU_F32, 0));
    if (random.chance(20))
      mask = off;
    else
      value = b.where(off, b.constant(NPU_F32, 0), value);
  }
  if (random.chance(20)) b.store(c.output(random, NPU_F32, true), b.op(NPU_OP_ADD, value, value));
  b.store(result, value, mask);
  c.set(b);
  return c;
}

}  // namespace

RANDOM_TEST("MATMUL: random types, batches, strides and epilogues", random_matmul);
RANDOM_TEST("CONV: forward and both gradients, groups, dilation, strides and epilogues", random_conv);
RANDOM_TEST("CONV: few positions of many channels, infinite weights beside padding", conv_of_few_positions);
RANDOM_TEST("CONV: results in one piece, with operands of every point", conv_in_one_piece);

TEST("MATMUL: large products") {
  Rig rig(context);
  const int kept = context.count;
  context.count = std::min(kept, 4);
  random_cases(context, rig, large_matmul);
}

TEST("MATMUL: two by two, by hand") {
  Rig rig(context);
  const float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, want[4] = {19, 22, 43, 50};
  npu_operand operands[3] = {};
  for (npu_operand& o : operands) {
    o.addr = rig.alloc(16);
    o.dtype = NPU_F32;
    o.stride[0] = 2;
    o.stride[1] = 1;
  }
  rig.upload(operands[0].addr, a, 16);
  rig.upload(operands[1].addr, b, 16);
  npu_command command{};
  command.struct_size = sizeof command;
  command.kind = NPU_MATMUL;
  command.rank = 2;
  command.size[0] = command.size[1] = 2;
  command.operand_count = 3;
  command.operands = operands;
  command.label = "aten::mm";
  command.u.matmul.k = 2;
  command.u.matmul.acc_dtype = NPU_F32;
  const npu_status status = rig.d.submit(rig.stream, &command);
  if (status == NPU_UNSUPPORTED) throw NotSupported{rig.text()};
  rig.ok(status, "submit");
  rig.sync();
  Bytes got = rig.download(operands[2].addr, 16);
  expect(std::memcmp(got.data(), want, 16) == 0, "expected [[19, 22], [43, 50]]");
}
