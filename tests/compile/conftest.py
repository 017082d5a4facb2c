import pytest
import torch
import torch._dynamo

import torch_npu


@pytest.fixture(autouse=True)
def compiled_anew():
    torch._dynamo.reset()
    torch_npu.fallback.reset()
    torch.manual_seed(0)


@pytest.fixture
def nothing_cached():
    """A graph that is in a cache is not rewritten again."""
    with torch._inductor.config.patch(force_disable_caches=True):
        yield
