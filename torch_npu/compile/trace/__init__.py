"""What Dynamo and fake tensors have to know of npu before there is a graph."""
