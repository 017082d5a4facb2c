// SORT, SCATTER, indices and epilogue accuracy against the reference.
#include "support/program/approximation.h"
#include "tests/cpp/engine/program_fuzz.h"

namespace {
using namespace engine_test;
}

TEST(random_sorts_agree_with_the_reference) {
  for (uint32_t seed = 1; seed <= 800; ++seed) {
    Fuzz z(seed);
    std::vector<int64_t> shape = z.shape(3);
    if (shape.empty()) shape.push_back(7);
    Case k(NPU_SORT, shape, 1);
    const int key = z.storage();
    z.input(k, key);
    if (z.chance(50))
      k.immediate(NPU_I64, 0);
    else
      z.input(k, z.chance(50) ? NPU_I64 : NPU_I32);
    const int64_t n = k.c.size[k.c.rank - 1];
    k.c.u.sort.count = z.chance(60) ? n : z.pick(0, static_cast<int>(n));
    k.c.u.sort.descending = z.chance(50);
    k.c.u.sort.stable = 1;
    z.output(k, key);
    z.output(k, NPU_I64);
    const std::string text = k.compare();
    if (!text.empty()) fail("seed " + std::to_string(seed) + ": " + text);
  }
}

// Few different keys, so that positions decide; every way in which a row can end.
TEST(rows_of_every_length_are_sorted) {
  for (const int type : {NPU_F32, NPU_BF16, NPU_F64, NPU_I64, NPU_U8})
    for (int64_t n = 1; n < 2000; n += n < 140 ? 1 : 371) {
      Case k(NPU_SORT, {3, n}, 1);
      std::vector<unsigned char> keys(static_cast<size_t>(3 * n * npu::dtype_size(type)));
      std::mt19937 random(static_cast<uint32_t>(n));
      for (int64_t i = 0; i < 3 * n; ++i) {
        npu::Value v;
        v.f64 = static_cast<double>(random() % 9) - (type == NPU_U8 ? 0 : 4);
        npu::store_value(&keys[static_cast<size_t>(i * npu::dtype_size(type))], type, v, NPU_F64);
      }
      k.add(k.block(keys), type, {n, 1});
      k.immediate(NPU_I64, 0);
      k.add(k.block(3 * n, type), type, {n, 1});
      k.add(k.block(3 * n, NPU_I64), NPU_I64, {n, 1});
      k.c.u.sort.count = n % 5 == 0 ? n / 2 : n % 3 == 0 ? n / 3 : n % 7 == 0 ? n / 9 : n;
      k.c.u.sort.descending = n % 2;
      k.c.u.sort.stable = 1;
      const std::string text = k.compare();
      if (!text.empty()) fail(std::to_string(n) + " of type " + std::to_string(type) + ": " + text);
    }
}

TEST(gathers_and_scatters_with_repeated_indices_agree_with_the_reference) {
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    Fuzz z(seed);
    z.specials(false);
    const int64_t n = z.pick(1, 3000), range = z.pick(1, 200);
    const bool scatter = z.chance(50), out_of_range = z.chance(10);
    Case k(scatter ? NPU_SCATTER : NPU_MAP, {n});
    std::vector<int64_t> index(static_cast<size_t>(n));
    for (int64_t& i : index) i = z.pick(static_cast<int>(-range), static_cast<int>(range - 1));
    if (out_of_range) index[static_cast<size_t>(z.pick(0, static_cast<int>(n) - 1))] = range + z.pick(0, 5);
    k.add(k.block(index), NPU_I64, {1});
    const int types[] = {NPU_F32, NPU_I64, NPU_BF16, NPU_U8, NPU_F64};
    const int type = types[z.pick(0, 4)];
    npu_scalar size;
    size.i = range;
    k.params.push_back(size);
    const int table = k.block(range, type);
    z.fill(k.memory.back(), type);
    const std::string t = npu::dtype_name(npu::compute_dtype(type));
    if (scatter) {
      const int values = k.block(n, type);
      z.fill(k.memory.back(), type);
      k.add(values, type, {1});
      k.add(table, type, {0}).limit = z.chance(50) ? range : 0;
      const char* modes[] = {"", ", add", ", mul", ", max", ", min"};
      npu::Program p = npu::parse(
          "program s(index, x, out; n)\neach:\n  %i = load index : i64\n  %n = param n : i64\n"
          "  %k = check_index %i, %n, wrap, check : i64\n  %x = load x : " +
          t + "\n  store_at out, %x, %k" + std::string(modes[z.pick(0, 4)]) + "\n");
      k.with(p);
    } else {
      k.add(table, type, {0}).limit = z.chance(50) ? range : 0;
      const int out = k.block(n, type);
      k.add(out, type, {1});
      k.with(
          npu::parse("program g(index, table, out; n)\neach:\n  %i = load index : i64\n  %n = param n : i64\n"
                     "  %k = check_index %i, %n, wrap, check : i64\n  %x = load_at table, %k : " +
                     t + "\n  store out, %x\n"));
    }
    const std::string text = k.compare();
    if (!text.empty()) {
      fail("seed " + std::to_string(seed) + ": " + text);
      if (seed > 20) break;
    }
  }
}

