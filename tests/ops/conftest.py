import pytest

import torch_npu


@pytest.fixture
def native():
    """What the test asks for must be served by the device."""
    with torch_npu.fallback.mode("error"):
        yield
