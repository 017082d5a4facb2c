"""Checks of the device against PyTorch itself."""
