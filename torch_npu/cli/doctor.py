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


Found = tuple[str, str, str]  # state, what was found, remedy
COMMANDS = ("COPY", "MAP", "REDUCE", "SCAN", "MATMUL", "CONV", "SCATTER", "SORT")
CHECKS: dict[str, Callable[[], Iterator[Found]]] = {}
WITHOUT_DEVICE = ("versions", "packages", "variables", "memory")  # what can be asked where torch_npu cannot be imported


def check(name: str):
    def register(function: Callable[[], Iterator[Found]]):
        CHECKS[name] = function
        return function

    return register


def ok(found: str) -> Found:
    return "ok", found, ""


def warning(found: str, remedy: str) -> Found:
    return "warning", found, remedy


def problem(found: str, remedy: str) -> Found:
    return "problem", found, remedy


def add(commands) -> None:
    parser = add_command(
        commands,
        "doctor",
        run,
        help="find the usual set-up problems and say the remedy",
        example="doctor",
        description="Looks at versions, packages, variables, drivers, devices, memory and folders. Exit status 1 if "
        "something will not work.",
    )
    parser.add_argument(
        "--seams", action="store_true", help="list what of torch's is replaced or added to, and why, as Markdown"
    )


def import_error() -> str:
    """What `import torch_npu` said, if it failed."""
    import torch_npu

    return str(torch_npu._import_error or "").split("\n")[0]


@check("versions")
def versions():
    import torch

    import torch_npu

    if not torch_npu._ready:
        text = f"Python {sys.version.split()[0]}, torch {torch.__version__}"
        yield problem(f"{text}: import torch_npu fails", import_error())
        return
    from torch_npu._build_info import torch_version

    built, found = torch_version.split("+")[0], torch.__version__.split("+")[0]
    text = f"Python {sys.version.split()[0]}, torch {torch.__version__}, built for torch {torch_version}"
    remedy = "rebuild with pip install --no-build-isolation . if symbols are missing"
    yield ok(text) if built == found else warning(text, remedy)


@check("packages")
def packages():
    names = [d.metadata["Name"] or "" for d in importlib.metadata.distributions()]
    if "torch-npu" in (name.lower().replace("_", "-") for name in names):
        remedy = "pip uninstall torch-npu, then install this one again"
        yield problem("another package, torch-npu, has files of the same name", remedy)
    entries = [e.value for e in importlib.metadata.entry_points(group="torch.backends")]
    missing = "`import torch` does not load torch_npu"
    if "torch_npu:_autoload" not in entries:
        found = f"{missing}: the package is not installed, only found on the path"
        yield warning(found, "make install, or write `import torch_npu` in your scripts")
    elif os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "0":
        found = f"TORCH_DEVICE_BACKEND_AUTOLOAD=0: {missing}"
        yield warning(found, "unset it, or write `import torch_npu` in your scripts")
    else:
        yield ok("`import torch` makes the npu device known")


@check("variables")
def variables():
    from torch_npu import config

    known = {s.name for s in (*config.VARIABLES, *config.BUILD_VARIABLES)}
    ours = [name for name in os.environ if name.startswith(("TORCH_NPU_", "NPU_CMODEL_", "NPU_RTL_"))]
    for name in sorted(set(ours) - known):
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        yield problem(f"{name} is no setting", f"{hint}python -m torch_npu config lists them all")
    bad = {s.name: config.misunderstood(s) for s in config.VARIABLES if config.misunderstood(s)}
    for name, wrong in bad.items():
        yield problem(wrong, f"unset it, or see python -m torch_npu config --markdown for {name}")
    # Import refuses a value that would make a check look for nothing.
    refused = import_error().partition(":")[0]
    if refused in known and refused not in bad:
        bad[refused] = import_error()
        yield problem(import_error(), f"unset {refused}: `import torch` raises until then")
    if not set(ours) - known and not bad:
        given = [f"{name}={os.environ[name]}" for name in sorted(ours)]
        yield ok(", ".join(given) or "all at their defaults")
    threads, cores = os.environ.get("OMP_NUM_THREADS", ""), len(os.sched_getaffinity(0))
    if threads.isdigit() and int(threads) > cores:
        found = f"OMP_NUM_THREADS={threads} on {cores} cores: threads wait for each other"
        yield warning(found, f"set it to {cores} or less")


