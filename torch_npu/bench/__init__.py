"""What `python -m torch_npu bench ops` and `bench training` measure, and how."""
