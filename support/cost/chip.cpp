#include "support/cost/chip.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <stdexcept>

#include "support/cost/command_cost.h"
#include "support/program/op_info.h"
#include "support/program/program.h"

namespace npu {
namespace {

struct Key {
  double Chip::* value;
  double least;
};

const std::map<std::string, Key, std::less<>>& keys() {
  static const std::map<std::string, Key, std::less<>> table = {
      {"clock_mhz", {&Chip::clock_mhz, 1e-3}},
      {"launch_cycles", {&Chip::launch_cycles, 0}},
      {"overlap", {&Chip::overlap, 0}},
      {"matrix.rows", {&Chip::rows, 1}},
      {"matrix.columns", {&Chip::columns, 1}},
      {"matrix.fill_cycles", {&Chip::fill_cycles, 0}},
      {"matrix.f32_passes", {&Chip::f32_passes, 1e-3}},
      {"matrix.int8_rate", {&Chip::int8_rate, 1e-3}},
      {"matrix.unfold_cycles", {&Chip::unfold_cycles, 0}},
      {"vector.lanes", {&Chip::lanes, 1}},
      {"vector.op_cycles", {&Chip::op_cycles, 0}},
      {"vector.function_cycles", {&Chip::function_cycles, 0}},
      {"vector.fold_cycles", {&Chip::fold_cycles, 0}},
      {"vector.gather_cycles", {&Chip::gather_cycles, 0}},
      {"vector.scatter_cycles", {&Chip::scatter_cycles, 0}},
      {"vector.op_launch_cycles", {&Chip::op_launch_cycles, 0}},
      {"memory.sram_kb", {&Chip::sram_kb, 1}},
      {"memory.dram_gbps", {&Chip::dram_gbps, 1e-6}},
      {"memory.host_gbps", {&Chip::host_gbps, 1e-6}},
      {"memory.line_bytes", {&Chip::line_bytes, 1}},
  };
  return table;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Without a comment; a # inside quotes is none.
std::string_view code_of(std::string_view line) {
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == '#' && !quoted) return trimmed(line.substr(0, i));
  }
  return trimmed(line);
}

// From the roots on, ops.def has nothing else.
bool is_function(uint8_t op) {
  switch (op) {
    case NPU_OP_DIV:
    case NPU_OP_FLOORDIV:
    case NPU_OP_MOD:
    case NPU_OP_FMOD:
    case NPU_OP_POW:
      return true;
    default:
      return op >= NPU_OP_SQRT;
  }
}

int find_op(std::string_view text) {
  for (int op = 0; op < NPU_OP_COUNT; ++op)
    if (op_info(op).text == text) return op;
  return -1;
}

bool is_free(uint8_t op) {
  switch (op) {
    case NPU_OP_SEGMENT:
    case NPU_OP_CONST:
    case NPU_OP_PARAM:
    case NPU_OP_SIZE:
    case NPU_OP_GET:
    case NPU_OP_LOAD:
    case NPU_OP_STORE:
      return true;
    default:
      return false;
  }
}

int64_t product(const int64_t* size, int from, int to) {
  int64_t all = 1;
  for (int d = from; d < to; ++d) all *= size[d];
  return all;
}

void add_product(const npu_command& c, Work& work) {
  if (c.kind == NPU_MATMUL) {
    work.batch = product(c.size, 0, c.rank - 2);
    work.m = c.size[c.rank - 2];
    work.n = c.size[c.rank - 1];
    work.k = c.u.matmul.k;
  } else {
    const npu_conv& v = c.u.conv;
    const int64_t in = product(v.in_size, 0, static_cast<int>(v.spatial_rank));
    const int64_t out = product(v.out_size, 0, static_cast<int>(v.spatial_rank));
    const int64_t taps = product(v.kernel, 0, static_cast<int>(v.spatial_rank));
    const int64_t from = v.in_channels / v.groups, to = v.out_channels / v.groups;
    work.batch = v.groups;
    if (v.mode == NPU_CONV_FORWARD) {
      work.m = v.batch * out, work.n = to, work.k = from * taps;
      work.unfolded = v.groups * work.m * work.k;
    } else if (v.mode == NPU_CONV_GRAD_INPUT) {
      // A window that moves by several points meets each of them with few of its taps.
      const int64_t steps = product(v.stride, 0, static_cast<int>(v.spatial_rank));
      work.m = v.batch * in, work.n = from, work.k = std::max<int64_t>(1, to * taps / std::max<int64_t>(1, steps));
      work.unfolded = v.groups * work.m * work.k;
    } else {
      work.m = to, work.n = from * taps, work.k = v.batch * out;
      work.unfolded = v.groups * work.n * work.k;
    }
  }
  work.product = c.operands[0].dtype;
  const uint8_t flags = c.kind == NPU_MATMUL ? c.u.matmul.flags : c.u.conv.flags;
  if (work.product == NPU_F32 && flags & NPU_MATMUL_REDUCED) work.product = NPU_BF16;
}

// Bytes that move for a product: each factor once if a memory of that size keeps it, else once per block of results.
double product_traffic(const Work& w, double sram) {
  const double element = std::max<int64_t>(1, dtype_size(w.product));
  const double a = static_cast<double>(w.m) * static_cast<double>(w.k) * element;
  const double b = static_cast<double>(w.k) * static_cast<double>(w.n) * element;
  if (std::min(a, b) <= sram / 2) return 0;
  const double side = std::max(1.0, std::sqrt(sram / (3 * element)));
  const double again_a = std::ceil(static_cast<double>(w.n) / side) - 1,
               again_b = std::ceil(static_cast<double>(w.m) / side) - 1;
  return static_cast<double>(w.batch) * std::min(a * again_a, b * again_b);
}

}  // namespace

