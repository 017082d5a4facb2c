"""A LeNet for scripts that tests write into a file: the beginning of the script, and where its lines are."""

import textwrap

_SCRIPT = textwrap.dedent("""\
    import torch
    from torch import nn

    class LeNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 6, kernel_size=5, padding=2)
            self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
            self.fc1 = nn.Linear(16 * 4 * 4, 120)
            self.fc2 = nn.Linear(120, 84)
            self.fc3 = nn.Linear(84, 10)

        def forward(self, x):
            x = nn.functional.POOL(torch.relu(self.conv1(x)), 2)  # conv1
            x = torch.relu(self.conv2(x))
            x = torch.relu(self.fc1(x.flatten(1)))
            x = torch.relu(self.fc2(x))  # fc2
            return self.fc3(x)

    torch.manual_seed(0)
    model, inputs = LeNet(), torch.randn(2, 1, 16, 16)
""")


def script(pool: str) -> str:
    """`pool` is max_pool2d, whose results are exact, or avg_pool2d."""
    return _SCRIPT.replace("POOL", pool)


def line_of(comment: str, text: str) -> int:
    """The number of the line that ends in this comment."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# " + comment))
