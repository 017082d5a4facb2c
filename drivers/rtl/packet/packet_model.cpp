#include "drivers/rtl/packet/packet_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "support/reference/value.h"

using namespace npu_hw;

namespace rtl {
namespace {

float as_float(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

uint32_t as_bits(float value) {
  return std::isnan(value) ? 0x7fc00000 : std::bit_cast<uint32_t>(value);
}

template <typename T>
T read(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

uint32_t load(uint32_t type, const unsigned char* from) {
  switch (type) {
    case TYPE_BF16:
      return as_bits(npu::bf16_to_f32(read<uint16_t>(from)));
    case TYPE_F16:
      return as_bits(npu::f16_to_f32(read<uint16_t>(from)));
    case TYPE_I16:
      return static_cast<uint32_t>(read<int16_t>(from));
    case TYPE_U16:
      return read<uint16_t>(from);
    case TYPE_I8:
      return static_cast<uint32_t>(read<int8_t>(from));
    case TYPE_U8:
      return *from;
    case TYPE_BOOL:
      return *from != 0;
    default:
      return read<uint32_t>(from);
  }
}

void store(uint32_t type, unsigned char* to, uint32_t lane) {
  switch (type) {
    case TYPE_BF16:
      lane = npu::f32_to_bf16(as_float(lane));
      break;
    case TYPE_F16:
      lane = npu::f32_to_f16(as_float(lane));
      break;
    case TYPE_BOOL:
      lane = lane != 0;
      break;
    default:
      break;
  }
  std::memcpy(to, &lane, type_width(type));
}

// From f32 as the contract converts.
uint64_t to_integer(float value, int dtype) {
  npu::Value from{};
  from.f32 = value;
  return npu::convert(from, NPU_F32, dtype).u;
}

uint64_t address(const Packet& p, int operand, const uint32_t* index) {
  uint64_t addr = p.addr[operand];
  for (int d = 0; d < 4; d++) addr += static_cast<uint64_t>(int64_t{index[d]} * p.stride[operand][d]);
  return addr;
}

unsigned char* at(const Packet& p, unsigned char* memory, int operand, const uint32_t* index) {
  return memory + address(p, operand, index);
}

uint32_t source(const Packet& p, unsigned char* memory, int operand, const uint32_t* index) {
  if (p.flags & FLAG_IMM_A << (operand - 1)) return p.imm;
  return load(p.type(operand), at(p, memory, operand, index));
}

void run_vector(const Packet& p, unsigned char* memory) {
  const bool three = p.op == VEC_FMA || p.op == VEC_SELECT;
  const bool one = p.op == VEC_MOV || p.op == VEC_I2F || p.op == VEC_F2I || p.op == VEC_FLOOR || p.op == VEC_ROUND ||
                   p.op == VEC_SQRT || p.op == VEC_F2L || p.op == VEC_F2H || p.op == VEC_IOTA || p.op == VEC_CHECK;
  uint32_t i[4];
  for (i[0] = 0; i[0] < p.size[0]; i[0]++)
    for (i[1] = 0; i[1] < p.size[1]; i[1]++)
      for (i[2] = 0; i[2] < p.size[2]; i[2]++)
        for (i[3] = 0; i[3] < p.size[3]; i[3]++) {
          const uint32_t a = source(p, memory, kA, i);
          const uint32_t b = p.op == VEC_IOTA ? i[3] : one ? 0 : source(p, memory, kB, i);
          const uint32_t c = three ? source(p, memory, kC, i) : 0;
          store(p.type(kResult), at(p, memory, kResult, i), run_operation(p.op, a, b, c));
        }
}

// Calls each(point, taken, address): the element lies b elements behind that of the point.
template <class Each>
void indexed(const Packet& p, unsigned char* memory, Each each) {
  const int moved = p.opcode == OP_GATHER ? kA : kResult;
  uint32_t i[4];
  for (i[0] = 0; i[0] < p.size[0]; i[0]++)
    for (i[1] = 0; i[1] < p.size[1]; i[1]++)
      for (i[2] = 0; i[2] < p.size[2]; i[2]++)
        for (i[3] = 0; i[3] < p.size[3]; i[3]++) {
          const int64_t index = static_cast<int32_t>(source(p, memory, kB, i));
          const bool taken = source(p, memory, kC, i) != 0;
          each(i, taken, address(p, moved, i) + static_cast<uint64_t>(index * type_width(p.type(moved))));
        }
}

void run_indexed(const Packet& p, unsigned char* memory) {
  indexed(p, memory, [&](const uint32_t* i, bool taken, uint64_t element) {
    if (p.opcode == OP_GATHER) {
      store(p.type(kResult), at(p, memory, kResult, i), taken ? load(p.type(kA), memory + element) : 0);
    } else if (taken) {
      const uint32_t a = source(p, memory, kA, i);
      store(p.type(kResult), memory + element,
            p.op == VEC_MOV ? a : run_operation(p.op, load(p.type(kResult), memory + element), a, 0));
    }
  });
}

void run_reduce(const Packet& p, unsigned char* memory) {
  uint32_t i[4];
  for (i[0] = 0; i[0] < p.size[0]; i[0]++)
    for (i[1] = 0; i[1] < p.size[1]; i[1]++)
      for (i[2] = 0; i[2] < p.size[2]; i[2]++) {
        uint32_t lane[LANES];
        for (uint32_t& value : lane) value = p.imm;
        for (i[3] = 0; i[3] < p.size[3]; i[3]++)
          lane[i[3] % LANES] = run_operation(p.op, lane[i[3] % LANES], load(p.type(kA), at(p, memory, kA, i)), 0);
        for (uint32_t apart = LANES / 2; apart; apart /= 2)
          for (uint32_t j = 0; j < apart; j++) lane[j] = run_operation(p.op, lane[j], lane[j + apart], 0);
        i[3] = 0;
        store(p.type(kResult), at(p, memory, kResult, i), lane[0]);
      }
}

// An element that takes no part.
bool is_gap(uint32_t type, const unsigned char* from) {
  return std::all_of(from, from + type_width(type), [](unsigned char byte) { return byte == 0xff; });
}

void run_gemm(const Packet& p, unsigned char* memory) {
  const bool narrow = p.type(kA) == TYPE_I8;
  for (uint32_t batch = 0; batch < p.size[0]; batch++)
    for (uint32_t m = 0; m < p.size[1]; m++)
      for (uint32_t n = 0; n < p.size[2]; n++) {
        uint32_t sum = 0;
        for (uint32_t k = 0; k < p.size[3]; k++) {
          const uint32_t left[4] = {batch, m, 0, k}, right[4] = {batch, 0, n, k};
          const uint32_t a = load(p.type(kA), at(p, memory, kA, left)), b = load(p.type(kB), at(p, memory, kB, right));
          if ((p.flags & FLAG_GAPS) && is_gap(p.type(kB), at(p, memory, kB, right))) continue;
          if (narrow) {
            sum += a * b;
          } else {
            const float product = as_float(a) * as_float(b);
            sum = as_bits(as_float(sum) + product);
          }
        }
        const uint32_t place[4] = {batch, m, n, 0};
        if (p.flags & FLAG_BIAS) {
          const uint32_t c = load(p.type(kC), at(p, memory, kC, place));
          sum = narrow ? sum + c : as_bits(as_float(sum) + as_float(c));
        }
        if ((p.flags & FLAG_RELU) && (narrow ? static_cast<int32_t>(sum) < 0 : as_float(sum) < 0)) sum = 0;
        store(p.type(kResult), at(p, memory, kResult, place), sum);
      }
}

}  // namespace

uint32_t run_operation(uint32_t op, uint32_t a, uint32_t b, uint32_t c) {
  const float x = as_float(a), y = as_float(b), z = as_float(c);
  const bool none = std::isnan(x) || std::isnan(y);
  switch (op) {
    case VEC_ADD:
      return as_bits(x + y);
    case VEC_SUB:
      return as_bits(x - y);
    case VEC_MUL:
      return as_bits(x * y);
    case VEC_FMA:
      return as_bits(std::fma(x, y, z));
    case VEC_MIN:
      return none ? as_bits(NAN) : y < x ? b : a;
    case VEC_MAX:
      return none ? as_bits(NAN) : y > x ? b : a;
    case VEC_EQ:
      return x == y;
    case VEC_LT:
      return x < y;
    case VEC_LE:
      return x <= y;
    case VEC_SELECT:
      return a != 0 ? b : c;
    case VEC_I2F:
      return as_bits(static_cast<float>(static_cast<int32_t>(a)));
    case VEC_F2I:
      return static_cast<uint32_t>(to_integer(x, NPU_I32));
    case VEC_IADD:
    case VEC_IOTA:  // b is the coordinate
      return a + b;
    case VEC_ISUB:
      return a - b;
    case VEC_IMUL:
      return a * b;
    case VEC_IEQ:
      return a == b;
    case VEC_ILT:
      return static_cast<int32_t>(a) < static_cast<int32_t>(b);
    case VEC_AND:
      return a & b;
    case VEC_OR:
      return a | b;
    case VEC_XOR:
      return a ^ b;
    case VEC_IMIN:
      return static_cast<int32_t>(b) < static_cast<int32_t>(a) ? b : a;
    case VEC_IMAX:
      return static_cast<int32_t>(b) > static_cast<int32_t>(a) ? b : a;
    case VEC_FLOOR:
      return as_bits(std::floor(x));
    case VEC_ROUND:
      return as_bits(std::nearbyint(x));
    case VEC_ULT:
      return a < b;
    case VEC_UMULH:
      return static_cast<uint32_t>(uint64_t{a} * b >> 32);
    case VEC_L2F:
      return as_bits(static_cast<float>(static_cast<int64_t>(uint64_t{b} << 32 | a)));
    case VEC_F2L:
      return static_cast<uint32_t>(to_integer(x, NPU_I64));
    case VEC_F2H:
      return static_cast<uint32_t>(to_integer(x, NPU_I64) >> 32);
    case VEC_DIV:
      return as_bits(x / y);
    case VEC_SQRT:
      return as_bits(std::sqrt(x));
    case VEC_SHL:
      return b > 31 ? 0 : a << b;
    case VEC_SHR:
      return static_cast<uint32_t>(static_cast<int32_t>(a) >> (b > 31 ? 31 : b));
    default:
      return a;
  }
}

std::vector<uint64_t> moved_elements(const Packet& packet, unsigned char* memory) {
  std::vector<uint64_t> out;
  indexed(packet, memory, [&](const uint32_t*, bool taken, uint64_t element) {
    if (taken) out.push_back(element);
  });
  return out;
}

void run_packet(const Packet& packet, unsigned char* memory) {
  switch (packet.opcode) {
    case OP_VECTOR:
      return run_vector(packet, memory);
    case OP_GATHER:
    case OP_SCATTER:
      return run_indexed(packet, memory);
    case OP_REDUCE:
      return run_reduce(packet, memory);
    case OP_GEMM:
      return run_gemm(packet, memory);
    default:
      return;
  }
}

}  // namespace rtl
