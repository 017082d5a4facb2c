// Elements of memory as numbers, bits and places, for comparisons and for people.
#pragma once
#include <cstddef>
#include <string>

#include "npu/command.h"

namespace npu {

uint64_t element_bits(const std::byte* memory, int dtype, int64_t index);
double element_number(const std::byte* memory, int dtype, int64_t index);
bool is_nan(uint64_t bits, int dtype);
double unit_in_last_place(double value, int dtype);  // of a float type, at that value; 0 for others
std::string element_text(uint64_t bits, int dtype);  // "0.1 (0x3dcccccd)"

// The coordinates of the point whose element lies `offset` elements from the operand's address. False: no point has it.
bool element_point(const npu_command& command, uint32_t operand, int64_t offset, int64_t* point);

std::string list_text(const int64_t* values, int count);  // "[2, 3]"
std::string command_text(const npu_command& command);     // kind, label, sizes, types: one line
std::string hex_text(uint64_t value);                     // "0x1f"

}  // namespace npu
