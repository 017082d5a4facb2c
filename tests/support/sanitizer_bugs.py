"""Programs with one bug each, for test_sanitizer.py. `# here` marks the line of the op at fault, `# other` that
of the op that a report has to name beside it. A bug's documentation is what must be found."""

import ctypes

import torch

from torch_npu.compile.run.runtime import npu_kernel

NPU = "npu:0"


class _Descriptor(ctypes.Structure):
    """DLTensor and DLManagedTensor of DLPack, in one."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_kept = []  # DLPack's structs, for as long as the process lives


def address_of(tensor: torch.Tensor, elements: int | None = None) -> torch.Tensor:
    """The memory of a float32 tensor as a library sees it that has its address and no part in owning it."""
    count = tensor.numel() if elements is None else elements
    shape, strides = (ctypes.c_int64 * 1)(count), (ctypes.c_int64 * 1)(1)
    about = _Descriptor(tensor.data_ptr(), 12, tensor.device.index, 1, 2, 32, 1, shape, strides, 0, None, None)
    _kept.append((about, shape, strides))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return torch.utils.dlpack.from_dlpack(new(ctypes.addressof(about), b"dltensor", None))


def kernel(kind: str, sizes, program: str, operands, **options):
    """A command of a person's own: operands are (offset, strides) of one tensor each."""
    names = [f"t{k}" for k in range(len(operands))]
    described = [(name, offset, strides) for name, (offset, strides) in zip(names, operands, strict=True)]
    return npu_kernel("mine", kind, tensors=names, sizes=sizes, operands=described, program=program, **options)


DOUBLE = """program double(out, x)
each:
  %0 = load x : f32
  %1 = add %0, %0
  store out, %1
"""
TAKE = """program take(out, x, at)
each:
  %0 = load at : i64
  %1 = load_at x, %0 : f32
  store out, %1
"""
PUT = """program put(out, x, at)
each:
  %0 = load at : i64
  %1 = load x : f32
  store_at out, %1, %0
"""
ROWS = """program rows(out, x)
each:
  %0 = load x : f32
  %1 = fold sum %0
row:
  store out, %1
"""


# -- memory


def storage_made_smaller():
    """memory: reads past the end"""
    x = torch.ones(100, device=NPU)
    x.untyped_storage().resize_(40)  # other
    return x + 1  # here


def write_to_a_storage_made_smaller():
    """memory: writes past the end"""
    x = torch.ones(100, device=NPU)
    x.untyped_storage().resize_(396)  # other
    x.fill_(2)  # here


def storage_given_up():
    """memory: memory that belongs to no tensor"""
    x = torch.ones(100, device=NPU)
    x.untyped_storage().resize_(0)
    return x + 1  # here


def one_element_too_many():
    """memory: reads past the end"""
    x = torch.ones(128, device=NPU)  # other
    out = torch.empty(129, device=NPU)
    kernel("map", [129], DOUBLE, [(0, [1]), (0, [1])])(out, x)  # here


def result_too_small():
    """memory: writes past the end"""
    x = torch.ones(128, device=NPU)
    out = torch.empty(127, device=NPU)  # other
    kernel("map", [128], DOUBLE, [(0, [1]), (0, [1])])(out, x)  # here


def before_the_beginning():
    """memory: reads before the beginning"""
    x = torch.ones(128, device=NPU)  # other
    out = torch.empty(128, device=NPU)
    kernel("map", [128], DOUBLE, [(0, [1]), (-1, [1])])(out, x)  # here


def backwards_from_the_wrong_end():
    """memory: reads before the beginning"""
    x = torch.ones(128, device=NPU)  # other
    out = torch.empty(128, device=NPU)
    kernel("map", [128], DOUBLE, [(0, [1]), (0, [-1])])(out, x)  # here


def rows_too_far_apart():
    """memory: reads past the end"""
    x = torch.ones(8, 16, device=NPU)  # other
    out = torch.empty(8, 16, device=NPU)
    kernel("map", [8, 16], DOUBLE, [(0, [16, 1]), (0, [17, 1])])(out, x)  # here


def last_row_of_a_sum_too_many():
    """memory: reads past the end"""
    x = torch.ones(8, 16, device=NPU)  # other
    out = torch.empty(9, device=NPU)
    kernel("reduce", [9, 16], ROWS, [(0, [1, 0]), (0, [16, 1])], inner=1)(out, x)  # here


def product_too_deep():
    """memory: reads past the end"""
    a = torch.ones(4, 8, device=NPU)
    b = torch.ones(8, 4, device=NPU)  # other
    out = torch.empty(4, 4, device=NPU)
    kernel("matmul", [4, 4], "", [(0, [0, 1]), (0, [4, 1]), (0, [4, 1])], k=9)(a, b, out)  # here


