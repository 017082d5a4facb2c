// Bringing operands of any type and stride into dense arrays of the accumulator type, and results back.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "npu/program.h"

namespace cmodel::product {

// A buffer from the calling thread's own list, given back at the end of the scope. Contents are undefined.
class Scratch {
 public:
  explicit Scratch(size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  T* as() {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
  size_t capacity_;
};

// Accumulators: float, double, and for I32 and I64 their unsigned twins, which wrap.
template <class T>
constexpr int kTypeOf = std::is_same_v<T, float>      ? NPU_F32
                        : std::is_same_v<T, double>   ? NPU_F64
                        : std::is_same_v<T, uint32_t> ? NPU_I32
                                                      : NPU_I64;
// Whether memory of this type can be read as T without conversion.
template <class T>
constexpr bool holds(int dtype) {
  return dtype == kTypeOf<T> || (std::is_integral_v<T> && dtype == (sizeof(T) == 4 ? NPU_U32 : NPU_U64));
}

// body(T{}) with the accumulator of this type, which is one of the four.
template <class F>
auto with_accumulator(int dtype, F&& body) {
  switch (dtype) {
    case NPU_F32:
      return body(float{});
    case NPU_F64:
      return body(double{});
    case NPU_I32:
      return body(uint32_t{});
    default:
      return body(uint64_t{});
  }
}
inline bool is_accumulator(int dtype) {
  return dtype == NPU_F32 || dtype == NPU_F64 || dtype == NPU_I32 || dtype == NPU_I64;
}

// n elements, `stride` elements apart, to a dense line of another storage type.
void load_as(int to_dtype, int dtype, const char* from, int64_t stride, int64_t n, void* to);
// The same to or from a dense line of accumulators; words of 16 bits stay as they are.
template <class T>
void load_line(int dtype, const char* from, int64_t stride, int64_t n, T* to) {
  load_as(std::is_same_v<T, uint16_t> ? dtype : kTypeOf<T>, dtype, from, stride, n, to);
}
template <class T>
void store_line(int dtype, char* to, int64_t stride, int64_t n, const T* from);

// A matrix in memory: any type, any strides (in elements).
struct Matrix {
  const char* data;
  int dtype;
  int64_t rows, cols, row, col;
  Matrix transposed() const { return {data, dtype, cols, rows, col, row}; }
};

// A matrix as gemm takes it.
template <class T>
struct Dense {
  const T* data;
  int64_t ld;
  bool transposed;
};

template <class T>
bool as_dense(const Matrix& matrix, Dense<T>& out);  // false: it needs a copy
// Copies into `space` of rows * cols elements, on the pool where it is large. Keeps the memory order of the matrix.
template <class T>
Dense<T> pack_dense(const Matrix& matrix, T* space);

// Writes a block of accumulators, rows `ld` apart, to memory of any type and stride.
template <class T>
void store_block(const T* from, int64_t ld, int64_t rows, int64_t cols, char* to, int dtype, int64_t row, int64_t col);

}  // namespace cmodel::product
