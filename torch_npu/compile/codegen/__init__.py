"""One fused loop: from Inductor's operations to a program and the form of its command."""
