"""torch.compile on npu: Inductor's loops become programs and commands of the contract.

docs/design.md, "torch.compile", says who calls what. Nothing but _hooks is imported before torch.compile is used.
"""
