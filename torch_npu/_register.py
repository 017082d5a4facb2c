"""Makes the device known to torch: its name, its module, the generated methods."""

import atexit
import glob
import time


def register() -> None:
    import torch

    from torch_npu import _C  # noqa: F401  (first: it may fail, and then torch must be left as it was)

    # The name lives in C++ (where `_C` may have set it) and in Python; the inference paths of torch.nn read the latter.
    if torch.utils.backend_registration._privateuse1_backend_name != "npu":
        torch.utils.rename_privateuse1_backend("npu")

    from torch_npu import _dlpack, _printing, npu
    from torch_npu.compile import on_import

    if not hasattr(torch, "npu"):
        torch._register_device_module("npu", npu)
    if not hasattr(torch.Tensor, "is_npu"):
        # Tensor.npu(), Module.npu(), Storage.npu(), PackedSequence.npu(), and is_npu on each of them.
        torch.utils.generate_methods_for_privateuse1_backend(
            for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
        )
    _pass_autocast()
    _refuse_sharing()
    atexit.register(_let_backward_end)
    _dlpack.patch()
    _printing.patch()
    on_import.install()


def _pass_autocast() -> None:
    """Operators that take functions (torch.cond, flex_attention's gradient) pass the autocast of devices that torch
    knows by name; in that of npu they would be missing a kernel."""
    from torch._C import DispatchKey
    from torch._ops import _HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS as passed
    from torch._ops import _higher_order_ops as known

    if DispatchKey.AutocastPrivateUse1 in passed:
        return
    passed.append(DispatchKey.AutocastPrivateUse1)
    for operator in known.values():
        if DispatchKey.AutocastPrivateUse1 not in operator.py_kernels:
            operator.fallthrough(DispatchKey.AutocastPrivateUse1)


def _refuse_sharing() -> None:
    """Tensors that go to another process (torch.multiprocessing) lie in shared memory, which the device's does not."""
    from multiprocessing.reduction import ForkingPickler

    import torch
    from torch.multiprocessing.reductions import reduce_storage

    def reduce(storage):
        if storage.device.type == "npu":
            raise RuntimeError(
                "npu tensors cannot be sent to another process: send tensor.cpu(), and move it to npu there"
            )
        return reduce_storage(storage)

    ForkingPickler.register(torch.UntypedStorage, reduce)


def _let_backward_end() -> None:
    """The thread of a device's backward pass may hold Python objects for a moment longer than backward() takes. Should
    it give them up when the interpreter is gone, the process would abort: it gets the interpreter once more before."""
    for name in glob.glob("/proc/self/task/*/comm"):
        try:
            with open(name) as file:
                if not file.read().startswith("pt_autograd"):
                    continue
        except OSError:  # the thread has ended
            continue
        time.sleep(0.02)
        return
