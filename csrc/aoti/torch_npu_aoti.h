/* What a model compiled ahead of time asks of libtorch_npu: plain C, so that a package outlives the compiler it was
 * made with. Every function that can fail returns 0, or 1 and then torch_npu_last_error() says why.
 *
 * A package is compiled against these declarations and may be loaded by a later torch_npu: what is here does not
 * change, and torch_npu_kernel_spec grows at its end only. */
#ifndef TORCH_NPU_AOTI_H
#define TORCH_NPU_AOTI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct AtenTensorOpaque; /* an at::Tensor, as in PyTorch's own C interface */

/* A number that is known, or, if `from` is k + 1, number k of the call. */
typedef struct {
  int64_t value; /* an integer, or the bits of a double */
  int32_t from;
} torch_npu_number;

typedef struct {
  int32_t tensor;          /* of the call */
  torch_npu_number offset; /* in elements, from the tensor's first */
  torch_npu_number strides[8];
} torch_npu_operand;

/* One command: the program in text form (docs/isa.md) and the form of the call. */
typedef struct {
  uint32_t struct_size;
  const char* name;
  const char* kind; /* map, reduce, scan, scatter, matmul, conv */
  int32_t inner_rank;
  int32_t tensors, numbers; /* of a call */
  int32_t size_count, operand_count, param_count;
  const torch_npu_number* sizes;
  const torch_npu_operand* operands;
  const torch_npu_number* params;
  torch_npu_number k;  /* the depth of a matmul */
  const char* program; /* empty: a matmul or conv that stores its sums */
  /* Of a conv: mode, batch, in_channels, out_channels, groups, then in_size, out_size, kernel, stride, padding and
   * dilation, each with size_count - 2 numbers (npu_conv in npu/command.h). */
  int32_t geometry_count;
  const torch_npu_number* geometry;
} torch_npu_kernel_spec;

typedef struct torch_npu_kernel torch_npu_kernel;
typedef struct torch_npu_guard torch_npu_guard;

const char* torch_npu_last_error(void); /* of the calling thread */

/* A kernel may be used by several threads. run: one command on the current stream of the tensors' device. */
int32_t torch_npu_kernel_create(const torch_npu_kernel_spec* spec, torch_npu_kernel** out);
int32_t torch_npu_kernel_run(const torch_npu_kernel* kernel, struct AtenTensorOpaque* const* tensors,
                             const int64_t* numbers);
void torch_npu_kernel_delete(torch_npu_kernel* kernel);

/* While it lives, `device` is the thread's current device, and `stream` (a native handle; null: leave it) its stream.
 */
int32_t torch_npu_guard_create(void* stream, int32_t device, torch_npu_guard** out);
void torch_npu_guard_delete(torch_npu_guard* guard);

/* An input of the model is of this kind and rank; it has these sizes and strides. An upper bound of -1 is none. Strides
 * of dimensions with one element, and of empty tensors, do not matter. */
int32_t torch_npu_check_input(struct AtenTensorOpaque* tensor, const char* name, int32_t device_type, int32_t device,
                              int32_t dtype, int64_t rank);
int32_t torch_npu_check_layout(struct AtenTensorOpaque* tensor, const char* name, int64_t rank, const int64_t* sizes,
                               const int64_t* strides);
int32_t torch_npu_check_range(const char* name, int64_t dim, int64_t size, int64_t lower, int64_t upper);

/* Memory of the current device, for weights. copy waits; `to_device` 0: each address is looked up. */
int32_t torch_npu_memory_alloc(uint64_t size, void** out);
int32_t torch_npu_memory_free(void* memory);
int32_t torch_npu_memory_copy(void* to, const void* from, uint64_t size, int32_t from_host);
int32_t torch_npu_device_get(int32_t* out);
int32_t torch_npu_device_set(int32_t device);
int32_t torch_npu_device_synchronize(void);

/* Two ops under the names that PyTorch's code generator gives them. */
int32_t aoti_torch_npu_view_dtype(struct AtenTensorOpaque* tensor, int32_t dtype, struct AtenTensorOpaque** out);
int32_t aoti_torch_npu_randint_low_out(struct AtenTensorOpaque* out, int64_t low, int64_t high, const int64_t* sizes,
                                       int64_t rank);

#ifdef __cplusplus
}
#endif
#endif
