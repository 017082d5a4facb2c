"""Registration when it is needed: importing torch must not import Dynamo and Inductor, which takes seconds.

`install` leaves a note for some modules of torch's. When one of them has been imported, which only torch.compile and
its relatives do, the module of ours is imported too."""

import importlib
import importlib.abc
import importlib.machinery
import sys

# Each registers itself where it ends.
_WAITING = {
    "torch._inductor.runtime.cache_dir_utils": "torch_npu.compile.run.cache_folder",
    "torch._dynamo.trace_rules": "torch_npu.compile.trace.torch_functions",
    "torch._dynamo.device_interface": "torch_npu.compile.backend.device_interface",
    "torch._dynamo.backends.registry": "torch_npu.compile.backend.by_name",
    "torch._dynamo.variables.optimizer": "torch_npu.compile.trace.optimizers",
    "torch._inductor.compile_fx": "torch_npu.compile.backend.inductor",
    "torch.nn.attention.flex_attention": "torch_npu.compile.trace.flex_attention",
}


class _Loader(importlib.abc.Loader):
    def __init__(self, loader, then):
        self.loader, self.then = loader, then

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        importlib.import_module(self.then)

    def __getattr__(self, name):  # whatever else is asked of a loader: sources, data files
        return getattr(self.loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        then = _WAITING.get(name)
        if then is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, then)
        return spec


def install() -> None:
    if any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name, then in _WAITING.items():
        if name in sys.modules:
            importlib.import_module(then)
