"""OpenPipe ART's planner and pricing code without the rest of the package, for tests and benchmarks.

`import art` pulls in a server stack (HTTP clients, dataframes, experiment tracking) that planning and pricing never touch. What they
need is `art.trainer_rank`: PyTorch, NumPy and typing_extensions. `load_trainer_rank` imports that subpackage alone, from an
installed distribution or from an unpacked wheel (`ART_SOURCE`, the directory that holds `art/`).

The package declares Python >= 3.12. Its subpackage uses the syntax of 3.12 for type aliases and generic functions only, so under
3.11 a source loader rewrites those few lines (their meaning at run time is the same); everything else runs as shipped.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import os
import re
import sys
import types
from collections.abc import Buffer  # type: ignore[attr-defined]
