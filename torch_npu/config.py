"""Every setting, in one table. docs/configuration.md is made from it: python -m torch_npu config --markdown."""

import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class Setting:
    name: str
    default: str
    meaning: str
    off: str  # what happens without it, or at its default
    values: tuple[str, ...] = ()  # all that it may be, where that is a list; empty is always the default


VARIABLES = (
    Setting(
        "TORCH_NPU_DRIVER",
        "cmodel",
        "The drivers to load, separated by commas; each contributes its devices to npu:0, npu:1, ... A driver is a "
        "name (`cmodel`, `template`, `rtl`, `fpga`) or the path of a shared library, and may carry options after a "
        "colon: `cmodel:devices=2:memory=1G`. Options in brackets may hold colons and commas: "
        "`lockstep:device=[rtl]:reference=[cmodel:mode=exact]` (docs/verification.md).",
        "One C model device.",
    ),
    Setting(
        "TORCH_NPU_FALLBACK",
        "warn",
        "What happens when an op runs on the CPU: `warn` once per op, `quiet` (only count), `error` (raise). "
        "Any other word is an error at import, here and wherever else the values are a list.",
        "One warning per op; counts in `torch_npu.fallback.report()`.",
        ("warn", "quiet", "error"),
    ),
    Setting(
        "TORCH_NPU_LEGALISE",
        "1",
        "`0`: a command that a device's driver refuses is not made from others that it takes, but runs on the CPU "
        "(docs/design/legalisation.md).",
        "What a driver refuses is made from what it has; `torch_npu.legalisation.report()` says how.",
        ("0", "1"),
    ),
    Setting(
        "TORCH_NPU_HOST_EXECUTOR",
        "cmodel",
        "Who runs, on the host, a compiled command that a device's driver refuses: a driver, by name or path, or "
        "`reference`, which follows docs/isa.md to the letter and is slow.",
        "The C model; the reference where it is not built, and for what it refuses as well.",
    ),
    Setting(
        "TORCH_NPU_BLOCKING",
        "0",
        "`1`: every launch waits for the device, so that a failure surfaces at the op that caused it.",
        "Work is asynchronous; a failure surfaces at the next synchronisation and names the op.",
        ("0", "1"),
    ),
    Setting(
        "TORCH_NPU_TIMEOUT",
        "0",
        "Seconds that one call of a driver may take, the wait for queued work included. Then the device is reset and "
        "the call raises with the commands that were under way; where even a reset does not help, the process ends.",
        "No limit. Ctrl-C in a long wait says what is under way, a second one drops it.",
    ),
    Setting(
        "TORCH_NPU_DEBUG",
        "0",
        "`1`: a line per op on stderr that says where it ran; `2`: and every transfer; `3`: and every call of the "
        "driver, and in which way the C model computes it. `torch_npu.debug` does the same for a part of a program, "
        "but for the ways.",
        "No log.",
        ("0", "1", "2", "3"),
    ),
    Setting(
        "TORCH_NPU_DEBUG_FORMAT",
        "text",
        "`json`: one JSON object per line instead.",
        "Text for people, in colours on a terminal unless `NO_COLOR` is set.",
        ("text", "json"),
    ),
    Setting("TORCH_NPU_DEBUG_FILE", "", "The debug log is appended to this file.", "It goes to stderr."),
    Setting(
        "TORCH_NPU_SANITIZE",
        "",
        "Some of `memory`, `init` and `race`, separated by commas, or `all`: looks for accesses outside of tensors and "
        "of freed ones, reads of memory that nothing has written, and streams that use the same bytes unordered "
        "(docs/seeing-inside.md). Any other word is an error at import. `torch_npu.sanitizer` does the same for a part "
        "of a program.",
        "Nothing is looked for, at no cost.",
    ),
    Setting(
        "TORCH_NPU_SANITIZE_REPORT",
        "raise",
        "`log`: reports of the sanitizer are printed, and the program goes on.",
        "A report raises RuntimeError at the op at fault. In both cases the process ends with a status other than 0.",
        ("raise", "log"),
    ),
    Setting(
        "TORCH_NPU_RTL_CYCLES",
        "",
        "A file for the driver rtl: one line of JSON per command, with its cycles, lines read and written, and how "
        "long the matrix engine was busy; `-` is stderr (docs/rtl.md).",
        "Nothing is counted per command; events report simulated time.",
    ),
    Setting(
        "TORCH_NPU_RTL_TRACE",
        "",
        "Commands of the driver rtl to look at, `WHAT@FILE`: a number (`17`), numbers (`17-20`) or an op's name "
        "(`aten::mm`), then `@FILE.vcd` for a waveform or `@FILE.json` for a test vector; each file gets its "
        "command's number: `FILE-17.vcd` (docs/rtl.md).",
        "No files are written.",
    ),
    Setting(
        "PYTORCH_ALLOC_CONF",
        "",
        "The caching allocator's settings, `key:value` pairs separated by commas; the keys are below. "
        "A key that PyTorch does not know raises ValueError at the first use of a device.",
        "The defaults below.",
    ),
    Setting(
        "TORCHINDUCTOR_CACHE_DIR",
        "a folder of the user's below the system's temporary one",
        "Where torch.compile keeps generated code between processes. If it takes no files, a temporary folder is used.",
        "The default.",
    ),
    Setting(
        "OMP_NUM_THREADS",
        "number of cores",
        "The usual variable: the C model follows it where its option `threads` is not given.",
        "All cores.",
    ),
    Setting(
        "NPU_CMODEL_BLAS",
        "",
        "`own`: the C model leaves OpenBLAS unused, for tests and comparisons.",
        "Matrix products run on OpenBLAS where it was found at build time.",
        ("own",),
    ),
    Setting(
        "NPU_CMODEL_ISA",
        "",
        "`base` or `avx2`: the C model uses no newer instructions than these, for tests.",
        "The newest level that the processor has.",
        ("base", "avx2"),
    ),
    Setting(
        "NPU_CMODEL_JIT",
        "",
        "`off`: the C model makes no code at run time and interprets all programs, for tests and comparisons.",
        "F32 instructions become loops of AVX-512 or AVX2 code where the processor and the system allow it.",
        ("off",),
    ),
    Setting(
        "TORCH_DEVICE_BACKEND_AUTOLOAD",
        "1",
        "torch's own: `0` keeps `import torch` from loading torch_npu.",
        "`import torch` makes the npu device known.",
    ),
)

