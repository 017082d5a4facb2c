__version__ = "0.1.0"

# The lowest and the highest torch that this is for (docs/design/python.md; pyproject.toml has the same).
TORCH = ("2.11", "2.13")
