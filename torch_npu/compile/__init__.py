"""torch.compile on npu: Inductor's loops become programs and commands of the contract.

A room imports what stands above it in this list, and nothing below (tools/check_layers.py):

    settings.py  what decides which code is generated
    run/         what generated code calls: launching, tuning, capture and replay
    codegen/     one fused loop: from Inductor's operations to a program and the form of its command
    lowerings/   one aten op: as loops, as a MATMUL or CONV with an epilogue, or left to aten
    graph/       a whole graph: patterns, batched products, frozen weights, what is saved for the backward pass
    trace/       what Dynamo and fake tensors have to know of npu before there is a graph
    backend/     what Inductor sees: the registration of all of the above, scheduling, wrapper code
    explanation.py, on_import.py

docs/design/compile.md says who calls what, docs/compile.md is for users. Nothing but on_import is imported before
torch.compile is used.
"""

__all__ = ["explain"]


def __getattr__(name: str):
    if name == "explain":
        from torch_npu.compile.explanation import explain

        return explain
    raise AttributeError(f"module 'torch_npu.compile' has no attribute {name!r}")