std::string to_text(const Chip& chip) {
  char line[128];
  std::string out = "name = \"" + chip.name + "\"\n";
  for (const auto& [name, key] : keys()) {
    if (key.value == &Chip::overlap)
      std::snprintf(line, sizeof line, "overlap = %s\n", chip.overlap != 0 ? "true" : "false");
    else
      std::snprintf(line, sizeof line, "%s = %.6g\n", name.c_str(), chip.*key.value);
    out += line;
  }
  for (const auto& [op, cycles] : chip.function) {
    std::snprintf(line, sizeof line, "functions.%s = %.6g\n", op_name(op), cycles);
    out += line;
  }
  return out;
}

Chip parse_chip(std::string_view text) {
  Chip chip;
  std::string section;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = code_of(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.empty()) continue;
    const auto wrong = [&](const std::string& why) {
      return std::invalid_argument("line " + std::to_string(number) + ": " + why);
    };
    if (line.front() == '[') {
      if (line.back() != ']') throw wrong("expected a section in brackets, got " + std::string(line));
      section = std::string(trimmed(line.substr(1, line.size() - 2))) + ".";
      continue;
    }
    const size_t equals = line.find('=');
    const std::string key = section + std::string(trimmed(line.substr(0, equals)));
    std::string_view value = equals == std::string_view::npos ? std::string_view() : trimmed(line.substr(equals + 1));
    if (key == "name" && value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      chip.name = value.substr(1, value.size() - 2);
      continue;
    }
    const bool function = key.starts_with("functions.");
    const int op = function ? find_op(key.substr(10)) : -1;
    const auto known = keys().find(key);
    if (known == keys().end() && (op < 0 || !is_function(static_cast<uint8_t>(op)))) {
      std::string all = "name";
      for (const auto& [name, unused] : keys()) all += ", " + name;
      throw wrong("expected one of " + all + ", functions.exp and so on, got " + key);
    }
    const double least = function ? 0 : known->second.least;
    if (value == "true") value = "1";
    if (value == "false") value = "0";
    double parsed = 0;
    const auto [rest, bad] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (bad != std::errc() || rest != value.data() + value.size() || !(parsed >= least))
      throw wrong("expected a number of at least " + std::to_string(least) + " for " + key + ", got \"" +
                  std::string(value) + "\"");
    if (function)
      chip.function[static_cast<uint8_t>(op)] = parsed;
    else
      chip.*known->second.value = parsed;
  }
  return chip;
}

