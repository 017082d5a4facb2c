// Drafts and recipes in words, for logs, reports and plans.
#pragma once
#include <string>
#include <vector>

#include "support/legalise/draft/draft.h"

namespace npu::legalise {

struct Recipe;

// "MATMUL addmm 64x10 k=32: bf16(32,1) bf16(1,32) f32(10,1), program addmm of 5"
std::string describe(const Draft& draft);
// A line per step; equal neighbours are counted: "8x MATMUL ...".
std::vector<std::string> describe(const Recipe& recipe);

}  // namespace npu::legalise
