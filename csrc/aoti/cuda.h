// Device memory under the names that AOTInductor's runtime (aoti_runtime/model_base.h, model_container.h) uses for it.
//
// That runtime has a part for devices with memory of their own: weights are copied into a block there, and can be
// replaced. It is written in terms of these names and has no hook for other devices, so a model for npu compiles it
// with them standing for libtorch_npu. No other code sees this file: it is found by generated models for npu only.
#pragma once
#include <stddef.h>

#include <stdexcept>

#include "torch_npu_aoti.h"

enum cudaError_t { cudaSuccess = 0, cudaErrorNotReady = 1 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDefault };
using cudaStream_t = void*;
using cudaEvent_t = void*;

namespace torch_npu {

inline void check(int32_t failed) {
  if (failed) throw std::runtime_error(torch_npu_last_error());
}

}  // namespace torch_npu

// Errors are thrown, with their own text, so none of these is ever asked for an explanation.
inline const char* cudaGetErrorString(cudaError_t) {
  return "";
}
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** memory, size_t size) {
  torch_npu::check(torch_npu_memory_alloc(size, memory));
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
  torch_npu_memory_free(memory);  // called by destructors
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  torch_npu::check(torch_npu_memory_copy(to, from, size, kind == cudaMemcpyHostToDevice));
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  torch_npu::check(torch_npu_device_get(device));
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  torch_npu::check(torch_npu_device_set(device));
  return cudaSuccess;
}

// An event says when a model may be used for the next call. A model owns nothing that queued commands use: weights do
// not change, and the memory of results follows its stream. So it may be used as soon as its last call has returned.
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) {
  torch_npu::check(torch_npu_device_synchronize());
  return cudaSuccess;
}

// Binaries of kernels, of which a model for npu has none.
enum CUresult { CUDA_SUCCESS = 0 };
using CUmodule = void*;
inline CUresult cuModuleUnload(CUmodule) {
  return CUDA_SUCCESS;
}
inline CUresult cuGetErrorString(CUresult, const char**) {
  return CUDA_SUCCESS;
}
