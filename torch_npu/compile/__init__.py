"""torch.compile on npu: Inductor's loops become programs and commands of the contract.

docs/design/compile.md says who calls what. Nothing but _hooks is imported before torch.compile is used.
"""

__all__ = ["explain"]


def __getattr__(name: str):
    if name == "explain":
        from torch_npu.compile.explanation import explain

        return explain
    raise AttributeError(f"module 'torch_npu.compile' has no attribute {name!r}")
