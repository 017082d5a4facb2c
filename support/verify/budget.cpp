#include "support/verify/budget.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>

#include "support/program/approximation.h"
#include "support/program/op_info.h"
#include "support/program/program.h"
#include "support/reference/functions.h"
#include "support/verify/element.h"

namespace npu {
namespace {

bool real(int dtype) {
  return dtype == NPU_F32 || dtype == NPU_F64;
}

double epsilon(int dtype) {
  return dtype == NPU_F64 ? 0x1p-52 : 0x1p-23;
}

// How far an instruction may be off; exact mode leaves open only what has no sequence.
Approximation left_open(const npu_instr& in, Exact exact) {
  if (!real(in.dtype) || (exact == Exact::kYes && is_defined(in.op, in.dtype))) return {};
  return approximation(in.op);
}

struct Freedom {
  bool functions = false, sums = false;
  bool rounds = false;   // a product may round its inputs
  double absolute = 0;   // of functions
  double eps = 0x1p-23;  // of sums
};

// What docs/isa.md leaves open in this command.
Freedom freedom_of(const npu_command& command, const npu_program_desc* program, Exact exact) {
  Freedom out;
  for (uint32_t i = 0; program && i < program->instr_count; ++i) {
    const npu_instr& in = program->instrs[i];
    const Approximation allowed = left_open(in, exact);
    out.functions |= allowed.ulp > 0;
    out.absolute = std::max(out.absolute, allowed.absolute);
    const int kind = fold_kind(in);
    const bool accumulates = (in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN) &&
                             (kind == NPU_FOLD_SUM || kind == NPU_FOLD_PROD || kind == NPU_FOLD_WELFORD);
    const bool adds = in.op == NPU_OP_STORE_AT && (in.flags == NPU_STORE_ADD || in.flags == NPU_STORE_MUL);
    const int type = accumulates ? int{in.dtype} : adds ? int{program->instrs[in.a].dtype} : int{NPU_BOOL};
    if (real(type)) {
      out.sums = true;
      out.eps = std::min(out.eps, epsilon(type));
    }
  }
  if (command.kind == NPU_MATMUL || command.kind == NPU_CONV) {
    const bool matmul = command.kind == NPU_MATMUL;
    const int acc = matmul ? command.u.matmul.acc_dtype : command.u.conv.acc_dtype;
    const int flags = matmul ? command.u.matmul.flags : command.u.conv.flags;
    out.sums |= real(acc);
    out.rounds =
        (flags & NPU_MATMUL_REDUCED) && (command.operands[0].dtype == NPU_F32 || command.operands[1].dtype == NPU_F32);
    out.eps = out.rounds ? 0x1p-7 : epsilon(acc);
  }
  return out;
}

// Whether float sums of this command may be in another order.
bool any_order(const npu_command& command, const Freedom& freedom, Exact exact) {
  if (freedom.rounds) return true;
  if (!freedom.sums || exact == Exact::kYes) return false;
  if (exact == Exact::kNo) return true;
  const bool product = command.kind == NPU_MATMUL || command.kind == NPU_CONV;
  return product && command.operand_count > 1 && (real(command.operands[0].dtype) || real(command.operands[1].dtype));
}

double terms_of(const npu_command& command) {
  double terms = 1;
  if (command.kind == NPU_MATMUL) return static_cast<double>(command.u.matmul.k);
  if (command.kind == NPU_CONV) {
    const npu_conv& conv = command.u.conv;
    const bool weight = conv.mode == NPU_CONV_GRAD_WEIGHT;
    terms = static_cast<double>(weight                          ? conv.batch
                                : conv.mode == NPU_CONV_FORWARD ? conv.in_channels / conv.groups
                                                                : conv.out_channels / conv.groups);
    for (uint32_t d = 0; d < conv.spatial_rank; ++d)
      terms *= static_cast<double>(weight ? conv.out_size[d] : conv.kernel[d]);
    return terms;
  }
  const int first = command.kind == NPU_SCATTER ? 0 : command.rank - command.inner_rank;
  for (int d = first; d < command.rank; ++d) terms *= static_cast<double>(command.size[d]);
  return terms;
}

// The program with every approximated function off by what is allowed; `pattern` 0: larger, 1: smaller, 2: in turn.
// Nothing if it gets too long.
std::optional<Program> disturbed(const npu_program_desc& program, int pattern, const Budget& budget) {
  Program out = Program::copy_of(program);
  out.instrs.clear();
  std::vector<uint16_t> now(program.instr_count);
  int functions = 0;
  const auto moved = [&](uint16_t id) { return id == NPU_NO_VALUE ? id : now[id]; };
  for (uint32_t i = 0; i < program.instr_count; ++i) {
    npu_instr in = program.instrs[i];
    in.a = moved(in.a), in.b = moved(in.b), in.c = moved(in.c), in.mask = moved(in.mask);
    out.instrs.push_back(in);
    if (const double ulp = left_open(in, budget.exact).ulp; ulp > 0) {
      const bool up = pattern == 0 || (pattern == 2 && functions % 2 == 0);
      const double factor = 1 + (up ? 1 : -1) * (ulp + 1) * budget.functions * epsilon(in.dtype);
      const auto bits = std::bit_cast<uint64_t>(factor);
      auto found = std::find(out.consts.begin(), out.consts.end(), bits);
      if (found == out.consts.end()) found = out.consts.insert(found, bits);
      npu_instr constant{};
      constant.op = NPU_OP_CONST;
      constant.dtype = in.dtype;
      constant.a = constant.b = constant.c = constant.mask = NPU_NO_VALUE;
      constant.imm = static_cast<uint32_t>(found - out.consts.begin());
      npu_instr times = constant;
      times.op = NPU_OP_MUL;
      times.imm = 0;
      times.a = static_cast<uint16_t>(out.instrs.size() - 1);
      times.b = static_cast<uint16_t>(out.instrs.size());
      out.instrs.push_back(constant);
      out.instrs.push_back(times);
      ++functions;
    }
    now[i] = static_cast<uint16_t>(out.instrs.size() - 1);
  }
  if (!validate(out.desc()).empty()) return std::nullopt;  // over a limit
  return out;
}

// Budget of every element of every region, computed only when something differs.
class Allowance {
 public:
  Allowance(const npu_command& command, const npu_program_desc* program, Mirror& before,
            const std::vector<Written>& written, const Budget& budget)
      : freedom_(freedom_of(command, program, budget.exact)), written_(written) {
    const bool sums = any_order(command, freedom_, budget.exact);
    if (!freedom_.functions && !sums) return;
    any_ = true;
    for (const Written& one : written)
      spread_.emplace_back(one.region.size / static_cast<uint64_t>(dtype_size(one.region.dtype)), 0.0);
    std::vector<Region> regions = footprint(command, program, [&](npu_addr addr) { return before.allocation(addr); });
    Scratch base(before, regions);
    if (base.run(command, program, nullptr) != NPU_OK) return;
    for (int pattern = 0; freedom_.functions && pattern < 3; ++pattern) {
      const auto other = disturbed(*program, pattern, budget);
      Scratch scratch(before, regions);
      const npu_program_desc desc = other ? other->desc() : *program;
      if (other && scratch.run(command, &desc, nullptr) == NPU_OK) widen(base, scratch);
    }
    if (sums) {
      Scratch scale(before, regions);
      scale.make_absolute(regions);
      // The sum of a REDUCE may have passed through more arithmetic: the largest result of all rows stands for each.
      const bool by_element = command.kind == NPU_MATMUL || command.kind == NPU_CONV || command.kind == NPU_SCATTER;
      if (scale.run(command, program, nullptr) == NPU_OK)
        add_sums(scale, (terms_of(command) + 2) * freedom_.eps * budget.sums, by_element);
    }
  }

