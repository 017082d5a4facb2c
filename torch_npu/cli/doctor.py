"""python -m torch_npu doctor: the usual set-up problems, each with its remedy."""

import dataclasses
import difflib
import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from torch_npu.console.command import Outcome, add_command


@dataclasses.dataclass(frozen=True)
class Finding:
    """`state`: ok, warning (it works, but not as you may think) or problem (something will not work)."""

    check: str
    state: str
    found: str
    remedy: str = ""


COMMANDS = ("COPY", "MAP", "REDUCE", "SCAN", "MATMUL", "CONV", "SCATTER", "SORT")
CHECKS: list[Callable[[], Iterator[Finding]]] = []


def check(function):
    CHECKS.append(function)
    return function


def add(commands) -> None:
    add_command(
        commands,
        "doctor",
        run,
        help="find the usual set-up problems and say the remedy",
        example="doctor",
        description="Looks at versions, packages, variables, drivers, devices, memory and folders. Exit status 1 if "
        "something will not work.",
    )


def import_error() -> str:
    """What `import torch_npu` said, if it failed."""
    import torch_npu

    return str(torch_npu._import_error or "").split("\n")[0]


@check
def versions():
    import torch

    import torch_npu

    if not torch_npu._ready:
        text = f"Python {sys.version.split()[0]}, torch {torch.__version__}"
        yield Finding("versions", "problem", f"{text}: import torch_npu fails", import_error())
        return
    from torch_npu._build_info import torch_version

    built, found = torch_version.split("+")[0], torch.__version__.split("+")[0]
    text = f"Python {sys.version.split()[0]}, torch {torch.__version__}, built for torch {torch_version}"
    if built == found:
        yield Finding("versions", "ok", text)
    else:
        yield Finding(
            "versions", "warning", text, "rebuild with pip install --no-build-isolation . if symbols are missing"
        )


@check
def packages():
    names = [d.metadata["Name"] or "" for d in importlib.metadata.distributions()]
    if "torch-npu" in (name.lower().replace("_", "-") for name in names):
        yield Finding(
            "packages",
            "problem",
            "another package, torch-npu, has files of the same name",
            "pip uninstall torch-npu, then install this one again",
        )
    entries = [e.value for e in importlib.metadata.entry_points(group="torch.backends")]
    if "torch_npu:_autoload" not in entries:
        yield Finding(
            "packages",
            "warning",
            "`import torch` does not load torch_npu: the package is not installed, only found on the path",
            "make install, or write `import torch_npu` in your scripts",
        )
    elif os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "0":
        yield Finding(
            "packages",
            "warning",
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0: `import torch` does not load torch_npu",
            "unset it, or write `import torch_npu` in your scripts",
        )
    else:
        yield Finding("packages", "ok", "`import torch` makes the npu device known")


@check
def variables():
    from torch_npu import config

    known = {s.name for s in (*config.VARIABLES, *config.BUILD_VARIABLES)}
    ours = [name for name in os.environ if name.startswith(("TORCH_NPU_", "NPU_CMODEL_", "NPU_RTL_"))]
    for name in sorted(set(ours) - known):
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        yield Finding(
            "variables", "problem", f"{name} is no setting", f"{hint}python -m torch_npu config lists them all"
        )
    bad = [s for s in config.VARIABLES if config.misunderstood(s)]
    for s in bad:
        yield Finding(
            "variables",
            "problem",
            config.misunderstood(s),
            f"unset it, or see python -m torch_npu config --markdown for {s.name}",
        )
    # Import refuses a value that would make a check look for nothing.
    refused = import_error().partition(":")[0]
    if refused in known and refused not in (s.name for s in bad):
        bad.append(refused)
        yield Finding("variables", "problem", import_error(), f"unset {refused}: `import torch` raises until then")
    if not set(ours) - known and not bad:
        given = [f"{name}={os.environ[name]}" for name in sorted(ours)]
        yield Finding("variables", "ok", ", ".join(given) or "all at their defaults")
    threads = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0))
    if threads.isdigit() and int(threads) > cores:
        yield Finding(
            "variables",
            "warning",
            f"OMP_NUM_THREADS={threads} on {cores} cores: threads wait for each other",
            f"set it to {cores} or less",
        )


