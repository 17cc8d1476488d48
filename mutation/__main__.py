"""`python -m mutation [FOLDER] [--keep]`: the mutation score of the kernel, the survivors, and why they survive."""

from __future__ import annotations

import sys

from mutation.score import main

sys.exit(main(sys.argv[1:]))
