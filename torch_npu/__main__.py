import sys

from torch_npu.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