  bool any() const { return any_; }
  // Where nothing may vary, not even the sign of a zero may.
  bool varies(size_t region, int64_t element) const {
    return any_ && spread_[region][static_cast<size_t>(element)] > 0;
  }

  double of(size_t region, int64_t element, double want) const {
    if (!any_) return 0;
    return 2 * spread_[region][static_cast<size_t>(element)] + 2 * freedom_.absolute +
           unit_in_last_place(want, written_[region].region.dtype);
  }

 private:
  template <class Each>
  void elements(Scratch& a, Scratch& b, Each each) {
    for (size_t r = 0; r < written_.size(); ++r) {
      const Region& region = written_[r].region;
      const std::byte *first = a.find(region.addr, region.size), *second = b.find(region.addr, region.size);
      if (!first || !second) continue;
      for (size_t i = 0; i < spread_[r].size(); ++i)
        each(spread_[r][i], element_number(first, region.dtype, static_cast<int64_t>(i)),
             element_number(second, region.dtype, static_cast<int64_t>(i)), r);
    }
  }

  void widen(Scratch& base, Scratch& other) {
    elements(base, other, [](double& spread, double a, double b, size_t) {
      const double apart = std::abs(a - b);
      if (a == b || (std::isnan(a) && std::isnan(b))) return;
      // At the edge of the range a function may overflow or not: both are right.
      spread = std::isfinite(apart) ? std::max(spread, apart) : std::numeric_limits<double>::infinity();
    });
  }

