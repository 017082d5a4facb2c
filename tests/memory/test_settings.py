"""PYTORCH_ALLOC_CONF, each time in a process of its own."""


def test_expandable_segments_serve_growing_tensors(python):
    code = """
        import torch
        for size in (1, 12, 30, 50):
            x = torch.empty(size << 20, dtype=torch.uint8, device="npu")
            del x
        segments = [s for s in torch.npu.memory_snapshot() if s["segment_type"] == "large"]
        print(len(segments), all(s["is_expandable"] for s in segments), torch.npu.memory_reserved() < 80 << 20)
        torch.npu.empty_cache()
        print(torch.npu.memory_reserved())
    """
    assert python(code, PYTORCH_ALLOC_CONF="expandable_segments:True").lines() == ["1 True True", "0"]


def test_max_split_size_is_followed(python):
    code = """
        import torch
        big = torch.empty(64 << 20, dtype=torch.uint8, device="npu")
        del big
        small = torch.empty(12 << 20, dtype=torch.uint8, device="npu")
        print(torch.npu.memory_stats()["segment.all.current"])
    """
    assert python(code, PYTORCH_ALLOC_CONF="max_split_size_mb:32").lines() == ["2"]
    assert python(code).lines() == ["1"]


def test_an_unknown_allocator_key_is_refused_at_the_first_use_of_the_device(python):
    code = "import torch; print(torch.npu.is_available(), flush=True); torch.empty(1, device='npu')"
    result = python(code, PYTORCH_ALLOC_CONF="max_split_size_mb:32,max_splitt:1")
    assert result.status == 1 and result.out == "True\n"
    assert "ValueError: Unrecognized key 'max_splitt'" in result.err
