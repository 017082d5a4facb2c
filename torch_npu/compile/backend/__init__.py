"""What Inductor sees of this package."""
