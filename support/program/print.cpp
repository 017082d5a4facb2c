// to_text: the printing half of the text form (docs/isa.md, "Text form").
#include <charconv>
#include <cmath>
#include <cstring>

#include "support/program/op_info.h"
#include "support/program/program.h"

namespace npu {
namespace {

// The pool that parse() would build from the constants alone: first use first, each bit pattern once.
bool pool_is_canonical(const npu_program_desc& desc) {
  uint32_t next = 0;
  for (uint32_t i = 0; i < desc.instr_count; ++i) {
    if (desc.instrs[i].op != NPU_OP_CONST) continue;
    if (desc.instrs[i].imm > next) return false;
    if (desc.instrs[i].imm == next) ++next;
  }
  if (next != desc.const_count) return false;
  for (uint32_t i = 0; i < next; ++i)
    for (uint32_t j = 0; j < i; ++j)
      if (desc.consts[i] == desc.consts[j]) return false;
  return true;
}

std::string hex(uint64_t bits) {
  char buffer[24];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), bits, 16).ptr;
  return "0x" + std::string(buffer, end);
}

std::string const_text(uint64_t bits, int dtype) {
  if (dtype == NPU_BOOL && bits <= 1) return bits ? "true" : "false";
  if (dtype == NPU_U64) return std::to_string(bits);
  if (!is_float(dtype)) return std::to_string(static_cast<int64_t>(bits));
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  if (std::isnan(value)) return bits == 0x7ff8000000000000u ? "nan" : "nan(" + hex(bits) + ")";
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  return std::string(buffer, end);
}

std::string name_text(const char* name) {
  std::string plain = name ? name : "";
  bool quote = plain.empty() || plain[0] == ' ' || plain.back() == ' ';
  for (unsigned char ch : plain) quote |= ch < ' ' || std::strchr("(#\"\\", ch) != nullptr;
  if (!quote) return plain;
  std::string out = "\"";
  for (char ch : plain) {
    if (ch == '\n') {
      out += "\\n";
      continue;
    }
    if (ch == '"' || ch == '\\') out += '\\';
    out += ch;
  }
  return out + "\"";
}

std::string value(uint16_t id) {
  return "%" + std::to_string(id);
}

std::string arguments(const npu_program_desc& desc, const npu_instr& in, bool canonical) {
  static constexpr const char* kStore[] = {"set", "add", "mul", "max", "min"};
  const std::string imm = std::to_string(in.imm);
  switch (in.op) {
    case NPU_OP_CONST:
      if (!canonical || in.imm >= desc.const_count) return "@" + imm;
      return const_text(desc.consts[in.imm], in.dtype);
    case NPU_OP_PARAM:
      return "p" + imm;
    case NPU_OP_INDEX:
    case NPU_OP_SIZE:
    case NPU_OP_ARG:
      return imm;
    case NPU_OP_LOAD:
      return "o" + imm;
    case NPU_OP_LOAD_AT:
    case NPU_OP_STORE:
      return "o" + imm + ", " + value(in.a);
    case NPU_OP_STORE_AT: {
      std::string out = "o" + imm + ", " + value(in.a) + ", " + value(in.b);
      return in.flags == NPU_STORE_SET ? out : out + ", " + (in.flags <= NPU_STORE_MIN ? kStore[in.flags] : "?");
    }
    case NPU_OP_CHECK_INDEX: {
      std::string out = value(in.a) + ", " + value(in.b);
      if (in.flags & NPU_INDEX_WRAP) out += ", wrap";
      if (in.flags & NPU_INDEX_CHECK) out += ", check";
      return out;
    }
    case NPU_OP_FOLD:
    case NPU_OP_SCAN: {
      std::string out = fold_name(fold_kind(in));
      if (fold_combine(in)) out += "@" + std::to_string(fold_combine(in));
      out += " " + value(in.a);
      if (in.b != NPU_NO_VALUE) out += ", " + value(in.b);
      if (in.c != NPU_NO_VALUE) out += ", " + value(in.c);
      return out;
    }
    case NPU_OP_GET:
      return value(in.a) + ", " + imm;
    case NPU_OP_YIELD:
      return imm + ", " + value(in.a);
    case NPU_OP_CAST:
      return in.imm == NPU_DTYPE_NONE ? value(in.a) : value(in.a) + " via " + dtype_name(static_cast<int>(in.imm));
    case NPU_OP_BITCAST:
      return value(in.a) + ", " + dtype_name(in.imm & 0xff) + " -> " + dtype_name((in.imm >> 8) & 0xff);
    default: {
      std::string out;
      if (in.a != NPU_NO_VALUE) out += value(in.a);
      if (in.b != NPU_NO_VALUE) out += ", " + value(in.b);
      if (in.c != NPU_NO_VALUE) out += ", " + value(in.c);
      return in.op == NPU_OP_PHILOX ? out + ", " + imm : out;
    }
  }
}

}  // namespace

std::string to_text(const npu_program_desc& desc) {
  static constexpr const char* kSegment[] = {"each:\n", "row:\n", "combine:\n"};
  std::string out = "program " + name_text(desc.name) + "(";
  for (uint32_t i = 0; i < desc.operand_count; ++i) out += (i ? ", o" : "o") + std::to_string(i);
  for (uint32_t i = 0; i < desc.param_count; ++i) out += (i ? ", p" : "; p") + std::to_string(i);
  out += ")\n";
  const bool canonical = pool_is_canonical(desc);
  if (!canonical) {
    out += "constants";
    for (uint32_t i = 0; i < desc.const_count; ++i) out += (i ? ", " : " ") + hex(desc.consts[i]);
    out += "\n";
  }
  for (uint32_t i = 0; i < desc.instr_count; ++i) {
    const npu_instr& in = desc.instrs[i];
    if (in.op == NPU_OP_SEGMENT) {
      out += in.imm <= NPU_SEGMENT_COMBINE ? kSegment[in.imm] : "?:\n";
      continue;
    }
    const bool defines = in.dtype != NPU_DTYPE_NONE;
    out += "  ";
    if (defines) out += value(static_cast<uint16_t>(i)) + " = ";
    out += op_name(in.op);
    std::string args = arguments(desc, in, canonical);
    if (!args.empty()) out += " " + args;
    if (in.mask != NPU_NO_VALUE) out += ", mask " + value(in.mask);
    if (defines) out += std::string(" : ") + dtype_name(in.dtype);
    out += "\n";
  }
  return out;
}

}  // namespace npu
