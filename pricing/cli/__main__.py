"""`python -m pricing.cli`."""

import sys

from pricing.cli import main

if __name__ == "__main__":
    sys.exit(main())
