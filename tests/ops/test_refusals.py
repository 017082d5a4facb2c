"""Calls that cannot be are refused in the words of the CPU."""

import pytest
import torch
import torch.nn.functional as F


def test_wrong_calls_are_refused_as_on_the_cpu():
    calls = [
        lambda d: torch.bincount(torch.tensor([-1], device=d)),
        lambda d: torch.histc(torch.ones(3, device=d), min=2, max=1),
        lambda d: torch.searchsorted(torch.ones(2, 3, device=d), torch.ones(3, 3, device=d)),
        lambda d: F.ctc_loss(torch.zeros(2, 1, 3, device=d), torch.ones(1, 1, dtype=torch.long, device=d), (3,), (1,)),
        lambda d: F.channel_shuffle(torch.ones(1, 4, 2, device=d), 3),
        lambda d: torch.cross(torch.ones(2, device=d), torch.ones(2, device=d), dim=0),
        lambda d: F.max_unpool2d(torch.ones(1, 2, 2, device=d), torch.ones(1, 2, 2, device=d), 2),
        lambda d: torch.polygamma(-1, torch.ones(1, device=d)),
        lambda d: torch.cdist(torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)),
    ]
    for call in calls:
        with pytest.raises(RuntimeError) as want:
            call("cpu")
        with pytest.raises(RuntimeError) as got:
            call("npu")
        assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]