@check("drivers")
def drivers():
    import torch_npu
    from torch_npu._info import driver_error, driver_setting

    if error := driver_error():
        # The driver's own error says what it expects; where there is no such driver, the list of them helps.
        options = "could not be started" in error
        remedy = "correct the options in TORCH_NPU_DRIVER" if options else "python -m torch_npu info lists the drivers"
        yield problem(error, remedy)
        return
    names = ", ".join(d["name"] for d in torch_npu.drivers())
    count = torch_npu.npu.device_count()
    if count == 0:
        yield problem(f"{names} loaded, and no device found", "look at the driver's options")
    else:
        yield ok(f"TORCH_NPU_DRIVER={driver_setting()}: {names}, {count} device(s)")


@check("devices")
def devices():
    import torch

    import torch_npu

    for index in range(torch_npu.npu.device_count()):
        name = f"npu:{index}"
        try:
            with torch_npu.fallback.mode("quiet"):
                a = torch.arange(12.0, device=name).view(3, 4)
                got = (a @ a.t() + 1).cpu()
            a = torch.arange(12.0).view(3, 4)
            if not torch.allclose(got, a @ a.t() + 1):
                raise RuntimeError(f"expected {(a @ a.t() + 1).tolist()}, got {got.tolist()}")
            free, total = torch_npu.npu.mem_get_info(index)
            missing = sorted(set(COMMANDS) - set(torch_npu.npu.get_device_properties(index).commands))
        except ValueError as error:  # what the allocator says at the first use of a device
            conf = f"PYTORCH_ALLOC_CONF={os.environ.get('PYTORCH_ALLOC_CONF', '')}"
            yield problem(f"{conf}: {error}", "correct it: docs/configuration.md has its keys")
            return
        except RuntimeError as error:
            remedy = f"python -m torch_npu driver-test, torch.npu.reset({index})"
            yield problem(f"{name}: {str(error).splitlines()[0]}", remedy)
            continue
        found = f"{name}: {torch_npu.npu.get_device_name(index)} computes, {free >> 20} of {total >> 20} MiB free"
        remedy = "their ops run on the CPU: torch_npu.fallback.report() counts them"
        yield warning(f"{found}; without {', '.join(missing)}", remedy) if missing else ok(found)


@check("memory")
def memory():
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) >> 10
    found = f"{available} MiB of host memory available"
    yield warning(found, "the C model's memory is the host's") if available < 1024 else ok(found)


@check("torch.compile")
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
        found = f"the cache folder takes no files ({error}); a temporary one is used and every process compiles anew"
        yield warning(found, "set TORCHINDUCTOR_CACHE_DIR to a folder of yours")
        return
    few = warning(f"{room} MiB left for the cache in {folder}", "free some disk space")
    yield few if room < 200 else ok(f"cache in {folder}")


@check("torch")
def torch_seams():
    import torch

    from torch_npu.torch_seams import seams

    _load_seams()
    changes = [change for change in (seam.change() for seam in seams) if change]
    for change in changes:
        yield warning(change, "use a version of torch_npu that knows this torch")
    if not changes:
        yield ok(f"{len(seams)} seams with torch {torch.__version__}, all as expected")


def _load_seams() -> None:
    """Imports all that replaces something."""
    from torch_npu.compile import on_import
    from torch_npu.report import inner_profiler  # noqa: F401
    from torch_npu.testing import seeds  # noqa: F401

    on_import.load()


def seams_table() -> str:
    """The rows of docs/design/torch-seams.md."""
    from torch_npu.torch_seams import seams

    _load_seams()
    rows = sorted({(s.place, s.kind, s.why, s.until) for s in seams})
    lines = ["| of torch's | what is done | why | until |", "|---|---|---|---|"]
    return "\n".join(lines + [f"| `{place}` | {kind} | {why} | {until} |" for place, kind, why, until in rows])


def findings() -> list[Finding]:
    import torch_npu

    found = []
    for name in CHECKS if torch_npu._ready else WITHOUT_DEVICE:
        try:
            found += [Finding(name, *one) for one in CHECKS[name]()]
        except Exception as error:  # a check that breaks is a finding, and the others still run
            found.append(Finding(name, "problem", f"{type(error).__name__}: {error}", "please report this"))
    return found


def run(options) -> Outcome:
    if options.seams:
        from torch_npu.torch_seams import seams

        text = seams_table()
        return Outcome([{k: str(getattr(s, k)) for k in ("place", "kind", "why", "until")} for s in seams], text)
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
