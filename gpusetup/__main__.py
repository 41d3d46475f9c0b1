"""`python -m gpusetup`."""

import sys

from gpusetup.cli import main

if __name__ == "__main__":
    sys.exit(main())
