"""Another distribution whose packages have the same names as ours: noticed when an adapter is imported.

PyPI's `adapters` (AdapterHub) installs a package `adapters` with an `__init__.py`. Ours has none, so that it can share
the name; but then AdapterHub's code runs first, and may fail, whenever an adapter of ours is imported.
"""

from __future__ import annotations

import sys
import warnings


def warn_of_foreign_adapters() -> None:
    """Say so once, in a sentence, if the package `adapters` that was imported is not this project's."""
    file = getattr(sys.modules.get("adapters"), "__file__", None)
    if file is not None:
        warnings.warn(
            f"the package 'adapters' comes from another distribution here ({file}, probably PyPI's 'adapters' of "
            "AdapterHub): run `pip uninstall adapters`, or keep packed-pricing in an environment of its own",
            RuntimeWarning,
            stacklevel=3,
        )
