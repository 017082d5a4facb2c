"""Seeds and states. The numbers themselves are checked where the ops are."""

import pytest
import torch


def draw() -> list[float]:
    return torch.rand(5, device="npu").cpu().tolist()


@pytest.mark.parametrize("seeder", [torch.manual_seed, torch.npu.manual_seed, torch.npu.manual_seed_all])
def test_same_seed_same_numbers(seeder):
    seeder(7)
    first = draw()
    following = draw()
    seeder(7)
    assert draw() == first != following
    seeder(8)
    assert draw() != first


def test_initial_seed_is_the_seed():
    torch.npu.manual_seed(123)
    assert torch.npu.initial_seed() == 123


def test_seed_is_different_each_time():
    torch.npu.seed()
    first = torch.npu.initial_seed()
    torch.npu.seed()
    assert torch.npu.initial_seed() != first


def test_seed_all_gives_all_devices_one_seed(two_devices):
    torch.npu.seed_all()
    seeds = {generator.initial_seed() for generator in torch.npu.default_generators}
    assert len(seeds) == 1


def test_state_can_be_taken_and_set():
    state = torch.npu.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    first = draw()
    torch.npu.set_rng_state(state)
    assert draw() == first


def test_states_of_all_devices(two_devices):
    states = torch.npu.get_rng_state_all()
    assert len(states) == torch.npu.device_count()
    first = torch.rand(3, device="npu:1").cpu().tolist()
    torch.npu.set_rng_state_all(states)
    assert torch.rand(3, device="npu:1").cpu().tolist() == first


def test_a_bad_state_is_refused():
    with pytest.raises(RuntimeError):
        torch.npu.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_fork_rng_restores_the_state():
    torch.manual_seed(1)
    draw()
    with torch.random.fork_rng(devices=[0], device_type="npu"):
        inside = draw()
    assert draw() == inside


def test_a_generator_of_its_own():
    generator = torch.Generator("npu").manual_seed(5)
    assert generator.device.type == "npu"
    first = torch.rand(4, device="npu", generator=generator).cpu().tolist()
    torch.npu.manual_seed(99)
    assert torch.rand(4, device="npu", generator=generator.manual_seed(5)).cpu().tolist() == first


def test_a_generator_state_travels_to_another():
    one, two = torch.Generator("npu").manual_seed(5), torch.Generator("npu")
    torch.rand(4, device="npu", generator=one)
    two.set_state(one.get_state())
    numbers = [torch.rand(4, device="npu", generator=g).cpu().tolist() for g in (one, two)]
    assert numbers[0] == numbers[1]


def test_a_cpu_generator_is_refused():
    with pytest.raises(RuntimeError, match="(?i)generator"):
        torch.rand(4, device="npu", generator=torch.Generator("cpu"))


def test_an_npu_generator_for_a_cpu_tensor_is_refused():
    for draw_cpu in (lambda g: torch.rand(4, generator=g), lambda g: torch.empty(()).normal_(generator=g)):
        with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'npu'"):
            draw_cpu(torch.Generator("npu"))


def test_default_generators_are_the_ones_in_use():
    torch.npu.default_generators[0].manual_seed(4)
    first = draw()
    torch.npu.manual_seed(4)
    assert draw() == first


def test_a_seed_set_before_the_first_use_counts(python):
    code = """
        import torch
        torch.manual_seed(1); torch.npu.manual_seed_all(2); torch.manual_seed(11)
        print(torch.rand(3, device="npu").cpu().tolist())
        torch.npu.manual_seed(11)
        print(torch.rand(3, device="npu").cpu().tolist())
    """
    before, after = python(code, TORCH_NPU_FALLBACK="quiet").lines()
    assert before == after


def test_dropout_repeats_in_checkpointed_backward():
    torch.manual_seed(0)
    x = torch.ones(64, device="npu", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda t: torch.nn.functional.dropout(t, 0.5), x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


def test_generators_share_a_state_on_request():
    a = torch.Generator(device="npu").manual_seed(3)
    b = torch.Generator(device="npu").manual_seed(4)
    b.graphsafe_set_state(a.graphsafe_get_state())
    a.manual_seed(5)
    assert b.initial_seed() == 5
    c = a.clone_state()
    a.manual_seed(6)
    assert c.initial_seed() == 5


def test_generator_offset_is_a_multiple_of_four():
    g = torch.Generator(device="npu")
    g.set_offset(8)
    assert g.get_offset() == 8
    state = g.get_state()
    assert state.numel() == 16 and int.from_bytes(bytes(state[8:].tolist()), "little") == 8
    try:
        g.set_offset(6)
    except RuntimeError as error:
        assert "multiple of 4" in str(error)
    else:
        raise AssertionError("an offset of 6 was accepted")