BUILD_VARIABLES = (
    Setting(
        "TORCH_NPU_BUILD",
        "",
        "`skip`: setup.py does not run CMake.",
        "`pip install` compiles against the torch of the environment.",
    ),
    Setting("MAX_JOBS", "number of cores", "Compilers that setup.py runs at a time.", "All cores."),
)

ALLOCATOR_KEYS = (
    Setting(
        "expandable_segments",
        "False",
        "`True`: one range of addresses per stream grows, instead of many segments. The driver needs range functions.",
        "Memory is taken in segments; large ones may fragment.",
    ),
    Setting(
        "max_split_size_mb", "no limit", "Cached blocks larger than this are not split.", "Any block may be split."
    ),
    Setting(
        "max_non_split_rounding_mb",
        "20",
        "A block that may not be split serves a request that is up to this much smaller.",
        "20 MiB of a block may stay unused.",
    ),
    Setting(
        "garbage_collection_threshold",
        "0",
        "Between 0 and 1: above this part of the memory cap, cached blocks that were long unused are given back.",
        "Cached memory is given back only when the device is full.",
    ),
    Setting("large_segment_size_mb", "20", "Segments for requests of 1 to 10 MiB are this large.", "20 MiB."),
)

CMODEL_OPTIONS = (
    Setting("devices", "1", "Number of devices, 1 to 64.", "One device."),
    Setting("memory", "half of the host's", "Bytes per device; may end in K, M, G or T.", "Half of the host's memory."),
    Setting("base", "0x0A00000000000000", "The first device address.", "An address that no host pointer can have."),
    Setting(
        "regions",
        "",
        "Several memories per device instead of one: `sram@0x10000000+16M/dram@0x100000000+1G`.",
        "One region, `dram`.",
    ),
    Setting(
        "mode",
        "fast",
        "`exact`: follows docs/isa.md bit by bit, slowly.",
        "A BLAS and SIMD kernels: fast, close to exact.",
    ),
    Setting("threads", "number of cores", "Threads that work on one command.", "All cores."),
    Setting(
        "chip",
        "",
        "A file that describes a chip: events report the time that it would take (docs/whatif.md).",
        "Events report the host's time.",
    ),
    Setting(
        "inline_ns",
        "10000",
        "Commands estimated to be shorter run on the calling thread when their stream is idle; 0: never.",
        "10 microseconds.",
    ),
)

