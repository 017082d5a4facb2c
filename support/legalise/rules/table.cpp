// The table of rules.
#include "support/legalise/rules/parts.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace npu::legalise {

std::span<const Rule> rules() {
  static const std::vector<Rule> table = [] {
    std::vector<Rule> all;
    // Of one price, those come first that help where submit refuses what `supports` takes: then any change looks like
    // help.
    for (const std::span<const Rule>& part :
         {rank_rules, index_rules, dense_rules, product_rules, conv_rules, segment_rules, shape_rules, fold_kind_rules,
          value_rules, piece_rules, scan_rules, copy_rules, sort_rules, scatter_rules, function_rules, identity_rules,
          front_rules, cut_rules, type_rules, number_sort_rules, number_rules})
      all.insert(all.end(), part.begin(), part.end());
    std::stable_sort(all.begin(), all.end(), [](const Rule& a, const Rule& b) { return a.price < b.price; });
    if (all.size() > 64) throw std::logic_error("expected at most 64 rules, got " + std::to_string(all.size()));
    return all;
  }();
  return table;
}

bool came_by(const Draft& draft, const char* name) {
  const std::span<const Rule> all = rules();
  for (size_t k = 0; k < all.size(); ++k)
    if (std::string_view(all[k].name) == name) return draft.tried >> k & 1;
  throw std::logic_error(std::string("expected the name of a rule, got ") + name);
}

}  // namespace npu::legalise
