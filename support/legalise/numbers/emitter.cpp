#include "support/legalise/numbers/emitter.h"

#include <cmath>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

#include "support/program/op_info.h"
#include "support/reference/evaluate.h"

namespace npu::legalise {

extern const char* const kWordsText;  // support/legalise/numbers/words.npu

namespace {

npu_instr instruction(npu_op op, int dtype, uint16_t a, uint16_t b, uint16_t c, uint32_t imm) {
  npu_instr in{};
  in.op = static_cast<uint8_t>(op);
  in.dtype = static_cast<uint8_t>(dtype);
  in.a = a;
  in.b = b;
  in.c = c;
  in.mask = NPU_NO_VALUE;
  in.imm = imm;
  return in;
}

std::string_view text_of(std::string_view name) {
  static const auto* const texts = [] {
    auto* out = new std::unordered_map<std::string_view, std::string_view>;  // for as long as the process lives
    constexpr std::string_view kHead = "program ";
    const std::string_view all = kWordsText;
    for (size_t at = all.find(kHead); at != all.npos;) {
      const size_t next = all.find("\nprogram ", at);
      const std::string_view text = all.substr(at, next == all.npos ? next : next + 1 - at);
      (*out)[text.substr(kHead.size(), text.find('(') - kHead.size())] = text;
      at = next == all.npos ? next : next + 1;
    }
    return out;
  }();
  const auto found = texts->find(name);
  return found == texts->end() ? std::string_view() : found->second;
}

// Parsed when it is first asked for.
const Program& sequence(std::string_view name) {
  static std::mutex mutex;
  static std::unordered_map<std::string_view, Program>* const programs =
      new std::unordered_map<std::string_view, Program>;
  const std::string_view text = text_of(name);
  if (text.empty()) throw std::logic_error("words.npu: no sequence " + std::string(name));
  std::lock_guard lock(mutex);
  const auto found = programs->find(text);
  return found != programs->end() ? found->second : programs->emplace(text, parse(text)).first->second;
}

}  // namespace

bool has_sequence(std::string_view name) {
  return !text_of(name).empty();
}

std::optional<Value> Emitter::known(uint16_t id) const {
  const auto found = known_.find(id);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

uint16_t Emitter::constant(int dtype, Value value) {
  const bool real = dtype == NPU_F32 || dtype == NPU_F64;
  std::string key(1, static_cast<char>(dtype));
  key.append(reinterpret_cast<const char*>(&value.u), sizeof value.u);
  const auto [at, fresh] = made_.try_emplace(key, NPU_NO_VALUE);
  if (fresh) {
    at->second = real ? writer_.real(dtype, convert(value, dtype, NPU_F64).f64) : writer_.integer(dtype, value.i);
    known_[at->second] = value;
  }
  return at->second;
}

uint16_t Emitter::op(npu_op op, int dtype, uint16_t a, uint16_t b, uint16_t c, uint32_t imm) {
  npu_instr in = instruction(op, dtype, a, b, c, imm);
  if (const uint16_t simple = simplified(in); simple != NPU_NO_VALUE) return simple;
  const std::string key(reinterpret_cast<const char*>(&in), sizeof in);
  const auto [at, fresh] = made_.try_emplace(key, NPU_NO_VALUE);
  if (fresh) at->second = writer_.emit(op, dtype, a, b, c, imm);
  return at->second;
}

uint16_t Emitter::simplified(const npu_instr& in) {
  if (in.op < NPU_OP_CAST || in.op == NPU_OP_ACC) return NPU_NO_VALUE;  // sources
  const uint16_t value = folded(in);
  return value != NPU_NO_VALUE ? value : neutral(in);
}

uint16_t Emitter::folded(const npu_instr& in) {
  Value args[3] = {};
  const uint16_t ids[] = {in.a, in.b, in.c};
  for (int k = 0; k < op_info(in.op).args; ++k) {
    const std::optional<Value> value = known(ids[k]);
    if (!value) return NPU_NO_VALUE;
    args[k] = *value;
  }
  const int type = writer_.type(in.op == NPU_OP_WHERE ? in.b : in.a);
  if (type == NPU_F64 || in.op == NPU_OP_PHILOX) return NPU_NO_VALUE;
  const Value value = evaluate(in, type, args[0], args[1], args[2]);
  if (in.dtype == NPU_F32 && std::isnan(value.f32)) return NPU_NO_VALUE;  // which NaN is the driver's choice
  return constant(in.dtype, value);
}

// Where one argument leaves the other as it is, or decides.
uint16_t Emitter::neutral(const npu_instr& in) {
  if (in.op == NPU_OP_WHERE) {
    if (in.b == in.c) return in.b;
    const std::optional<Value> condition = known(in.a);
    return !condition ? uint16_t{NPU_NO_VALUE} : condition->i ? in.b : in.c;
  }
  if (op_info(in.op).args != 2 || (in.dtype != NPU_I32 && in.dtype != NPU_BOOL)) return NPU_NO_VALUE;
  const int type = writer_.type(in.a);
  if (type != NPU_I32 && type != NPU_BOOL) return NPU_NO_VALUE;
  const bool swaps =
      in.op == NPU_OP_ADD || in.op == NPU_OP_MUL || in.op == NPU_OP_AND || in.op == NPU_OP_OR || in.op == NPU_OP_XOR;
  std::optional<Value> right = known(in.b);
  uint16_t left = in.a;
  if (!right && swaps && (right = known(in.a))) left = in.b;
  if (!right) return NPU_NO_VALUE;
  const int64_t r = right->i, ones = type == NPU_BOOL ? 1 : -1;
  switch (in.op) {
    case NPU_OP_ADD:
    case NPU_OP_SUB:
    case NPU_OP_XOR:
    case NPU_OP_SHL:
    case NPU_OP_SHR:
      return r == 0 ? left : uint16_t{NPU_NO_VALUE};
    case NPU_OP_MUL:
      return r == 1 ? left : r == 0 ? constant(type, *right) : uint16_t{NPU_NO_VALUE};
    case NPU_OP_AND:
      return r == ones ? left : r == 0 ? constant(type, *right) : uint16_t{NPU_NO_VALUE};
    case NPU_OP_OR:
      return r == 0 ? left : r == ones ? constant(type, *right) : uint16_t{NPU_NO_VALUE};
    default:
      return NPU_NO_VALUE;
  }
}

std::vector<uint16_t> Emitter::call(std::string_view name, const std::vector<uint16_t>& arguments) {
  const Program& program = sequence(name);
  std::vector<uint16_t> here(program.instrs.size(), NPU_NO_VALUE), out;
  const auto at = [&](uint16_t id) { return id == NPU_NO_VALUE ? id : here[id]; };
  for (size_t k = 0; k < program.instrs.size(); ++k) {
    const npu_instr& in = program.instrs[k];
    npu_scalar bits{};
    switch (in.op) {
      case NPU_OP_SEGMENT:
        break;
      case NPU_OP_LOAD:
        here[k] = arguments[in.imm];
        break;
      case NPU_OP_STORE:
        out.push_back(at(in.a));
        break;
      case NPU_OP_CONST:
        bits.u = program.consts[in.imm];
        here[k] = constant(in.dtype, scalar_value(bits, in.dtype));
        break;
      default:
        here[k] = op(static_cast<npu_op>(in.op), in.dtype, at(in.a), at(in.b), at(in.c), in.imm);
    }
  }
  return out;
}

}  // namespace npu::legalise
