// Runs a package for npu without Python: run_package model.pt2 BATCH prints the answer to a batch of ramps.
#include <ATen/core/Tensor.h>
#include <ATen/ops/linspace.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

int main(int argc, char** argv) {
  char* end = nullptr;
  const int64_t batch = argc == 3 ? std::strtoll(argv[2], &end, 10) : 0;
  if (batch < 1 || *end != 0) {
    std::fprintf(stderr, "expected a package and a batch size, got");
    for (int i = 1; i < argc; ++i) std::fprintf(stderr, " %s", argv[i]);
    std::fprintf(stderr, "%s\n", argc == 1 ? " nothing" : "");
    return 2;
  }
  try {
    torch::inductor::AOTIModelPackageLoader model(argv[1]);
    const at::Tensor images = at::linspace(-1, 1, batch * 28 * 28).reshape({batch, 1, 28, 28}).to("npu");
    const at::Tensor scores = model.run({images})[0].cpu();
    for (int64_t row = 0; row < scores.size(0); ++row) {
      for (int64_t k = 0; k < scores.size(1); ++k) std::printf("%.9g ", scores[row][k].item<float>());
      std::printf("\n");
    }
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
