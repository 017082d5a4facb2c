"""What a model asks of a chip, by command, and what a driver makes of it: python -m torch_npu plan.

    plan = torch_npu.plan.ask("model.npt", "./libnpu_mychip.so")    a recording with one example of each command
    print(plan); plan.save("plan.html")

A recording is made with TORCH_NPU_DRIVER=record:driver=[cmodel]:file=[model.npt]:keep=examples, or by the command line.
docs/design/plan.md.
"""

from torch_npu.plan.forms import Form, Plan, ask, recording_spec

__all__ = ["Form", "Plan", "ask", "recording_spec"]