@check
def drivers():
    import torch

    import torch_npu
    from torch_npu._info import driver_error, driver_setting

    if error := driver_error():
        # The driver's own error says what it expects; where there is no such driver, the list of them helps.
        options = "could not be started" in error
        remedy = "correct the options in TORCH_NPU_DRIVER" if options else "python -m torch_npu info lists the drivers"
        yield Finding("drivers", "problem", error, remedy)
        return
    names = ", ".join(d["name"] for d in torch_npu.drivers())
    count = torch.npu.device_count()
    if count == 0:
        yield Finding("drivers", "problem", f"{names} loaded, and no device found", "look at the driver's options")
    else:
        yield Finding("drivers", "ok", f"TORCH_NPU_DRIVER={driver_setting()}: {names}, {count} device(s)")


@check
def devices():
    import torch

    import torch_npu

    for index in range(torch.npu.device_count()):
        name = f"npu:{index}"
        try:
            with torch_npu.fallback.mode("quiet"):
                a = torch.arange(12.0, device=name).view(3, 4)
                got = (a @ a.t() + 1).cpu()
            a = torch.arange(12.0).view(3, 4)
            if not torch.allclose(got, a @ a.t() + 1):
                raise RuntimeError(f"expected {(a @ a.t() + 1).tolist()}, got {got.tolist()}")
            free, total = torch.npu.mem_get_info(index)
            missing = sorted(set(COMMANDS) - set(torch.npu.get_device_properties(index).commands))
        except ValueError as error:  # what the allocator says at the first use of a device
            conf = f"PYTORCH_ALLOC_CONF={os.environ.get('PYTORCH_ALLOC_CONF', '')}"
            yield Finding("devices", "problem", f"{conf}: {error}", "correct it: docs/configuration.md has its keys")
            return
        except RuntimeError as error:
            first = str(error).splitlines()[0]
            yield Finding(
                "devices", "problem", f"{name}: {first}", f"python -m torch_npu driver-test, torch.npu.reset({index})"
            )
            continue
        found = f"{name}: {torch.npu.get_device_name(index)} computes, {free >> 20} of {total >> 20} MiB free"
        if missing:
            remedy = "their ops run on the CPU: torch_npu.fallback.report() counts them"
            yield Finding("devices", "warning", f"{found}; without {', '.join(missing)}", remedy)
        else:
            yield Finding("devices", "ok", found)


@check
def memory():
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) >> 10
    if available < 1024:
        yield Finding(
            "memory", "warning", f"{available} MiB of host memory available", "the C model's memory is the host's"
        )
    else:
        yield Finding("memory", "ok", f"{available} MiB of host memory available")


@check
def compile_folder():
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    # As the process was given it: where it takes no files, torch_npu has put another one in its place by now.
    given = dict(v.partition("=")[::2] for v in Path("/proc/self/environ").read_text().split("\0"))
    try:
        folder = given.get("TORCHINDUCTOR_CACHE_DIR") or default_cache_dir()
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
        room = shutil.disk_usage(folder).free >> 20
    except OSError as error:
        yield Finding(
            "torch.compile",
            "warning",
            f"the cache folder takes no files ({error}); a temporary one is used and every process compiles anew",
            "set TORCHINDUCTOR_CACHE_DIR to a folder of yours",
        )
        return
    if room < 200:
        yield Finding("torch.compile", "warning", f"{room} MiB left for the cache in {folder}", "free some disk space")
    else:
        yield Finding("torch.compile", "ok", f"cache in {folder}")


def findings() -> list[Finding]:
    import torch_npu

    found = []
    for each in CHECKS if torch_npu._ready else (versions, packages, variables, memory):
        try:
            found += each()
        except Exception as error:  # a check that breaks is a finding, and the others still run
            found.append(Finding(each.__name__, "problem", f"{type(error).__name__}: {error}", "please report this"))
    return found


def run(options) -> Outcome:
    found = findings()
    bad = sum(f.state == "problem" for f in found)
    facts = {"well": not bad, "findings": [dataclasses.asdict(f) for f in found]}
    marks = {"ok": "ok     ", "warning": "warning", "problem": "PROBLEM"}
    lines = []
    for f in found:
        lines.append(f"{marks[f.state]}  {f.check:14} {f.found}")
        if f.remedy:
            lines.append(f"{'':9}{'':14} -> {f.remedy}")
    warnings = sum(f.state == "warning" for f in found)
    lines.append(f"\n{bad or 'no'} problem{'' if bad == 1 else 's'}, {warnings} warnings")
    return Outcome(facts, "\n".join(lines), int(bad > 0))
