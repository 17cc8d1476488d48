"""The group `pricing`: loads verbs lazily, and is the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import Final, TypeVar

import click

from pricing.cli import VERBS, Verb
from pricing.kernel.errors import PricingError
from pricing.text import visible

EXTRA_OF: Final = {
    "numpy": "fast",
    "rich": "cli",
    "jsonschema": "cli",
    "jinja2": "cli",
    "markupsafe": "cli",
    "matplotlib": "plot",
    "torch": "torch",
    "transformers": "hf",
    "peft": "hf",
    "prometheus_client": "prometheus",
}
"""Which extra brings a module that a verb or an option needs."""

_T = TypeVar("_T")


class BadInput(click.ClickException):
    """What the user gave cannot be used: one line on stderr, exit code 2."""

    exit_code = 2


class Mistake(click.ClickException):
    """Something that no input should cause: ours to mend. One line, and an exit code that no check uses."""

    exit_code = 3

    @classmethod
    def of(cls, error: Exception) -> Mistake:
        frames = traceback.extract_tb(error.__traceback__)
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        told = visible(f"{type(error).__name__}: {str(error)[:300]}{where}")
        return cls(f"a mistake in packed-pricing, not in your input: {told}. Please report it with the command.")


class Verbs(click.Group):
    """Verbs from the table in `pricing.cli`, each imported when it is called for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        return None if verb is None else _told(lambda: load_verb(cmd_name, verb))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.summary) for name, verb in VERBS.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        """The group's own help and version are said here: also they may meet a closed pipe or a full disk."""
        return _told(lambda: super(Verbs, self).make_context(info_name, args, parent, **extra))

    def invoke(self, ctx: click.Context) -> object:
        return _told(lambda: super(Verbs, self).invoke(ctx))


def load_verb(name: str, verb: Verb) -> click.Command:
    """The command of a verb. Raises `BadInput` where this build has no such module."""
    try:
        module = importlib.import_module(verb.module)
    except ModuleNotFoundError as error:
        if error.name != verb.module:
            raise
        raise BadInput(f"the verb {name!r} is not part of this build") from None
    command = module.command
    assert isinstance(command, click.Command), f"{verb.module}.command is a click command"
    return command


def _told(act: Callable[[], _T]) -> _T:
    """`act()`, with every error that bad input can cause told in a line instead of a traceback."""
    try:
        return act()
    except PricingError as error:
        raise BadInput(visible(str(error))) from error
    except ModuleNotFoundError as error:
        extra = EXTRA_OF.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        raise BadInput(f"this needs {error.name}: pip install 'packed-pricing[{extra}]'") from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            _stop_speaking()
            raise click.exceptions.Exit(0) from error  # such as `| head`: the reader has what it wanted
        named = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        raise BadInput(visible(f"{named}{error.strerror or error}")) from error
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        raise Mistake.of(error) from error


def _stop_speaking() -> None:
    """Let the rest of the output go nowhere, so that the flush at the end finds no closed pipe."""
    with contextlib.suppress(OSError, ValueError):  # no real stream: there is nothing to flush to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.command(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 a check failed or an item is refused, 2 bad input or use, 3 a mistake of ours. "
    "Figures are bytes above a wave's baseline.",
)
@click.version_option(package_name="packed-pricing")
def pricing() -> None:
    """What will this wave of prefix-shared requests need on the device, before it runs?

    A first look, on the traces that come with the source:

        pricing backtest spec/evidence/h200/*.jsonl --plot backtest.png
    """


def run() -> int:
    """Run the command line of this process; returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that has no such character shows its number
    try:
        pricing.main(prog_name="pricing")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except OSError as error:  # the group's own help, on a full disk
        click.echo(f"Error: {error.strerror or error}", err=True)
        return BadInput.exit_code
    return 0