def index_past_the_end():
    """memory: reads past the end"""
    x = torch.ones(50, device=NPU)  # other
    at = torch.tensor([3, 49, 50], device=NPU)
    out = torch.empty(3, device=NPU)
    kernel("map", [3], TAKE, [(0, [1]), (0, [0]), (0, [1])])(out, x, at)  # here


def scattered_past_the_end():
    """memory: writes past the end"""
    x = torch.ones(3, device=NPU)
    at = torch.tensor([0, 7, 4], device=NPU)
    out = torch.empty(7, device=NPU)  # other
    kernel("scatter", [3], PUT, [(0, [0]), (0, [1]), (0, [1])])(out, x, at)  # here


def address_with_the_wrong_length():
    """memory: reads past the end"""
    x = torch.ones(30, device=NPU)  # other
    return address_of(x, 31).sum()  # here


def address_after_free():
    """memory: was freed"""
    x = torch.ones(30, device=NPU)
    late = address_of(x)
    del x  # other
    return late + 1  # here


def write_after_free():
    """memory: was freed"""
    x = torch.ones(30, device=NPU)
    late = address_of(x)
    del x  # other
    late.zero_()  # here


def address_after_memory_had_new_owners():
    """memory: was freed"""
    x = torch.ones(30, device=NPU)
    late = address_of(x)
    del x  # other
    others = [torch.ones(30, device=NPU) for _ in range(10)]
    return late + others[0]  # here


def address_after_a_resize():
    """memory: was freed"""
    x = torch.ones(30, device=NPU)
    late = address_of(x)
    x.resize_(3000)  # other
    return late + 1  # here


def freed_memory_to_the_host():
    """memory: was freed"""
    x = torch.ones(30, device=NPU)
    late = address_of(x)
    del x  # other
    return late.cpu()  # here


def host_to_freed_memory():
    """memory: was freed"""
    x = torch.ones(30, device=NPU)
    late = address_of(x)
    del x  # other
    late.copy_(torch.zeros(30))  # here


def graph_whose_input_is_gone():
    """memory: was freed"""
    x = torch.ones(30, device=NPU)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x * 2
    graph.replay()
    x = y  # other
    graph.replay()  # here


# -- init


def empty_in_arithmetic():
    """init: aten::add reads"""
    x = torch.empty(10, device=NPU)  # other
    return x + 1  # here


def written_in_part():
    """init: aten::sum reads"""
    x = torch.empty(10, device=NPU)  # other
    x[:9] = 1
    return x.sum()  # here


def every_other_element():
    """init: aten::mul reads"""
    x = torch.empty(10, device=NPU)  # other
    x[::2] = 1
    return x * x  # here


def padding_of_rows():
    """init: aten::exp reads"""
    x = torch.empty(4, 8, device=NPU)  # other
    x[:, :6] = 1
    return x.view(-1).exp()  # here


def copy_of_nothing():
    """init: aten::mul reads"""
    x = torch.empty(4, 8, device=NPU)
    y = x.t().contiguous()  # other
    return y * 2  # here


def chosen_from_nothing():
    """init: aten::sum reads"""
    x = torch.empty(10, device=NPU)
    x.masked_fill_(torch.arange(10, device=NPU) < 5, 1.0)  # other
    return x.sum()  # here


def nothing_to_the_host():
    """init: (a copy to the host) reads"""
    x = torch.empty(10, device=NPU)  # other
    return x.cpu()  # here


def nothing_as_a_number():
    """init: aten::item (a copy to the host) reads"""
    x = torch.empty((), device=NPU)  # other
    return x.item()  # here


def row_of_a_table():
    """init: reads"""
    table = torch.empty(6, 4, device=NPU)  # other
    table[1:3] = 1
    return torch.nn.functional.embedding(torch.tensor([1, 5], device=NPU), table)  # here


def added_to_nothing():
    """init: reads"""
    x = torch.empty(10, device=NPU)  # other
    x.index_add_(0, torch.tensor([3], device=NPU), torch.ones(1, device=NPU))  # here


def grown_tensor():
    """init: aten::sum reads"""
    x = torch.ones(10, device=NPU)
    x.resize_(20)  # other
    return x.sum()  # here


def product_of_nothing():
    """init: aten::mm reads"""
    x, y = torch.ones(4, 4, device=NPU), torch.empty(4, 4, device=NPU)  # other
    return x @ y  # here


def convolution_over_a_border():
    """init: reads"""
    image = torch.empty(1, 1, 8, 8, device=NPU)  # other
    image[:, :, :7] = 1
    return torch.nn.functional.conv2d(image, torch.ones(1, 1, 3, 3, device=NPU), padding=1)  # here