TEST(wild_addresses_are_refused) {
  Case k(NPU_MAP, {4});
  k.add(k.block(std::vector<int64_t>{0, 1, int64_t{1} << 61, -5}), NPU_I64, {1});
  k.add(k.block(std::vector<float>{1, 2, 3, 4}), NPU_F32, {0});
  k.add(k.block(4, NPU_F32), NPU_F32, {1});
  k.with(
      "program g(index, table, out)\neach:\n  %i = load index : i64\n  %x = load_at table, %i : f32\n  store out, "
      "%x\n");
  std::vector<Bytes> out;
  std::string error;
  if (k.engine(out, error) != NPU_ERROR_ADDRESS) fail("expected an address error, got " + error);
}

// A padded load: the address is outside the block wherever the mask is false.
TEST(masked_loads_touch_nothing_where_the_mask_is_false) {
  Case k(NPU_MAP, {3000});
  std::vector<float> x(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  k.add(k.block(x), NPU_F32, {1}, -1000);
  k.add(k.block(3000, NPU_F32), NPU_F32, {1});
  k.with(
      "program pad(x, out)\neach:\n  %i = index 0 : i64\n  %a = const 1000 : i64\n  %b = const 2000 : i64\n"
      "  %c = ge %i, %a\n  %d = lt %i, %b\n  %m = and %c, %d\n  %x = load x, mask %m : f32\n  store out, %x\n");
  const std::string text = k.compare();
  if (!text.empty()) fail(text);
}

// Every function over its whole range, F32 and F64.
TEST(functions_are_within_a_few_units_in_the_last_place) {
  for (int op = NPU_OP_FLOOR; op <= NPU_OP_FREXP_E; ++op) {
    if (op == NPU_OP_LDEXP || op == NPU_OP_FREXP_E) continue;
    const std::string name = npu::op_name(op);
    const bool two = op == NPU_OP_ATAN2 || op == NPU_OP_HYPOT || op == NPU_OP_COPYSIGN || op == NPU_OP_NEXTAFTER;
    for (int type : {NPU_F32, NPU_F64}) {
      std::mt19937 random(7);
      std::vector<double> points = {0.0,    -0.0,  1,    -1,   0.5,  INFINITY, -INFINITY, NAN, 1e-40,
                                    -1e-40, 1e-30, 88.5, -103, 88.8, 1e30,     0.93,      0.64};
      std::uniform_real_distribution<double> narrow(-1, 1), wide(-20, 20), far(-110, 110);
      for (int i = 0; i < 3000; ++i)
        points.push_back(i % 3 == 0 ? narrow(random) : i % 3 == 1 ? wide(random) : far(random));
      Case k(NPU_MAP, {static_cast<int64_t>(points.size())});
      for (int i = 0; i <= two; ++i) {
        const int block = k.block(static_cast<int64_t>(points.size()), type);
        for (size_t j = 0; j < points.size(); ++j) {
          npu::Value v;
          v.f64 = points[i ? points.size() - 1 - j : j];
          npu::store_value(&k.memory.back()[j * static_cast<size_t>(npu::dtype_size(type))], type, v, NPU_F64);
        }
        k.add(block, type, {1});
      }
      k.add(k.block(static_cast<int64_t>(points.size()), type), type, {1});
      const std::string t = npu::dtype_name(type);
      k.with(npu::parse("program f(x, " + std::string(two ? "y, " : "") + "out)\neach:\n  %x = load x : " + t +
                        (two ? "\n  %y = load y : " + t + "\n  %r = " + name + " %x, %y" : "\n  %r = " + name + " %x") +
                        "\n  store out, %r\n"));
      const double ulp = type == NPU_F32 ? 1.2e-7 : 2.3e-16;
      // Near its zero digamma is a difference of two logarithms, exact to a unit of those.
      const double scale = op == NPU_OP_DIGAMMA ? 4 : type == NPU_F32 ? 1e-37 : 1e-300;
      // The reference's own sequences of tan, lgamma and erfinv may have 12; of lgamma near its zeros an absolute
      // error.
      const bool loose = type == NPU_F32 && npu::approximation(op).ulp > 4;
      const std::string text = k.compare({(loose ? 16 : 4) * ulp, op == NPU_OP_LGAMMA && loose ? 0.5 : scale});
      if (!text.empty()) fail(name + " " + t + ": " + text);
    }
  }
}

TEST(philox_agrees_with_the_reference) {
  Case k(NPU_MAP, {4000});
  k.add(k.block(4000, NPU_I64), NPU_I64, {1});
  k.with(
      "program r(out)\neach:\n  %s = const 123456789012 : i64\n  %o = const 77 : i64\n  %i = index 0 : i64\n"
      "  %r = philox %s, %o, %i, 2\n  store out, %r\n");
  const std::string text = k.compare();
  if (!text.empty()) fail(text);
}
