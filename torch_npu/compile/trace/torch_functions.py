"""What Dynamo makes of the functions of torch.npu: the same as of those of torch.cuda.

Some are constants of a graph. The others are traced where a compiled function calls them, and are no graphs of their
own: behind a graph break Dynamo takes the functions that are called next for new ones, but these have nothing to
compile, and some are called where nothing can be traced (freeze_rng_state puts states back outside of all dispatch)."""

import os

from torch._dynamo import trace_rules
from torch._dynamo.variables import TorchInGraphFunctionVariable

from torch_npu import npu, torch_seams

_FOLDER = os.path.join(os.path.dirname(npu.__file__), "").replace(os.sep, "/")
CONSTANTS = (npu.is_available, npu.device_count)
GUARDED = (npu.current_device, npu.is_initialized)  # a graph is compiled again where they answer otherwise


def register() -> None:
    trace_rules.add("torch_npu.npu")
    trace_rules.get_mod_inlinelist().add(_FOLDER)
    rules, constants, guarded = (
        torch_seams.extend(
            owner,
            name,
            why="Dynamo has lists of the functions of torch's own device modules",
            until="a device module can say which of its functions are constants of a graph",
        )
        for owner, name in (
            ("torch._dynamo.trace_rules", "manual_torch_name_rule_map"),
            ("torch._dynamo.variables.torch", "constant_fold_functions"),
            ("torch._dynamo.variables.torch", "constant_fold_functions_need_guards"),
        )
    )
    for function in (*CONSTANTS, *GUARDED):
        name = f"{function.__module__}.{function.__name__}"
        rules[name] = TorchInGraphFunctionVariable
        constants[function] = None
    guarded.update(dict.fromkeys(GUARDED))


register()
