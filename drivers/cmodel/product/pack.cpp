#include "drivers/cmodel/product/pack.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "drivers/cmodel/product/kernels.h"
#include "drivers/cmodel/product/tuning.h"
#include "drivers/cmodel/threads/pool.h"
#include "support/program/program.h"
#include "support/reference/value.h"

namespace cmodel::product {
namespace {

constexpr size_t kHugePage = size_t(2) << 20;

struct FreeList {
  struct Buffer {
    void* data;
    size_t capacity;
  };
  std::vector<Buffer> buffers;
  size_t bytes = 0;
  ~FreeList() {
    for (Buffer& buffer : buffers) std::free(buffer.data);
  }
};

FreeList& free_list() {
  thread_local FreeList list;
  return list;
}

}  // namespace

Scratch::Scratch(size_t bytes) {
  FreeList& list = free_list();
  size_t best = list.buffers.size();
  for (size_t i = 0; i < list.buffers.size(); ++i) {
    if (list.buffers[i].capacity < bytes) continue;
    if (best == list.buffers.size() || list.buffers[i].capacity < list.buffers[best].capacity) best = i;
  }
  if (best < list.buffers.size()) {
    data_ = list.buffers[best].data;
    capacity_ = list.buffers[best].capacity;
    list.bytes -= capacity_;
    list.buffers[best] = list.buffers.back();
    list.buffers.pop_back();
    return;
  }
  const bool large = bytes >= kHugePage;
  const size_t unit = large ? kHugePage : 4096;
  capacity_ = (bytes + unit) / unit * unit;
  data_ = std::aligned_alloc(unit, capacity_);
  if (!data_) throw std::bad_alloc();
  if (large) madvise(data_, capacity_, MADV_HUGEPAGE);
}

Scratch::~Scratch() {
  FreeList& list = free_list();
  if (list.bytes + capacity_ > kKeptBytes || list.buffers.size() >= 16) {
    std::free(data_);
    return;
  }
  list.bytes += capacity_;
  list.buffers.push_back({data_, capacity_});
}

namespace {

// Storage types without a C++ type of their own.
struct Bool {
  uint8_t byte;
};
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

float widen(F16 x) {
  float f;
  kernel_set().f16_to_f32(&x.bits, &f, 1);
  return f;
}
float widen(BF16 x) {
  float f;
  kernel_set().bf16_to_f32(&x.bits, &f, 1);
  return f;
}

template <class T, class S>
T to_accumulator(S x) {
  if constexpr (std::is_same_v<S, Bool>) {
    return T(x.byte != 0);
  } else if constexpr (std::is_same_v<S, F16> || std::is_same_v<S, BF16>) {
    return to_accumulator<T>(widen(x));
  } else if constexpr (std::is_floating_point_v<S> && std::is_integral_v<T>) {
    return T(0);  // floats need a float accumulator: validate_command refuses the rest
  } else {
    return static_cast<T>(x);
  }
}

template <class S>
constexpr int dtype_of() {
  constexpr bool is_signed = std::is_signed_v<S>;
  return sizeof(S) == 1   ? (is_signed ? NPU_I8 : NPU_U8)
         : sizeof(S) == 2 ? (is_signed ? NPU_I16 : NPU_U16)
         : sizeof(S) == 4 ? (is_signed ? NPU_I32 : NPU_U32)
                          : (is_signed ? NPU_I64 : NPU_U64);
}

template <class S, class T>
S from_accumulator(T x) {
  using Value = std::conditional_t<std::is_same_v<T, uint32_t>, int32_t,
                                   std::conditional_t<std::is_same_v<T, uint64_t>, int64_t, T>>;
  const Value value = static_cast<Value>(x);
  if constexpr (std::is_same_v<S, Bool>) {
    return Bool{uint8_t(value != 0)};
  } else if constexpr (std::is_same_v<S, F16> || std::is_same_v<S, BF16>) {
    const float f = static_cast<float>(value);
    S out;
    if constexpr (std::is_same_v<S, F16>) {
      kernel_set().f32_to_f16(&f, &out.bits, 1);
    } else {
      kernel_set().f32_to_bf16(&f, &out.bits, 1);
    }
    return out;
  } else if constexpr (std::is_floating_point_v<Value> && std::is_integral_v<S>) {
    npu::Value v{};
    if constexpr (std::is_same_v<Value, float>) {
      v.f32 = value;
    } else {
      v.f64 = value;
    }
    S out;
    npu::store_value(&out, dtype_of<S>(), v, std::is_same_v<Value, float> ? NPU_F32 : NPU_F64);
    return out;
  } else {
    return static_cast<S>(value);
  }
}

template <class F>
void with_type(int dtype, F&& body) {
  switch (dtype) {
    case NPU_BOOL:
      return body(Bool{});
    case NPU_U8:
      return body(uint8_t{});
    case NPU_I8:
      return body(int8_t{});
    case NPU_U16:
      return body(uint16_t{});
    case NPU_I16:
      return body(int16_t{});
    case NPU_U32:
      return body(uint32_t{});
    case NPU_I32:
      return body(int32_t{});
    case NPU_U64:
      return body(uint64_t{});
    case NPU_I64:
      return body(int64_t{});
    case NPU_F16:
      return body(F16{});
    case NPU_BF16:
      return body(BF16{});
    case NPU_F32:
      return body(float{});
    case NPU_F64:
      return body(double{});
    default:
      return;
  }
}

}  // namespace

// Words of 16 bits as they are: bf16 that stays bf16.
template <>
void load_line<uint16_t>(int, const char* from, int64_t stride, int64_t n, uint16_t* to) {
  const auto* source = reinterpret_cast<const uint16_t*>(from);
  if (stride == 1) {
    std::memcpy(to, source, n * sizeof(uint16_t));
  } else if (stride == 2) {
    kernel_set().every_second_16(source, to, n);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = source[i * stride];
  }
}

template <class T>
void load_line(int dtype, const char* from, int64_t stride, int64_t n, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    if (stride != 1 && (dtype == NPU_BF16 || dtype == NPU_F16)) {  // gathered first: conversion works on vectors
      constexpr int64_t kPiece = 256;
      uint16_t piece[kPiece];
      for (int64_t i = 0; i < n; i += kPiece) {
        const int64_t count = std::min(kPiece, n - i);
        load_line<uint16_t>(dtype, from + i * stride * 2, stride, count, piece);
        load_line<float>(dtype, reinterpret_cast<const char*>(piece), 1, count, to + i);
      }
      return;
    }
    if (stride == 2 && dtype == NPU_F32) {
      return kernel_set().every_second_32(reinterpret_cast<const uint32_t*>(from), reinterpret_cast<uint32_t*>(to), n);
    }
  }
  if (stride == 1) {
    if (holds<T>(dtype)) {
      std::memcpy(to, from, n * sizeof(T));
      return;
    }
    if constexpr (std::is_same_v<T, float>) {
      const auto* half = reinterpret_cast<const uint16_t*>(from);
      if (dtype == NPU_BF16) return kernel_set().bf16_to_f32(half, to, n);
      if (dtype == NPU_F16) return kernel_set().f16_to_f32(half, to, n);
    }
  }
  with_type(dtype, [&]<class S>(S) {
    const S* source = reinterpret_cast<const S*>(from);
    for (int64_t i = 0; i < n; ++i) to[i] = to_accumulator<T>(source[i * stride]);
  });
}