TEMPLATE_OPTIONS = (
    Setting("devices", "1", "Number of devices.", "One device."),
    Setting("memory", "8G", "Bytes per device; may end in K, M or G.", "8 GiB; pages appear when they are written."),
)

RTL_OPTIONS = (
    Setting("devices", "1", "Number of devices, each a simulated NPU of its own.", "One device."),
    Setting(
        "memory", "2G", "Bytes per device; may end in K, M or G. A quarter is scratch memory of the driver.", "2 GiB."
    ),
    Setting("latency", "20", "Cycles from a read request to its answer.", "20 cycles."),
    Setting("stall", "0", "Other than 0: the seed of random pauses on every channel of the memory bus.", "No pauses."),
)

LOCKSTEP_OPTIONS = (
    Setting("device", "", "The driver to verify, in brackets.", "An error."),
    Setting("reference", "cmodel:mode=exact", "The driver to compare with; `isa`: docs/isa.md itself.", "The C model."),
    Setting(
        "exact",
        "yes",
        "`no`: float sums may be off by one rounding per term; `split`: those of MATMUL and CONV of f32 and f64 only.",
        "Sums agree bit for bit.",
    ),
    Setting("functions", "1", "Multiple of what docs/isa.md allows for approximated functions.", "Exactly that."),
    Setting("sums", "1", "With `exact=no`: multiple of one rounding per term.", "One rounding per term."),
    Setting("out", ".", "Folder of the reproduction.", "The current folder."),
)

RECORD_OPTIONS = (
    Setting("driver", "cmodel", "The driver to record, in brackets.", "The C model."),
    Setting("file", "", "Path of the recording.", "An error."),
    Setting("results", "data", "`crc`: checksums instead of results.", "Whole results."),
)

TABLES = (
    ("Environment variables", VARIABLES),
    ("Keys of PYTORCH_ALLOC_CONF", ALLOCATOR_KEYS),
    ("Options of the driver cmodel", CMODEL_OPTIONS),
    ("Options of the driver template", TEMPLATE_OPTIONS),
    ("Options of the driver rtl", RTL_OPTIONS),
    ("Options of the driver lockstep", LOCKSTEP_OPTIONS),
    ("Options of the driver record", RECORD_OPTIONS),
    ("While building", BUILD_VARIABLES),
)


def misunderstood(setting: Setting) -> str:
    """What is wrong, if the value in this process is none of the setting's."""
    given = os.environ.get(setting.name, "")
    if not given or not setting.values or given in setting.values:
        return ""
    return f'{setting.name}: expected {" or ".join(setting.values)}, got "{given}"'


def check_environment() -> None:
    """Raises ValueError for the first variable whose value its setting does not have."""
    for setting in VARIABLES:
        if found := misunderstood(setting):
            raise ValueError(found)


def current(setting: Setting) -> str:
    """The value in this process."""
    return os.environ.get(setting.name, setting.default)
