#include "tools/driver_test/command/view.h"

#include <cmath>

#include "support/reference/reference.h"
#include "support/reference/value.h"

namespace driver_test {

namespace {

unsigned char* at(Buffer& buffer, int64_t element) {
  return &buffer.bytes[static_cast<size_t>(element * npu::dtype_size(buffer.dtype))];
}

}  // namespace

void put(Buffer& buffer, int64_t element, double value) {
  npu::Value v{};
  v.f64 = value;
  npu::store_value(at(buffer, element), buffer.dtype, v, NPU_F64);
}

double take(const Buffer& buffer, int64_t element) {
  return npu::load_value(at(const_cast<Buffer&>(buffer), element), buffer.dtype, NPU_F64).f64;
}

uint64_t bits_of(const Buffer& buffer, int64_t element) {
  uint64_t bits = 0;
  std::memcpy(&bits, at(const_cast<Buffer&>(buffer), element), static_cast<size_t>(npu::dtype_size(buffer.dtype)));
  return bits;
}

void View::widen() {
  for (Buffer& b : buffers) {
    if (b.dtype < NPU_F16 || b.dtype > NPU_F32) continue;
    Buffer wide = b;
    wide.dtype = NPU_F64;
    wide.bytes.resize(static_cast<size_t>(b.elements) * sizeof(double));
    for (int64_t i = 0; i < b.elements; i++) put(wide, i, take(b, i));
    b = std::move(wide);
  }
  for (size_t i = 0; i < operands.size(); i++)
    if (places[i].buffer >= 0)
      operands[i].dtype = static_cast<uint8_t>(buffers[static_cast<size_t>(places[i].buffer)].dtype);
}

void View::make_absolute() {
  for (Buffer& b : buffers)
    for (int64_t i = 0; i < b.elements; i++) put(b, i, std::abs(take(b, i)));
  for (npu_operand& o : operands)
    if ((o.flags & NPU_OPERAND_IMMEDIATE) && o.dtype >= NPU_F16 && o.dtype <= NPU_F64)
      o.addr &= ~(uint64_t{1} << (npu::dtype_size(o.dtype) * 8 - 1));
}

void View::link() {
  for (size_t i = 0; i < operands.size(); i++)
    if (places[i].buffer >= 0) {
      const Buffer& b = buffers[static_cast<size_t>(places[i].buffer)];
      operands[i].addr = b.addr + static_cast<uint64_t>(places[i].offset * npu::dtype_size(b.dtype));
    }
  command.operands = operands.data();
  command.operand_count = static_cast<uint32_t>(operands.size());
  command.params = params.data();
  command.param_count = static_cast<uint32_t>(params.size());
}

npu_status View::run_reference(std::string* error) {
  link();
  npu_program_desc desc{};
  if (program) desc = program->desc();
  const npu::Translate translate = [&](npu_addr addr, uint64_t size, bool) -> void* {
    for (Buffer& b : buffers)
      if (addr >= b.addr && addr - b.addr <= b.bytes.size() && size <= b.bytes.size() - (addr - b.addr))
        return b.bytes.data() + (addr - b.addr);
    return nullptr;
  };
  std::string ignored;
  return npu::run_reference(command, program ? &desc : nullptr, translate, error ? error : &ignored);
}

npu_status View::run_apart(std::string* error) {
  for (size_t i = 0; i < buffers.size(); i++) buffers[i].addr = (i + 1) << 44;
  return run_reference(error);
}

}  // namespace driver_test