  void add_sums(Scratch& scale, double share, bool by_element) {
    std::vector<double> largest(written_.size(), 0.0);
    elements(scale, scale, [&](double&, double a, double, size_t r) {
      if (std::isfinite(a)) largest[r] = std::max(largest[r], std::abs(a));
    });
    elements(scale, scale, [&](double& spread, double a, double, size_t r) {
      const double size = by_element && std::isfinite(a) ? std::abs(a) : largest[r];
      spread += size * share / 2;
    });
  }

  Freedom freedom_;
  const std::vector<Written>& written_;
  bool any_ = false;
  std::vector<std::vector<double>> spread_;
};

// SORT without `stable`: among equal keys any order of the payload is right.
bool tied(const npu_command& command, const std::vector<Written>& written, const Region& region, int64_t offset) {
  if (command.kind != NPU_SORT || command.u.sort.stable || region.operand != 3) return false;
  int64_t point[NPU_MAX_RANK];
  if (!element_point(command, 3, offset, point)) return false;
  const npu_operand& keys = command.operands[2];
  const auto key = [&](int64_t place, uint64_t* bits) {
    int64_t at = 0;
    for (int d = 0; d < command.rank; ++d) at += (d == command.rank - 1 ? place : point[d]) * keys.stride[d];
    for (const Written& one : written) {
      const int64_t width = dtype_size(keys.dtype);
      const int64_t byte = static_cast<int64_t>(keys.addr - one.region.addr) + at * width;
      if (one.region.operand == 2 && byte >= 0 && byte + width <= static_cast<int64_t>(one.region.size)) {
        *bits = element_bits(one.want.data() + byte, keys.dtype, 0);
        return true;
      }
    }
    return false;
  };
  const int64_t place = point[command.rank - 1], last = command.u.sort.count - 1;
  uint64_t mine = 0, other = 0;
  if (!key(place, &mine)) return false;
  // The last result may tie with a key that was not taken.
  if (place == last && last + 1 < command.size[command.rank - 1]) return true;
  const bool zero = is_float(keys.dtype) && (mine << (64 - 8 * dtype_size(keys.dtype) + 1)) == 0;
  for (int64_t neighbour : {place - 1, place + 1})
    if (neighbour >= 0 && neighbour <= last && key(neighbour, &other) &&
        (other == mine || (is_nan(other, keys.dtype) && is_nan(mine, keys.dtype)) ||
         (zero && (other << (64 - 8 * dtype_size(keys.dtype) + 1)) == 0)))
      return true;
  return false;
}

}  // namespace

Verdict judge(const npu_command& command, const npu_program_desc* program, Mirror& before,
              const std::vector<Written>& written, const Budget& budget) {
  Verdict verdict;
  std::optional<Allowance> allowance;
  for (size_t r = 0; r < written.size(); ++r) {
    const Written& one = written[r];
    if (one.want == one.got) continue;
    verdict.same_bits = false;
    const int dtype = one.region.dtype;
    const int64_t width = dtype_size(dtype), count = static_cast<int64_t>(one.region.size) / width;
    const auto begin = static_cast<int64_t>(one.region.addr - command.operands[one.region.operand].addr) / width;
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t want = element_bits(one.want.data(), dtype, i), got = element_bits(one.got.data(), dtype, i);
      const bool both_nan = is_nan(want, dtype) && is_nan(got, dtype);
      if (want == got || (both_nan && budget.exact != Exact::kYes)) continue;
      if (tied(command, written, one.region, begin + i)) {
        ++verdict.tolerated;
        continue;
      }
      if (!allowance) allowance.emplace(command, program, before, written, budget);
      const double expected = element_number(one.want.data(), dtype, i);
      const double apart = std::abs(expected - element_number(one.got.data(), dtype, i));
      const double most = allowance->of(r, i, expected);
      if (apart <= most && (apart > 0 || allowance->varies(r, i))) {
        ++verdict.tolerated;
        if (std::isfinite(most)) verdict.used = std::max(verdict.used, apart / most);
        continue;
      }
      if (++verdict.differing == 1) {
        verdict.written = r;
        char text[64] = "bit for bit";
        if (const Freedom freedom = freedom_of(command, program, budget.exact);
            freedom.sums && !any_order(command, freedom, budget.exact))
          std::strcpy(text, "bit for bit (exact=no: sums in any order)");
        if (allowance->any()) std::snprintf(text, sizeof text, "at most %.3g apart", most);
        verdict.allowed = text;
      }
      if (verdict.written == r && verdict.first.size() < 8) {
        int64_t point[NPU_MAX_RANK] = {};
        const bool is_point = element_point(command, one.region.operand, begin + i, point);
        verdict.first.push_back({begin + i,
                                 is_point ? list_text(point, command.rank)
                                          : "no point (element " + std::to_string(begin + i) + " from its address)",
                                 want, got});
      }
    }
  }
  return verdict;
}

}  // namespace npu