Work work_of(const npu_command& c, const npu_program_desc* program) {
  Work work;
  work.kind = c.kind;
  const int64_t points = product(c.size, 0, c.rank), rows = product(c.size, 0, c.rank - c.inner_rank);
  for (uint32_t i = 0; i < c.operand_count; ++i) {
    const Reach reach = reach_of(c, i);
    work.bytes += reach.bytes;
    if (reach.apart) work.apart += reach.elements;
  }
  if (c.kind == NPU_MATMUL || c.kind == NPU_CONV) add_product(c, work);
  if (c.kind == NPU_SORT && points > 0) {
    const double along = static_cast<double>(c.size[c.rank - 1]);
    work.ops = points * static_cast<int64_t>(std::ceil(std::log2(std::max(2.0, along))));
  }
  if (!program) return work;
  int64_t here = points;
  int each = 0;  // segments so far that run at every point
  std::map<uint8_t, int64_t> functions;
  for (uint32_t i = 0; i < program->instr_count; ++i) {
    const npu_instr& in = program->instrs[i];
    if (in.op == NPU_OP_SEGMENT) {
      here = in.imm == NPU_SEGMENT_ROW ? rows : points;
      each += in.imm == NPU_SEGMENT_EACH;
      continue;
    }
    if (in.op == NPU_OP_LOAD && each > 1 && here == points) {
      const int64_t bytes = reach_of(c, in.imm).bytes;
      work.again += bytes;
      if (rows > 0) work.row_bytes += bytes / rows;
    }
    const bool gathers = in.op == NPU_OP_LOAD_AT || (in.op == NPU_OP_LOAD && in.mask != NPU_NO_VALUE);
    const bool scatters = in.op == NPU_OP_STORE_AT || (in.op == NPU_OP_STORE && in.mask != NPU_NO_VALUE);
    if (gathers) work.gathers += here;
    if (scatters) work.scatters += here;
    if (in.op == NPU_OP_FOLD) work.folds += rows;
    if (is_free(in.op)) continue;
    ++work.instructions;
    if (is_function(in.op))
      functions[in.op] += here;
    else
      work.ops += here;
  }
  work.functions.assign(functions.begin(), functions.end());
  return work;
}

Cycles predict(const Chip& chip, const Work& w) {
  Cycles out;
  const double bytes_per_cycle = chip.dram_gbps * 1e3 / chip.clock_mhz;
  out.launch = chip.launch_cycles + chip.op_launch_cycles * static_cast<double>(w.instructions);
  if (w.kind == Work::kTransfer) {
    out.memory = static_cast<double>(w.bytes) / (chip.host_gbps * 1e3 / chip.clock_mhz);
    out.total = out.launch + out.memory;
    return out;
  }
  double bytes = static_cast<double>(w.bytes);
  if (static_cast<double>(w.row_bytes) > chip.sram_kb * 1024) bytes += static_cast<double>(w.again);
  if (w.batch * w.m * w.n * w.k > 0) {
    double passes = 1;
    if (w.product == NPU_F32) passes = chip.f32_passes;
    if (w.product == NPU_F64) passes = 4 * chip.f32_passes;
    if (w.product == NPU_I8 || w.product == NPU_U8) passes = 1 / chip.int8_rate;
    const double tiles =
        std::ceil(static_cast<double>(w.m) / chip.rows) * std::ceil(static_cast<double>(w.n) / chip.columns);
    out.matrix = static_cast<double>(w.batch) * tiles * (static_cast<double>(w.k) * passes + chip.fill_cycles);
    out.matrix += chip.unfold_cycles * static_cast<double>(w.unfolded);
    bytes += product_traffic(w, chip.sram_kb * 1024);
  }
  out.vector = static_cast<double>(w.ops) * chip.op_cycles;
  for (const auto& [op, points] : w.functions) {
    const auto known = chip.function.find(op);
    out.vector += static_cast<double>(points) * (known == chip.function.end() ? chip.function_cycles : known->second);
  }
  out.vector /= chip.lanes;
  out.vector += static_cast<double>(w.folds) * chip.fold_cycles + static_cast<double>(w.gathers) * chip.gather_cycles +
                static_cast<double>(w.scatters) * chip.scatter_cycles;
  bytes += static_cast<double>(w.apart) * (chip.line_bytes - 1);
  out.memory = bytes / bytes_per_cycle;
  const double computing = out.matrix + out.vector;
  out.total = out.launch + std::max(computing, out.memory) +
              (1 - std::min(1.0, chip.overlap)) * std::min(computing, out.memory);
  return out;
}

const char* Cycles::bound() const {
  const std::pair<double, const char*> parts[] = {
      {matrix, "matrix"}, {vector, "vector"}, {memory, "memory"}, {launch, "launch"}};
  return std::max_element(std::begin(parts), std::end(parts), [](auto& a, auto& b) { return a.first < b.first; })
      ->second;
}

}  // namespace npu
