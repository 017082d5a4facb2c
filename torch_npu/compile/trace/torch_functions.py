"""What Dynamo makes of the functions of torch.npu: the same as of those of torch.cuda.

Some are constants of a graph. The others are traced where a compiled function calls them, and are no graphs of their
own: behind a graph break Dynamo takes the functions that are called next for new ones, but these have nothing to
compile, and some are called where nothing can be traced (freeze_rng_state puts states back outside of all dispatch)."""

import os

from torch._dynamo import trace_rules
from torch._dynamo.variables import TorchInGraphFunctionVariable
from torch._dynamo.variables import torch as torch_variables

from torch_npu import npu

_FOLDER = os.path.join(os.path.dirname(npu.__file__), "").replace(os.sep, "/")
CONSTANTS = (npu.is_available, npu.device_count)
GUARDED = (npu.current_device, npu.is_initialized)  # a graph is compiled again where they answer otherwise


def register() -> None:
    trace_rules.add("torch_npu.npu")
    trace_rules.get_mod_inlinelist().add(_FOLDER)
    for function in (*CONSTANTS, *GUARDED):
        name = f"{function.__module__}.{function.__name__}"
        trace_rules.manual_torch_name_rule_map[name] = TorchInGraphFunctionVariable
        torch_variables.constant_fold_functions[function] = None
    torch_variables.constant_fold_functions_need_guards.update(dict.fromkeys(GUARDED))


register()
