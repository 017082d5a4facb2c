"""The tests, in rooms of the same subjects as the code. walkthrough/ is for reading, in the order of its numbers.

device/     devices, streams, generators, graphs, import, choice of a driver      csrc/core
memory/     the allocator, pools, pinned memory, storages                         csrc/core
tensors/    views, copies, printing, files                                        csrc/aten
ops/        values of the ops: pointwise, folds, movement, products, convolutions csrc/aten, codegen/*.ops
attention/  scaled_dot_product_attention, flex_attention, npu_fusion_attention    csrc/aten
fused/      torch_npu.npu_*, int8, LoRA layers                                    csrc/aten, torch_npu
fallback/   what runs on the CPU, and that it is said                             csrc/aten
training/   autocast, scaler, optimizers, checkpoints                             csrc/aten, torch_npu
models/     whole models and the libraries that run them                          examples
compile/    torch.compile, autotuning, AOTInductor                                torch_npu/compile
observe/    debug log, profiler, sanitizer, memory history, report, prediction    csrc/core, torch_npu
verify/     lock-step, recordings, the exact mode against the RTL                 support/verify
cli/        python -m torch_npu, and what its commands find                       torch_npu
codegen/    the op table, an op of one's own                                      codegen
cpp/        C++ tests without PyTorch                                             support, drivers/cmodel, caching
drivers/    the driver test on good and on broken drivers                         tools/driver_test
rtl/        drivers rtl and fpga; benches of every module of rtl/                 rtl, drivers/rtl
docs/       pages that quote the code                                             docs
support/    what tests share: small models, a browser, planted bugs
"""
