"""One aten op: as loops, as a command with an epilogue, or left to aten."""
