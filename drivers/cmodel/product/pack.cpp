#include "drivers/cmodel/product/pack.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "drivers/cmodel/product/kernels/kernels.h"
#include "drivers/cmodel/product/tuning.h"
#include "drivers/cmodel/simd/kernels.h"
#include "drivers/cmodel/threads/pool.h"
#include "support/program/program.h"

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

constexpr int64_t kPiece = 256;  // elements that go through the stack

int log_size_of(int dtype) {
  return std::countr_zero(unsigned(npu::dtype_size(dtype)));
}

// Whether memory of the one type is that of the other.
bool is_same(int a, int b) {
  return a == b || (a >= NPU_U32 && a <= NPU_I64 && b >= NPU_U32 && b <= NPU_I64 && log_size_of(a) == log_size_of(b));
}

// A dense line to memory.
template <class T>
void to_memory(int dtype, const T* from, int64_t n, void* to) {
  if constexpr (std::is_floating_point_v<T>) {
    if (dtype == NPU_F16) {
      float piece[kPiece];
      for (int64_t i = 0; i < n; i += kPiece) {
        const int64_t count = std::min(kPiece, n - i);
        cmodel::kernels().convert[kTypeOf<T>][NPU_F32](piece, from + i, count);
        kernel_set().f32_to_f16(piece, static_cast<uint16_t*>(to) + i, count);
      }
      return;
    }
  }
  cmodel::kernels().convert[kTypeOf<T>][dtype](to, from, n);
}

}  // namespace

void load_as(int to_dtype, int dtype, const char* from, int64_t stride, int64_t n, void* to) {
  const int log_size = log_size_of(dtype);
  if (is_same(dtype, to_dtype)) {
    if (stride != 1) return cmodel::kernels().gather[log_size](to, from, stride, n);
    std::memcpy(to, from, size_t(n) << log_size);
    return;
  }
  const Convert convert = cmodel::kernels().convert[dtype][to_dtype];
  if (stride == 1) return convert(to, from, n);
  uint64_t piece[kPiece];
  for (int64_t i = 0; i < n; i += kPiece) {  // gathered first: conversion works on vectors
    const int64_t count = std::min(kPiece, n - i);
    cmodel::kernels().gather[log_size](piece, from + ((i * stride) << log_size), stride, count);
    convert(static_cast<char*>(to) + (i << log_size_of(to_dtype)), piece, count);
  }
}

template <class T>
void store_line(int dtype, char* to, int64_t stride, int64_t n, const T* from) {
  const int log_size = log_size_of(dtype);
  if (is_same(dtype, kTypeOf<T>)) {
    if (stride != 1) return cmodel::kernels().scatter[log_size](to, stride, from, n);
    std::memcpy(to, from, n * sizeof(T));
    return;
  }
  if (stride == 1) return to_memory(dtype, from, n, to);
  uint64_t piece[kPiece];
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = std::min(kPiece, n - i);
    to_memory(dtype, from + i, count, piece);
    cmodel::kernels().scatter[log_size](to + ((i * stride) << log_size), stride, piece, count);
  }
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