template <class T>
void store_line(int dtype, char* to, int64_t stride, int64_t n, const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    if (stride != 1 && (dtype == NPU_BF16 || dtype == NPU_F16)) {
      constexpr int64_t kPiece = 256;
      uint16_t piece[kPiece];
      auto* target = reinterpret_cast<uint16_t*>(to);
      for (int64_t i = 0; i < n; i += kPiece) {
        const int64_t count = std::min(kPiece, n - i);
        store_line<float>(dtype, reinterpret_cast<char*>(piece), 1, count, from + i);
        for (int64_t j = 0; j < count; ++j) target[(i + j) * stride] = piece[j];
      }
      return;
    }
  }
  if (stride == 1) {
    if (holds<T>(dtype)) {
      std::memcpy(to, from, n * sizeof(T));
      return;
    }
    if constexpr (std::is_same_v<T, float>) {
      auto* half = reinterpret_cast<uint16_t*>(to);
      if (dtype == NPU_BF16) return kernel_set().f32_to_bf16(from, half, n);
      if (dtype == NPU_F16) return kernel_set().f32_to_f16(from, half, n);
    }
  }
  with_type(dtype, [&]<class S>(S) {
    S* target = reinterpret_cast<S*>(to);
    for (int64_t i = 0; i < n; ++i) target[i * stride] = from_accumulator<S>(from[i]);
  });
}

