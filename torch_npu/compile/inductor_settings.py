"""Inductor's settings for graphs of npu."""

# Layouts that pay on GPUs: our commands take any strides, and convolutions prefer what they are given.
SETTINGS = {
    "layout_optimization": False,
    "comprehensive_padding": False,
    "online_softmax": False,  # two plain folds are two segments of one command
    "triton.mix_order_reduction": False,
    # A value of more operations than this that several loops use is stored by the first and loaded by the others. In
    # one command the row is still at hand, so that pays sooner than on GPUs, which have 30: a norm's gradient would
    # compute exponentials twice, every head of attention its own sine.
    "realize_opcount_threshold": 8,
    "epilogue_fusion_first": True,  # a sum that the next reduction needs as well is stored by the product before it
    "alignment_asserts": False,  # commands take any address
    "graph_partition": False,  # whole graphs are captured, or not
    "triton.autotune_at_compile_time": False,  # on by itself for a package where Triton and a GPU are
}
