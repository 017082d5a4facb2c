#include <cmath>
#include <thread>

#include "tests/cpp/cmodel/product_case.h"

namespace {

using namespace product_test;

struct Shape3 {
  int64_t m, n, k;
};

void check_matmul(int64_t m, int64_t n, int64_t k) {
  Case c;
  const int acc = pick<int>({NPU_F32, NPU_F32, NPU_F64, NPU_I32, NPU_I64});
  const int batch_rank = chance(50) ? 0 : int(uniform(1, 3));
  Shape a, b, r;
  for (int d = 0; d < batch_rank; ++d) {
    const int64_t size = uniform(1, 4);
    a.push_back(size), b.push_back(size), r.push_back(size);
  }
  a.insert(a.end(), {m, k}), b.insert(b.end(), {k, n}), r.insert(r.end(), {m, n});
  c.command.kind = NPU_MATMUL;
  c.command.rank = uint8_t(r.size());
  std::copy(r.begin(), r.end(), c.command.size);
  c.command.u.matmul.k = k;
  c.command.u.matmul.acc_dtype = uint8_t(acc);
  const int same = random_dtype(acc);
  c.tensors.emplace_back(chance(60) ? same : random_dtype(acc), a, chance(40) ? Tensor::kDense : Tensor::kAny);
  c.tensors.emplace_back(chance(60) ? same : random_dtype(acc), b, chance(40) ? Tensor::kDense : Tensor::kAny);
  for (Tensor& t : c.tensors) t.fill();
  if (chance(25)) {  // one matrix for all batches
    Tensor& t = c.tensors[size_t(uniform(0, 1))];
    for (int d = 0; d < batch_rank; ++d) t.stride[d] = 0;
  }
  if (chance(30)) add_epilogue(c, r, acc);
  c.tensors.emplace_back(random_result(acc), r, chance(50) ? Tensor::kDense : Tensor::kOutput);
  c.text = "matmul acc " + std::string(npu::dtype_name(acc)) + (c.has_program ? " with epilogue" : "");
  c.check([&](const Shape& at) {
    Shape left = at, right = at;
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) {
      left[batch_rank + 1] = right[batch_rank] = p;
      sum += c.tensors[0].value(left) * c.tensors[1].value(right);
    }
    return sum;
  });
}

void check_any_matmul(int64_t largest) {
  const auto extent = [&] { return chance(12) ? 1 : chance(3) ? 0 : uniform(1, largest); };
  const int64_t m = extent(), n = extent(), k = extent();
  check_matmul(m, n, k);
}

// Real-valued operands of a product of one matrix each.
Case real_product(int dtype, int64_t m, int64_t n, int64_t k) {
  Case c;
  c.command.kind = NPU_MATMUL;
  c.command.rank = 2;
  c.command.size[0] = m, c.command.size[1] = n;
  c.command.u.matmul = {k, uint8_t(dtype == NPU_F64 ? NPU_F64 : NPU_F32), 0, {}};
  c.tensors.emplace_back(dtype, Shape{m, k}, Tensor::kDense);
  c.tensors.emplace_back(dtype, Shape{k, n}, Tensor::kDense);
  c.tensors.emplace_back(dtype == NPU_F64 ? NPU_F64 : NPU_F32, Shape{m, n}, Tensor::kDense);
  std::normal_distribution<double> normal;
  for (int t = 0; t < 2; ++t) {
    for (int64_t i = 0; i < c.tensors[t].count(); ++i) {
      npu::Value v{};
      v.f64 = normal(random_bits);
      npu::store_value(c.tensors[t].bytes.data() + i * npu::dtype_size(dtype), dtype, v, NPU_F64);
    }
  }
  return c;
}

