// Vectors of the instruction set a file is compiled for: KERNEL_ISA is the namespace, KERNEL_BYTES the size of a
// vector. Includes no standard library template: the linker could keep the copy of a wider set.
#pragma once
#include <stdint.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace cmodel::product::KERNEL_ISA {
namespace {

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(KERNEL_BYTES)));
  static constexpr int lanes = KERNEL_BYTES / sizeof(T);
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class T>
inline Vector<T> load(const T* p) {
  Vector<T> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
inline void store(T* p, Vector<T> v) {
  __builtin_memcpy(p, &v, sizeof v);
}
template <class T>
inline Vector<T> splat(T x) {
  return x - Vector<T>{};
}
template <class T>
inline T sum(Vector<T> v) {
  T s = v[0];
  for (int i = 1; i < VectorOf<T>::lanes; ++i) s += v[i];
  return s;
}

template <class T>
inline Vector<T> fma(Vector<T> a, Vector<T> b, Vector<T> c) {
  return a * b + c;
}
#if defined(__AVX512F__)
template <>
inline Vector<float> fma<float>(Vector<float> a, Vector<float> b, Vector<float> c) {
  return (Vector<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
template <>
inline Vector<double> fma<double>(Vector<double> a, Vector<double> b, Vector<double> c) {
  return (Vector<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
#elif defined(__FMA__)
template <>
inline Vector<float> fma<float>(Vector<float> a, Vector<float> b, Vector<float> c) {
  return (Vector<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
template <>
inline Vector<double> fma<double>(Vector<double> a, Vector<double> b, Vector<double> c) {
  return (Vector<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
#endif

}  // namespace
}  // namespace cmodel::product::KERNEL_ISA
