"""The command `pricing`: one module a verb, imported when the verb is asked for.

This module knows the verbs by name and imports none of them, nor click: `import pricing.cli` costs nothing, and a
missing extra is said in words.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: the module whose `command` it is, and the line that `pricing --help` shows."""

    module: str
    summary: str


VERBS: Final[Mapping[str, Verb]] = MappingProxyType(
    {
        "backtest": Verb("pricing.cli.backtest", "Replay recorded waves under each law: price against observed peak."),
        "learn": Verb("pricing.cli.learn", "Learn a profile from readings (or from a trace)."),
        "price": Verb("pricing.cli.price", "Price one wave by a profile."),
        "explain": Verb("pricing.cli.explain", "Price one wave and say where each byte of the price comes from."),
        "plan": Verb("pricing.cli.plan", "Plan the waves that a batch of requests runs as, within a budget."),
        "budget": Verb("pricing.cli.budget", "The most rows (tokens) of a micro-batch that fit, by a profile."),
        "forecast": Verb(
            "pricing.cli.forecast", "What a model will need, and the most rows that fit, without a device."
        ),
        "replay": Verb("pricing.cli.replay", "Decide recorded decisions again and compare, byte for byte."),
        "report": Verb("pricing.cli.report", "Make a page of a run's records."),
        "scale": Verb("pricing.cli.scale", "Test the frontier law's assumption on traces."),
    }
)
"""Every verb of `pricing`. A verb joins by a line here and a module with a `click.Command` named `command`."""


def main() -> int:
    """Entry point of the console script. Returns the exit code: 0 done, 1 a check failed, 2 bad input or use."""
    try:
        from pricing.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(f"Error: the command line needs {error.name}: pip install 'packed-pricing[cli]'", file=sys.stderr)
        return 2
    return run()
