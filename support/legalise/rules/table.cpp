// The table of rules.
#include "support/legalise/rules/parts.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace npu::legalise {

std::span<const Rule> rules() {
  static const std::vector<Rule> table = [] {
    std::vector<Rule> all;
    for (const std::span<const Rule>& part : {product_rules, number_sort_rules, number_rules})
      all.insert(all.end(), part.begin(), part.end());
    std::stable_sort(all.begin(), all.end(), [](const Rule& a, const Rule& b) { return a.price < b.price; });
    if (all.size() > 64) throw std::logic_error("expected at most 64 rules, got " + std::to_string(all.size()));
    return all;
  }();
  return table;
}

}  // namespace npu::legalise
