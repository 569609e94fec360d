"""`python -m drayd` is `drayd`."""

import sys

from drayd.cli import main

if __name__ == "__main__":
    sys.exit(main())