template <class T>
bool as_dense(const Matrix& m, Dense<T>& out) {
  if (!holds<T>(m.dtype)) return false;
  const T* data = reinterpret_cast<const T*>(m.data);
  if ((m.col == 1 || m.cols == 1) && (m.row >= m.cols || m.rows == 1)) {
    out = {data, m.rows == 1 ? m.cols : m.row, false};
    return true;
  }
  if ((m.row == 1 || m.rows == 1) && (m.col >= m.rows || m.cols == 1)) {
    out = {data, m.cols == 1 ? m.rows : m.col, true};
    return true;
  }
  return false;
}

template <class T>
Dense<T> pack_dense(const Matrix& m, T* space) {
  const bool transposed = std::abs(m.row) < std::abs(m.col) && m.row != 0;
  const int64_t lines = transposed ? m.cols : m.rows, length = transposed ? m.rows : m.cols;
  const int64_t step = (transposed ? m.col : m.row) * npu::dtype_size(m.dtype), stride = transposed ? m.row : m.col;
  const int64_t grain = grain_for(length, kPackElements);
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      load_line<T>(m.dtype, m.data + i * step, stride, length, space + i * length);
    }
  };
  if (lines <= grain) {
    copy(0, lines);
  } else {
    parallel_for(lines, grain, copy);
  }
  return {space, std::max<int64_t>(1, length), transposed};
}

template <class T>
void store_block(const T* from, int64_t ld, int64_t rows, int64_t cols, char* to, int dtype, int64_t row, int64_t col) {
  const int64_t size = npu::dtype_size(dtype);
  if (ld == cols && row == cols * col) return store_line<T>(dtype, to, col, rows * cols, from);  // one line
  if (std::abs(row) < std::abs(col) && rows > 1) {  // columns lie together in memory: write along them
    constexpr int64_t kLine = 256;
    T line[kLine];
    for (int64_t r = 0; r < rows; r += kLine) {
      const int64_t n = std::min(kLine, rows - r);
      for (int64_t c = 0; c < cols; ++c) {
        for (int64_t i = 0; i < n; ++i) line[i] = from[(r + i) * ld + c];
        store_line<T>(dtype, to + (r * row + c * col) * size, row, n, line);
      }
    }
    return;
  }
  for (int64_t r = 0; r < rows; ++r) store_line<T>(dtype, to + r * row * size, col, cols, from + r * ld);
}

#define NPU_INSTANTIATE(T)                                             \
  template void load_line<T>(int, const char*, int64_t, int64_t, T*);  \
  template void store_line<T>(int, char*, int64_t, int64_t, const T*); \
  template bool as_dense<T>(const Matrix&, Dense<T>&);                 \
  template Dense<T> pack_dense<T>(const Matrix&, T*);                  \
  template void store_block<T>(const T*, int64_t, int64_t, int64_t, char*, int, int64_t, int64_t);
NPU_INSTANTIATE(float)
NPU_INSTANTIATE(double)
NPU_INSTANTIATE(uint32_t)
NPU_INSTANTIATE(uint64_t)
#undef NPU_INSTANTIATE

}  // namespace cmodel::product