def nothing_as_a_gradient():
    """init: reads"""
    x = torch.ones(10, device=NPU, requires_grad=True)
    y = x.sin()  # here
    y.backward(torch.empty(10, device=NPU))  # other


def graph_not_replayed_yet():
    """init: aten::add reads"""
    x = torch.ones(30, device=NPU)
    with torch.npu.graph(torch.npu.NPUGraph()):
        y = x * 2  # other
    return y + 1  # here


def nothing_on_the_cpu():
    """init: (a copy to the host) reads"""
    x = torch.empty(4, 4, device=NPU)  # other
    return torch.linalg.eigvals(x)  # here


# -- race


def read_without_wait():
    """race: aten::add reads what aten::normal_"""
    x = torch.empty(100, device=NPU).normal_()  # other
    with torch.npu.stream(torch.npu.Stream()):
        return x + 1  # here


def write_without_wait():
    """race: aten::fill_ writes what aten::add of another stream reads"""
    x = torch.ones(100, device=NPU)
    torch.npu.synchronize()
    y = x + 1  # other
    with torch.npu.stream(torch.npu.Stream()):
        x.fill_(2)  # here
    return y


def both_write():
    """race: writes"""
    x = torch.empty(100, device=NPU)
    one, other = torch.npu.Stream(), torch.npu.Stream()
    with torch.npu.stream(one):
        x[:60].fill_(1)  # other
    with torch.npu.stream(other):
        x[59:].fill_(2)  # here


def event_too_early():
    """race: reads what"""
    x, side, event = torch.empty(100, device=NPU), torch.npu.Stream(), torch.npu.Event()
    event.record()
    x.fill_(1)  # other
    with torch.npu.stream(side):
        event.wait()
        return x + 1  # here


def event_on_the_wrong_stream():
    """race: reads what"""
    x, side, event = torch.ones(100, device=NPU), torch.npu.Stream(), torch.npu.Event()  # other
    event.record(side)
    with torch.npu.stream(side):
        event.wait()
        return x + 1  # here


def wrong_stream_waits():
    """race: reads what"""
    x, side, third = torch.ones(100, device=NPU), torch.npu.Stream(), torch.npu.Stream()  # other
    third.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        return x + 1  # here


def wait_in_the_wrong_direction():
    """race: reads what"""
    x, side = torch.ones(100, device=NPU), torch.npu.Stream()  # other
    torch.npu.current_stream().wait_stream(side)
    with torch.npu.stream(side):
        return x + 1  # here


def result_used_before_the_wait():
    """race: reads what"""
    x, side = torch.ones(100, device=NPU), torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        y = x + 1  # other
    z = y * 2  # here
    torch.npu.current_stream().wait_stream(side)
    return z


def upload_on_another_stream():
    """race: reads what"""
    batch, side = torch.ones(100).pin_memory(), torch.npu.Stream()
    with torch.npu.stream(side):
        x = batch.to(NPU, non_blocking=True)  # other
    return x + 1  # here


def download_on_another_stream():
    """race: (a copy to the host) reads what"""
    x, side = torch.ones(100, device=NPU), torch.npu.Stream()  # other
    with torch.npu.stream(side):
        return x.to("cpu", non_blocking=True)  # here


def record_stream_forgotten():
    """race: was freed while"""
    x, side = torch.ones(100, device=NPU), torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        y = x + 1  # here
    del x  # other
    torch.ones(100, device=NPU)
    return y


def replay_on_another_stream():
    """race: reads what"""
    x, graph = torch.ones(100, device=NPU), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x * 2
    torch.npu.synchronize()
    x.fill_(3)  # other
    with torch.npu.stream(torch.npu.Stream()):
        graph.replay()  # here
    return y


def host_reads_too_early():
    """race: of the CPU reads pinned memory"""
    x = torch.ones(100, device=NPU)
    y = x.to("cpu", non_blocking=True)  # other
    return y + 1  # here


def host_lists_too_early():
    """race: of the CPU reads pinned memory"""
    x = torch.ones(100, device=NPU)
    y = x.to("cpu", non_blocking=True)  # other
    return y.tolist()  # here


def host_writes_too_early():
    """race: of the CPU writes pinned memory"""
    batch = torch.ones(100).pin_memory()
    x = batch.to(NPU, non_blocking=True)  # other
    batch.zero_()  # here
    return x


BUGS = [
    value
    for value in list(globals().values())
    if callable(value) and (getattr(value, "__doc__", None) or "")[:4] in ("memo", "init", "race")
]