// Rounding: stays within a few units of the sum of magnitudes, for sizes that reach every path.
void check_accuracy(int dtype, int64_t m, int64_t n, int64_t k) {
  Case c = real_product(dtype, m, n, k);
  bool ok = c.run_cmodel(c.tensors);
  const double unit = dtype == NPU_F64 ? 0x1p-52 : 0x1p-23;
  for (int trial = 0; trial < 200 && ok; ++trial) {
    const int64_t i = uniform(0, m - 1), j = uniform(0, n - 1);
    long double sum = 0, magnitude = 0;
    for (int64_t p = 0; p < k; ++p) {
      const long double term = (long double)c.tensors[0].value({i, p}) * c.tensors[1].value({p, j});
      sum += term, magnitude += std::fabs(term);
    }
    ok = std::fabs(double(c.tensors[2].value({i, j}) - sum)) <= unit * (4 + std::sqrt(double(k))) * double(magnitude);
  }
  if (!ok) {
    harness::fail(std::string("inaccurate: ") + npu::dtype_name(dtype) + " " + std::to_string(m) + " x " +
                  std::to_string(n) + " x " + std::to_string(k));
  }
}

}  // namespace

TEST(products_of_any_layout_type_and_epilogue) {
  with_threads([] {
    for (int i = 0; i < harness::work(500); ++i) check_any_matmul(i % 20 == 0 ? 130 : 24);
    for (int i = 0; i < harness::work(25); ++i) check_matmul(uniform(1, 130), uniform(770, 1700), 20);  // wide tiles
  });
}

TEST(products_are_as_accurate_as_their_type) {
  with_threads([] {
    for (const int dtype : {NPU_F32, NPU_F64, NPU_BF16, NPU_F16}) {
      check_accuracy(dtype, 300, 200, 700);
      check_accuracy(dtype, 1, 3000, 150);
      check_accuracy(dtype, 2500, 1, 333);
      check_accuracy(dtype, 70, 65, 1);
    }
  });
}

TEST(products_have_the_same_bits_on_any_number_of_threads) {
  for (const int dtype : {NPU_F32, NPU_F64, NPU_BF16}) {
    for (const auto& [m, n, k] :
         {Shape3{34, 33, 1500}, Shape3{34, 97, 1500}, Shape3{129, 65, 700}, Shape3{600, 49, 300}}) {
      Case c = real_product(dtype, m, n, k);
      std::vector<char> first;
      for (const int threads : {1, 2, 3, 8}) {
        cmodel::set_pool_threads(threads);
        if (!c.run_cmodel(c.tensors)) return;
        if (first.empty()) first = c.tensors[2].bytes;
        if (c.tensors[2].bytes == first) continue;
        return harness::fail(std::string("differs from one thread to ") + std::to_string(threads) + ": " +
                             npu::dtype_name(dtype) + " " + std::to_string(m) + " x " + std::to_string(n) + " x " +
                             std::to_string(k));
      }
    }
  }
}

TEST(products_of_several_streams_run_at_the_same_time) {
  std::vector<std::thread> streams;
  for (int t = 0; t < 3; ++t) {
    streams.emplace_back([t] {
      for (int i = 0; i < 20; ++i) {
        std::vector<float> a(200 * 150, 1.0f), b(150 * 180, float(t + 1)), c(200 * 180);
        cmodel::Operand operands[3];
        float* data[3] = {a.data(), b.data(), c.data()};
        const int64_t row[3] = {150, 180, 180};
        for (int o = 0; o < 3; ++o) {
          operands[o].ptr = reinterpret_cast<char*>(data[o]);
          operands[o].dtype = NPU_F32;
          operands[o].stride[0] = row[o], operands[o].stride[1] = 1;
        }
        cmodel::Job job;
        job.command.kind = NPU_MATMUL;
        job.command.rank = 2;
        job.command.size[0] = 200, job.command.size[1] = 180;
        job.command.u.matmul = {150, NPU_F32, 0, {}};
        job.operands = operands;
        cmodel::Failure failure;
        cmodel::run_matmul(job, failure);
        for (const float x : c) {
          if (x == 150.0f * float(t + 1)) continue;
          return harness::fail("concurrent products differ");
        }
      }
    });
  }
  for (std::thread& s : streams) s.join();
}
